/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_ROWS_H
#define HOISTWAY_ENGINE_EXEC_ROWS_H
/* Rows of units that are of several ranks: where the shards of all come together, and where the
   rank's own is. */
#include "exec/program.h"

/** This end of a visit's, a copy's or a gather's weights is a whole row at home (ZeRO stage 2). */
bool rows_are_home(const struct executor *exec, struct operand_end end);
/** This is where the nth row of those that a unit reads is at home: its own, then its aliases'. */
unsigned char *rows_home(const struct executor *exec, uint32_t unit, uint32_t nth);

/* A row that is put together of the shards of all ranks. */
struct gathered {
    unsigned char *row;
    const unsigned char *home; /* of the rank's shard; null: it is in the row already */
    uint64_t shard_bytes;
    bool on_device;
    unsigned char *keep; /* on a device: where the rank keeps its part of the row; null: it does
                            not */
};
/** The rows that a started GATHER puts together. Returns how many. */
uint32_t rows_gathered(const struct executor *exec, struct scheduled at,
                       struct gathered rows[GATHER_MAX]);

/** They are those of a started GATHER_NEAR: `home` is what the rank has kept, shard_bytes as much
   as each has. */
uint32_t rows_near(const struct executor *exec, struct scheduled at,
                   struct gathered rows[GATHER_MAX]);
/** Keeps the rank's part of the rows of a GATHER that has ended, where its node does so, and the
   gather has not on its device. */
void rows_keep(const struct executor *exec, struct scheduled at);

/* This is what a started EXCHANGE hands out, a whole row or a bucket, and where it puts the sum
   of the rank's shard. */
struct exchanged {
    const unsigned char *row;
    unsigned char *sum;
    uint64_t elements; /* of a shard */
    bool on_device;
};
struct exchanged rows_exchanged(const struct executor *exec, struct scheduled at);
/** This is where the sum of the rank's shard is at home: of replicas in its place in the row. */
unsigned char *rows_sum_home(const struct executor *exec, uint32_t unit);
/** The sums that a started GATHER_GRADS of replicas puts together. */
struct gathered rows_of_sums(const struct executor *exec, struct scheduled at);
/** This is where a backward in DRAM leaves gradients that are exchanged in buckets. */
unsigned char *rows_in_bucket(const struct executor *exec, uint32_t unit);
struct copy;
/** A copy of such a row from a device has each rank's shard go to that one's part. */
void rows_copy_into_bucket(const struct executor *exec, uint32_t unit, struct copy *copy);

#endif
