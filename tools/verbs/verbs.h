/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_H
#define HOISTWAY_TOOLS_VERBS_H
/* The verbs of the program. argv holds what follows the verb; each returns the exit code. */

int verb_plan(int argc, char **argv);
int verb_prep(int argc, char **argv);
int verb_watch(int argc, char **argv);
int verb_convert(int argc, char **argv);
int verb_train(int argc, char **argv);
int verb_demo(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_inspect(int argc, char **argv);
int verb_ckpt(int argc, char **argv);
int verb_explain(int argc, char **argv);

#endif
