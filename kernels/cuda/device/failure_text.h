/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_FAILURE_TEXT_H
#define HST_CUDA_FAILURE_TEXT_H
/* The story of a failure as one line; it needs nothing of CUDA's. */
#include <hoistway/kernels.h>
#include <stdarg.h>

/* Writes *failure (may be null): one line without control characters, cut to fit. */
__attribute__((format(printf, 4, 5))) void cuda_failure_set(struct hst_dev_failure *failure,
                                                            enum hst_dev_why why, int native,
                                                            const char *format, ...);
/* The same of a list of arguments; failure is not null. */
__attribute__((format(printf, 4, 0))) void cuda_failure_vset(struct hst_dev_failure *failure,
                                                             enum hst_dev_why why, int native,
                                                             const char *format, va_list args);

#endif
