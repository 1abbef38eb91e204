/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ERROR_H
#define HOISTWAY_ERROR_H
/* This is what the engine says of a call that failed. docs/errors.md tells of each code. */

#ifdef __cplusplus
extern "C" {
#endif

/** The E-codes of the engine; tools add their own (docs/errors.md lists all). */
enum hst_code {
    HST_E_IO_URING = 101,      /* io_uring was forced and is refused by the system */
    HST_E_STORE_DIR = 105,     /* store directory missing, no directory, not writable */
    HST_E_READ = 106,          /* a read failed, in the store or in the caller's reader */
    HST_E_WRITE = 107,         /* a write to the store failed */
    HST_E_DEVICE = 201,        /* a device, or worker threads, that cannot be had */
    HST_E_DEVICE_MEMORY = 202, /* the device's memory ran out, beside what was planned */
    HST_E_DEVICE_FAILED = 203, /* the device failed while it computed or copied */
    HST_E_HOST_MATH = 204,     /* kernels were named that this processor or OpenBLAS has not got */
    HST_E_DISK_SPACE = 301,    /* the store's file system has too little space left */
    HST_E_BUDGET = 302,        /* no placement fits, or a budget is more than the machine has */
    HST_E_VALUE = 402,         /* a configuration value out of its range */
    HST_E_LAUNCH = 501,        /* processes that were started together, and are not joined */
    HST_E_JOIN_MPI = 502,      /* ranks cannot be joined by MPI */
    HST_E_RANKS_DIFFER = 503,  /* ranks that were started unlike */
    HST_E_RANK = 504,          /* a rank has gone, or does not answer */
    HST_E_JOIN_NCCL = 505,     /* GPUs of ranks cannot be joined by NCCL */
    HST_E_COMM = 507,          /* MPI or NCCL failed among ranks that were joined */
    HST_E_STORE_ACCESS = 610,  /* a directory or file of a store that is not its owner's alone */
    HST_E_STORE_BUSY = 611,    /* a store in use by another process */
    HST_E_STORE_FORMAT = 612,  /* no store's file, or of another version, byte order or feature */
    HST_E_STORE_MIXED = 613,   /* files that do not belong together, missing or cut */
    HST_E_STORE_DAMAGED = 614, /* no version of which every byte is as it was written */
    HST_E_STORE_OTHER = 615,   /* a store of another model, precision or tile size */
    HST_E_STORE_TAKEN = 616,   /* a directory that holds a committed store, or other files */
    HST_E_STORE_EMPTY = 617,   /* a store in which no version was ever committed */
    HST_E_NONFINITE = 701,     /* the gradient norm is not finite, or too large for v */
};

/** Why a call failed: everything a user needs, on the object, never in thread-local storage. */
struct hst_error {
    int code;   /* E-code without its letter: 101 … 799; 0: no error */
    int native; /* negative errno behind it */
    /* "what, the value seen, why, one fix", without the code, without a newline */
    char message[512];
};

#ifdef __cplusplus
}
#endif
#endif
