/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_RATES_H
#define HOISTWAY_ENGINE_COMM_RATES_H
/*
 * It tells how fast ranks reach each other, measured by gathers and exchanges of all of them at
 * once, and the rates that follow from what these took.
 */
#include "comm/comm.h"

#include <hoistway/machine.h>

/** The parts of the bytes of an operation, 0 to 1, that come from other nodes. */
struct comm_crossing {
    double gather, exchange;
};
/**
 * It follows from the ranks, their nodes and whether memory is shared, as the transport counts
 * between_bytes, but for types that differ between hops. Pure.
 */
struct comm_crossing comm_crossing(const struct comm_info *info);

/** These are what a rank sends or passes on in an operation, one behind the other. */
struct comm_messages {
    double in_node, between;
};
/**
 * Of a gather or an exchange (kind, near, on_device): one to each other rank of a hop, or as many
 * steps of a ring where a device gathers; none where a rank reads the memory of its node's others.
 * An exchange that is cut into pieces counts as one. Pure.
 */
struct comm_messages comm_messages(const struct comm_info *info, const struct comm_op *op);

/** This was measured, by the slowest rank, in seconds of one operation. */
struct comm_times {
    double empty_s;                  /* an operation that moves next to nothing */
    double gather_s, exchange_s;     /* of so many bytes of others' elements */
    double gather_bytes, exchange_bytes;
    /* the bytes of a gather that come from this node, copied by all of its ranks at once; 0: not
       measured, nothing crosses nodes or nothing is read in place */
    double copy_s;
};

/** Bytes and operations a second, those of HST_RATE_NET_*; 0: there is nothing of the kind. */
struct comm_rates {
    double gather, exchange, between;
    double operations, operations_between;
};
/** Where all of a node is measured with what crosses nodes, a copy tells them apart. Pure. */
struct comm_rates comm_rates_of(const struct comm_info *info, const struct comm_times *times);

/**
 * Measures, with nothing under way; all ranks call it, and have the same rates then. dtype: of
 * gradients. how [160]: what was done, in a line.
 * Errors: the comm's, -ENOMEM.   Cost: some 50 ms where a network carries 1 GB/s; a row of at most
 * 16 MiB of comm_alloc, or a block of each rank.
 */
int comm_rates_measure(struct comm *comm, enum hst_dtype dtype, struct comm_rates *rates,
                       char how[160]);
/** Puts them among the figures of a machine. */
void comm_rates_put(const struct comm_rates *rates, const char *how, struct hst_rates *out);

#endif
