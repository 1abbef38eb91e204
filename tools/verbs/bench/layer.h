/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_LAYER_VERB_H
#define HOISTWAY_TOOLS_BENCH_LAYER_VERB_H

/** hoistway bench layer; argv holds what follows it. Returns the exit code. */
int bench_verb_layer(int argc, char **argv);

#endif
