/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_OPTIMIZER_ROW_H
#define HOISTWAY_ENGINE_OPTIMIZER_ROW_H
/*
 * This is what the rows of an optimizer are made of, for the file that has them. A row's states are
 * the master, where there is one, then m and v of cpu_adam's optimizer, as far as it has them, then
 * the scales of those that are codes.
 */
#include "optimizer/optimizer.h"

/** The callbacks of every row whose states are these. */
struct hst_update_arrays row_host_arrays(const struct optimizer *optimizer,
                                         const struct optimizer_arrays *arrays);
int row_device(const struct optimizer *optimizer, struct hst_stream *stream,
               const struct optimizer_coef *coef, const struct optimizer_arrays *arrays, size_t n);

#define NUMBERS(state_name, type)                                                                  \
    {                                                                                              \
        .name = (state_name), .number = OPTIMIZER_##type, .covers = 1                              \
    }
#define SCALES(state_name)                                                                         \
    {                                                                                              \
        .name = (state_name), .number = OPTIMIZER_F32, .covers = HST_CODE_BLOCK                    \
    }
#define KIND(value, weight, moments_)                                                              \
    {                                                                                              \
        .optimizer = HST_OPTIMIZER_##value, .weights = HST_CPU_##weight,                           \
        .moments = HST_CPU_##moments_, .grads = HST_CPU_##weight                                   \
    }
#define RATES(of, format)                                                                          \
    .update_rate = HST_RATE_UPDATE_##of, .half_rate = HST_RATE_HALF_##of,                          \
    .device_rate = HST_RATE_DEVICE_##of, .ahead_row = HST_AHEAD_##format
#define COMMON                                                                                     \
    .name = NAME, .granularity = 1, .too_large = TOO_LARGE, .coef = coef,                          \
    .host_arrays = row_host_arrays

/*
 * The rows of HST_OPTIMIZER_##value with moments in f32. MOMENTS(type) lists their states, `count`
 * of them. Its file defines NAME, TOO_LARGE and coef. fp16 has no rates of its own: it moves nearly
 * as many bytes as fp32.
 */
#define ROWS_OF_F32_MOMENTS(value, MOMENTS, count)                                                 \
    {COMMON, .precision = HST_PRECISION_FP32, .state = HST_STATE_FP32,                             \
     .host = KIND(value, F32, F32), .states = {MOMENTS(F32)}, .state_count = (count),              \
     RATES(FP32, FP32), .device = row_device},                                                     \
    {COMMON, .precision = HST_PRECISION_BF16, .state = HST_STATE_FP32,                             \
     .host = KIND(value, BF16, F32), .states = {NUMBERS("remainder", I16), MOMENTS(F32)},          \
     .state_count = 1 + (count), .has_master = true, RATES(BF16, BF16), .device = row_device},     \
    {COMMON, .precision = HST_PRECISION_FP16, .state = HST_STATE_FP32,                             \
     .host = KIND(value, F16, F32), .states = {NUMBERS("master", F32), MOMENTS(F32)},              \
     .state_count = 1 + (count), .has_master = true, RATES(FP32, FP32), .device = row_device}
/* With moments in bf16, to which no device rounds them. */
#define ROW_OF_BF16_MOMENTS(value, MOMENTS, count)                                                 \
    {COMMON, .precision = HST_PRECISION_BF16, .state = HST_STATE_BF16,                             \
     .host = KIND(value, BF16, BF16), .states = {NUMBERS("remainder", I16), MOMENTS(BF16)},        \
     .state_count = 1 + (count), .has_master = true, RATES(BF16, BF16_MOMENTS)}
/* With m and v in codes of 8 bits. They begin and are cut at blocks. */
#define ROW_OF_CODED_MOMENTS(value, MOMENTS)                                                       \
    {.name = NAME, .granularity = HST_CODE_BLOCK, .too_large = TOO_LARGE, .coef = coef,            \
     .host_arrays = row_host_arrays, .precision = HST_PRECISION_BF16, .state = HST_STATE_8BIT,     \
     .host = KIND(value, BF16, CODE),                                                              \
     .states = {NUMBERS("remainder", I16), MOMENTS(CODE), SCALES("m scale"), SCALES("v scale")},   \
     .state_count = 5, .has_master = true, RATES(BF16, CODES), .device = row_device}

#endif
