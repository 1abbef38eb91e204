/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_BLAS_H
#define HST_KERNELS_BLAS_H
/* The door to OpenBLAS: which library, opened when, with which kernels. */
#include <hoistway/kernels.h>

#define HOST_BLAS_CORE_VARIABLE "OPENBLAS_CORETYPE"

/* These are the functions of it that are used. Those that a build may lack are null there. */
struct host_blas {
    void *handle;
    int (*parallel)(void);
    char *(*config)(void), *(*corename)(void);
    void (*set_num_threads)(int threads);
    void *sgemm; /* cblas_sgemm */
    void *(*memory_alloc)(int position);
    void (*memory_free)(void *buffer);
    void (*dynamic_init)(void), (*dynamic_quit)(void);
    void (*omp_set_num_threads)(int threads); /* libgomp's, which the library brings along */
};

/*
 * Opens it, once in a process, with the core named, or its own choice where that is null; `callers`
 * threads will call it at once. Errors: -ENODEV, -ENOTSUP, -ENOMEM, with *failure written.
 */
int host_blas_open(const char *core, unsigned callers, struct hst_dev_failure *failure);
/* After it was opened: "OpenBLAS 0.3.21 SkylakeX". */
void host_blas_name(char *text, size_t text_bytes);

/*
 * blas_find.c: whether there is room for the buffers of that many threads, and for the library if
 * it is not loaded; false with *failure written.
 */
bool host_blas_room(bool loaded, unsigned callers, struct hst_dev_failure *failure);
/* Loads the library, where there is room for it. *loaded: it was in the process already. */
void *host_blas_load(const char *core, unsigned callers, bool *loaded,
                     struct hst_dev_failure *failure);

#endif
