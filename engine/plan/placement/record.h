/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_RECORD_H
#define HOISTWAY_ENGINE_PLAN_RECORD_H
/*
 * The bytes of one tile: its state record `master | pad | m | pad | v` and its weights. The k-th
 * array of the record starts at k·1,088 modulo 4,096, so that the update's streams do not meet in
 * the same cache sets; the record as a whole is padded to 4 KiB. The same in memory and on the
 * drive. Pure.
 */
#include <hoistway/cpu_adam.h>
#include <hoistway/hoistway.h>

#define RECORD_STAGGER_BYTES 1088u
#define RECORD_PAGE_BYTES    4096u

struct record {
    uint64_t master_at, m_at, v_at; /* bytes from the record's start */
    uint64_t bytes;                 /* of the whole, a multiple of 4,096 */
};

/** It tells what a precision's tiles are updated with; gradients have the weights' type. */
struct hst_update_kind record_kind(enum hst_precision precision, enum hst_state state);
/** The bytes of that kind. */
struct hst_update_bytes record_bytes(enum hst_precision precision, enum hst_state state);

struct record record_layout(struct hst_update_bytes bytes, uint64_t elements);
/** Zeroes what lies between the arrays and behind them, which nothing else writes: the bytes of a
 * tile on a drive then depend on its elements alone. */
void record_zero_gaps(void *record, struct hst_update_bytes bytes, uint64_t elements);
/** Bytes of one element's states, without padding. */
uint64_t record_state_bytes(struct hst_update_bytes bytes);

#endif
