/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_BLASLT_H
#define HST_CUDA_BLASLT_H
/*
 * Matrix products by cuBLASLt, which is opened when a device is, if matmul.c wants it: it is half a
 * gigabyte, which the host device must not need. blaslt_open.c is the door to the library, blaslt.c
 * makes the products.
 */
#include <cublasLt.h>
#include <hoistway/kernels.h>

/* These are used of the library, by its own names. */
#define BLASLT_FUNCTIONS(X)                                                                        \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetStatusName)                                                                       \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)

struct blaslt_library {
    void *handle;
#define BLASLT_MEMBER(name) __typeof__(name) *name;
    BLASLT_FUNCTIONS(BLASLT_MEMBER)
#undef BLASLT_MEMBER
};

#define BLASLT_TEXT_OF(macro) #macro
#define BLASLT_TEXT(macro)    BLASLT_TEXT_OF(macro)
#define BLASLT_SONAME         "libcublasLt.so." BLASLT_TEXT(CUBLAS_VER_MAJOR)

/* 0; -ENOENT where it is not found, -ENODEV where it cannot be used, with *failure
   (HST_DEV_LIBRARY) written. */
int blaslt_open(struct blaslt_library *library, struct hst_dev_failure *failure);
void blaslt_close(struct blaslt_library *library);

/* One per device. Errors: blaslt_open's, -ENOMEM. */
struct blaslt;
int blaslt_create(unsigned compute_major, struct blaslt **blaslt, struct hst_dev_failure *failure);
void blaslt_destroy(struct blaslt **blaslt);
/* "cuBLASLt 13.1.0" */
void blaslt_version(const struct blaslt *blaslt, char *text, size_t size);
/* The file that it was loaded from. */
const char *blaslt_file(const struct blaslt *blaslt);

/* For the table (matmul.c). */
int blaslt_matmul(struct hst_stream *stream, const struct hst_matmul *args);
size_t blaslt_work_bytes(struct hst_dev *dev, const struct hst_matmul *args);

#endif
