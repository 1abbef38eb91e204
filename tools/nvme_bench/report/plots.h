/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_REPORT_PLOTS_H
#define HOISTWAY_TOOLS_NVME_BENCH_REPORT_PLOTS_H
#include "nvme_bench/result.h"

#include <stdio.h>

/** The plots of a drive, as inline SVG in a <div class="plots">. */
void nb_plots(const struct nb_result *result, uint32_t drive, FILE *out);
#endif
