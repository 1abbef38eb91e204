/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_RECORD_H
#define HOISTWAY_ENGINE_PLAN_RECORD_H
/*
 * The bytes of one tile: its state record `remainder | pad | m | pad | v` and its weights. The k-th
 * array of the record starts at k·1,088 modulo 4,096, so that the update's streams do not meet in
 * the same cache sets; the record as a whole is padded to 4 KiB. The same in memory and on the
 * drive. Pure.
 */
#include <hoistway/hoistway.h>

#define RECORD_STAGGER_BYTES 1088u
#define RECORD_PAGE_BYTES    4096u

struct record {
    uint64_t remainder_at, m_at, v_at; /* bytes from the record's start; no remainder in fp32 */
    uint64_t bytes;                    /* of the whole, a multiple of 4,096 */
};

struct record record_layout(enum hst_precision precision, uint64_t elements);
/** Bytes of one weight, one rounded gradient, one activation element. */
uint64_t record_weight_bytes(enum hst_precision precision);
/** Bytes of one element's states, without padding. */
uint64_t record_state_bytes(enum hst_precision precision);

#endif
