/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a failure, for who looks for NVIDIA's libraries with or without a device. */
#include "failure_text.h"

#include <stdio.h>

void cuda_failure_vset(struct hst_dev_failure *failure, enum hst_dev_why why, int native,
                       const char *format, va_list args)
{
    *failure = (struct hst_dev_failure){.why = why, .native = native};
    vsnprintf(failure->text, sizeof failure->text, format, args);
    for (char *c = failure->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

void cuda_failure_set(struct hst_dev_failure *failure, enum hst_dev_why why, int native,
                      const char *format, ...)
{
    if (!failure)
        return;
    va_list args;
    va_start(args, format);
    cuda_failure_vset(failure, why, native, format, args);
    va_end(args);
}
