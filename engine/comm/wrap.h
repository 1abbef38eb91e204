/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_WRAP_H
#define HOISTWAY_ENGINE_COMM_WRAP_H
/*
 * Comms around comms, for tests and studies: one that is as slow as a network, one in which things
 * go wrong. Each takes the place of the comm that it is given, and closes it when it is closed.
 */
#include "comm/comm.h"

/** A link: an operation of b bytes (comm_op_bytes) takes latency + b / rate, one after another. */
struct comm_model {
    double bytes_per_s; /* > 0; may be infinite */
    double latency_s;   /* ≥ 0, of each operation */
};

/**
 * An operation ends no earlier than the link of the model would let it, in real time; where the
 * comm below is slower, when that ends. Bytes are those of the comm below.
 * *comm is replaced; on failure it is untouched. Errors: -EINVAL, -ENOMEM, -EMFILE.
 */
int comm_model_wrap(struct comm **comm, const struct comm_model *model);

/** Another link, for what is begun from now on. Errors: -EINVAL, also where comm is no model. */
int comm_model_set(struct comm *comm, const struct comm_model *model);

enum comm_fault_what {
    COMM_FAULT_FAIL = 1, /* it cannot be begun; the comm has failed with -EIO */
    COMM_FAULT_DELAY,    /* it is begun `seconds` late; comm_begin waits */
    COMM_FAULT_DROP,     /* it never ends, nor does any after it; others wait for this rank */
    COMM_FAULT_DIE,      /* this process is killed */
};
struct comm_fault {
    enum comm_fault_what what;
    uint64_t nth;   /* operation that it strikes, from 1 */
    double seconds; /* ≥ 0; COMM_FAULT_DELAY */
};
enum { COMM_FAULTS_MOST = 8 };

/** At the n-th operations these things happen. Errors and ownership as comm_model_wrap. */
int comm_fault_wrap(struct comm **comm, const struct comm_fault *faults, size_t count);

/* ---- for wrappers ---------------------------------------------------------------------------- */

struct wrap {
    struct comm base;
    struct comm *inner;
};
/** A table whose entries call the same one of `inner`; a wrapper overrides what it changes. */
struct comm_ops wrap_ops(void);
/** The comm below. */
struct comm *wrap_inner(struct comm *comm);

#endif
