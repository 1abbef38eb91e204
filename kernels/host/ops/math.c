/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of one instruction set, gathered into the table that a device points to. */
#include "ops.h"

#define NAME_OF(isa)   NAME_TEXT(isa)
#define NAME_TEXT(isa) #isa

const struct host_math HOST_SUFFIXED(host_math, HOST_ISA) = {
    .isa = NAME_OF(HOST_ISA),
    .matmul = HOST_OP(matmul),
    .rmsnorm = HOST_OP(rmsnorm),
    .rmsnorm_backward = HOST_OP(rmsnorm_backward),
    .rope = HOST_OP(rope),
    .attention = HOST_OP(attention),
    .attention_backward = HOST_OP(attention_backward),
    .swiglu = HOST_OP(swiglu),
    .swiglu_backward = HOST_OP(swiglu_backward),
    .add = HOST_OP(add),
    .bias = HOST_OP(bias),
    .bias_backward = HOST_OP(bias_backward),
    .cast = HOST_OP(cast),
    .embedding = HOST_OP(embedding),
    .embedding_backward = HOST_OP(embedding_backward),
    .cross_entropy = HOST_OP(cross_entropy),
    .sum_ways = HOST_OP(sum_ways),
    .quantise = HOST_OP(quantise),
    .dequantise = HOST_OP(dequantise),
};
