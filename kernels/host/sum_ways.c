/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of ways on the calling thread: the host device's operation, without its streams. */
#include "host.h"

void host_sum_ways(const struct hst_sum_ways *args)
{
    struct host_dev alone = {.math = host_math_usable()[0]}; /* no workers: this thread */
    alone.math->sum_ways(&alone, args);
}
