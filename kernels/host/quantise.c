/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised values on the calling thread: the host device's operations, without its streams. */
#include "host.h"

void host_quantise(const struct hst_quantise *args)
{
    struct host_dev alone = {.math = host_math_usable()[0]}; /* no workers: this thread */
    alone.math->quantise(&alone, args);
}

void host_dequantise(const struct hst_dequantise *args)
{
    struct host_dev alone = {.math = host_math_usable()[0]};
    alone.math->dequantise(&alone, args);
}
