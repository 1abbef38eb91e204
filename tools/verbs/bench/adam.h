/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_ADAM_VERB_H
#define HOISTWAY_TOOLS_BENCH_ADAM_VERB_H

/** hoistway bench adam; argv holds what follows it. Returns the exit code. */
int bench_verb_adam(int argc, char **argv);

#endif
