/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_PLAN_ASKED_H
#define HOISTWAY_TOOLS_VERBS_PLAN_ASKED_H
/* This reads what is asked of a plan: its options, of the command line and of files, and which go
   together. */
#include "cli/options/options.h"
#include "verbs/machines.h"
#include "verbs/train/train.h"

struct plan_options {
    struct train_options train;
    const char *rates, *save_rates, *html, *paper, *compare, *machine;
    struct machine machine_is;      /* that `machine` names; no name: this one */
    bool elsewhere;                 /* budgets are as given, whatever this machine has */
    struct hst_dev_planned planned; /* its GPU, where one computes */
    bool probe, json;
    uint32_t world, nodes, gpus; /* gpus: world by another name */
    struct hst_launch launch; /* of a plan of several ranks */
    const char *net_rates;
    uint64_t net_node, net_between; /* bytes/s */
    double net_latency;             /* µs */
    uint64_t tokens;
    int accounting; /* enum plan_accounting */
    double tbw;
};

struct plan_asked {
    struct plan_options *options;
    const struct cli_verb *verb; /* of plan_parse, while it runs */
    const char *file; /* that --compare names; null: one plan */
    bool json;        /* of both plans, on the command line */
};

/**
 * Reads the command line, and the files that it names; asked->options begins as zeroes. *help:
 * that, or another answer, was printed. Errors: those of cli_parse and of files of options; E402
 * of ranks, of what goes not with --paper, of what a file of --compare may not have.
 */
int plan_parse(struct plan_asked *asked, int argc, char *const *argv, bool *help,
               struct hst_error *error);

#endif
