/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_FAKE_CUDNN_H
#define TEST_FAKE_CUDNN_H
/*
 * A cuDNN that builds nothing: it proposes the engines it is told to, counts what is alive, fails
 * the call it is told to, and writes down what it is asked to run. One per process.
 */
#include "device.h"

struct fake_engine {
    int64_t number;
    bool nondeterministic;
    cudnnStatus_t builds; /* what finalizing its plan returns */
    int64_t work_bytes;
};

struct fake_run {
    cudnnHandle_t handle;
    cudaStream_t stream;
    int64_t engine;
    int64_t q_dims[4], q_strides[4];
    void *data[SDPA_UIDS]; /* by uid, null where not given */
    float scale, masked, one;
    void *work;
};

#define FAKE_ENGINES 4
#define FAKE_RUNS    64

struct fake_cudnn {
    struct fake_engine proposals[2][FAKE_ENGINES]; /* heuristic A, fallback */
    size_t proposal_count[2];
    struct fake_engine by_number; /* what an engine asked for by number is */
    int64_t asked_number, asked_knobs;
    size_t fail_at;  /* the call, from 1, that returns fail_status; 0: none */
    bool fail_lasts; /* and all behind it */
    cudnnStatus_t fail_status, execute_status;
    size_t calls, live, plans_built, runs_count;
    struct fake_run runs[FAKE_RUNS];
};
extern struct fake_cudnn fake;

/** Forgets everything; one deterministic engine, number 1, is proposed. */
void fake_reset(void);
extern const struct cudnn_api fake_api;

/** A device over it, of that compute capability; its cache is empty. */
void fake_open(struct hst_sdpa *sdpa, int compute);
void fake_close(struct hst_sdpa *sdpa);

#endif
