/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDNN_SDPA_H
#define HST_CUDNN_SDPA_H
/*
 * Causal attention by cuDNN, where cuDNN is installed and has a deterministic plan for the shape;
 * the plugin's own kernels serve the rest. Forward and backward are asked for apart: lse means the
 * same in both engines (natural logarithm, scaled scores), so one may serve the forward and the
 * other the backward.
 *
 * For the plugin:
 *   - the environment's HOISTWAY_ATTENTION, read when a device opens, is `own` (never open this),
 *     `cudnn` (a device without it does not open) or unset (hst_sdpa_open; -ENOENT, -ENODEV: own
 *     kernels);
 *   - per call: hst_sdpa_supports(...) == 1 here, 0 own kernel, negative the call's error;
 *   - workspace is the greater of both engines'.
 *
 * Which engine serves is decided by shape, library, card and the device's budget, never by timing
 * or by what ran before, so results depend on the configuration alone.
 *
 * Thread-safety: every function but open and close is safe from any thread; one lock holds plans
 * and handle, and is held while a plan is built (seconds, once per shape: call
 * hst_sdpa_work_bytes when memory is planned).
 * The device must be the calling thread's current one in every call.
 */
#include <cuda_runtime_api.h>
#include <hoistway/kernels.h>

struct hst_sdpa;

/* Calls are cut until their parts need no more workspace than this; one group of heads alone may
   have more, where the device's budget is large. */
#define HST_SDPA_WORK_BYTES ((size_t)256 << 20)

/**
 * Opens cuDNN for the current device: 9.16 or a later 9. Where libcudnn.so.9 is looked for is said
 * in ../library.h; it opens its parts itself and stays loaded until the process ends.
 * Errors: -ENOENT it is not there; -ENODEV it is not usable; -ENOMEM. *failure (may be null) says
 * why, of a library that is there with its file.
 * Ownership: the caller closes it, when no stream has work of it left.
 */
int hst_sdpa_open(struct hst_sdpa **sdpa, struct hst_dev_failure *failure);
/** Null is fine; sets *sdpa to null. */
void hst_sdpa_close(struct hst_sdpa **sdpa);

/** "libcudnn.so.9"; "" in a build without cuDNN's headers. Ownership: static. */
const char *hst_sdpa_soname(void);
/** cuDNN's version, 91900 is 9.19.0. */
size_t hst_sdpa_version(const struct hst_sdpa *sdpa);
/** The file that it was loaded from. Ownership: the loader's. */
const char *hst_sdpa_file(const struct hst_sdpa *sdpa);

/** The device's budget: what one group of heads may need follows it. Before any call is served. */
void hst_sdpa_budget(struct hst_sdpa *sdpa, uint64_t memory_bytes);

/* It holds what has been made for the shapes that were asked for. */
struct hst_sdpa_made {
    unsigned plans; /* built, or found not to be there */
    double plans_s; /* how long that took */
    /* the most workspace of those that are served and need more than HST_SDPA_WORK_BYTES: what of
       the budget results depend on; 0: there are none */
    size_t largest_bytes;
};
void hst_sdpa_made(struct hst_sdpa *sdpa, struct hst_sdpa_made *made);

/**
 * 1 where hst_sdpa_forward (backward: hst_sdpa_backward) serves this shape, 0 where not, -ENOMEM;
 * -ENODEV where no plan can be made because cuDNN itself is not whole: to go on without it would be
 * with other bits than those of which hst_dev_math has said "by cuDNN". *failure (may be null) says
 * why. Reads shape and dtype only. An empty batch is served.
 */
int hst_sdpa_supports(struct hst_sdpa *sdpa, const struct hst_attention *args, bool backward,
                      struct hst_dev_failure *failure);
/**
 * Workspace of the forward and the backward of that shape, whichever of them are served: enough for
 * a smaller batch of the same shape; 0 where neither is served. Errors: as hst_sdpa_supports, with
 * *work_bytes untouched: whether a plan is there is then not known.
 */
int hst_sdpa_work_bytes(struct hst_sdpa *sdpa, const struct hst_attention *args, size_t *work_bytes,
                        struct hst_dev_failure *failure);

/**
 * Enqueue; the arguments are checked (kernels/operations.c) and hst_sdpa_supports has said 1.
 * Errors: -ENOTSUP (it had not), -ENOMEM, -ENODEV, -EIO; *failure (may be null) says why.
 */
int hst_sdpa_forward(struct hst_sdpa *sdpa, cudaStream_t stream, const struct hst_attention *args,
                     struct hst_dev_failure *failure);
int hst_sdpa_backward(struct hst_sdpa *sdpa, cudaStream_t stream,
                      const struct hst_attention_backward *args, struct hst_dev_failure *failure);

#endif
