/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_KERNELS_VERB_H
#define HOISTWAY_TOOLS_BENCH_KERNELS_VERB_H

/** hoistway bench kernels; argv holds what follows it. Returns the exit code. */
int bench_verb_kernels(int argc, char **argv);

#endif
