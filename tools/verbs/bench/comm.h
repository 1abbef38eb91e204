/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_COMM_VERB_H
#define HOISTWAY_TOOLS_BENCH_COMM_VERB_H

/** hoistway bench comm; argv holds what follows it. Returns the exit code. */
int bench_verb_comm(int argc, char **argv);

#endif
