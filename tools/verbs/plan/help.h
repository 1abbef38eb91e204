/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_PLAN_HELP_H
#define HOISTWAY_TOOLS_VERBS_PLAN_HELP_H
/* This finds what would make a step faster: other machines and other options, planned anew and
   simulated. */
#include <hoistway/machine.h>
#include <stdbool.h>
#include <stdint.h>

struct plan;
struct hst_error;

#define PLAN_HELPS 6u
/** The part of a step that is computation, from which on more tokens a step are not looked for. */
#define PLAN_FULL 0.9

struct plan_help {
    /* "drive", "nic", "dram", "state" (bf16), "state_8bit", "tokens"; static */
    const char *what;
    uint64_t amount;       /* drives, NICs, bytes of DRAM (a node's), 0, tokens of a step */
    double step_s;         /* of a step then */
    double times;          /* as many tokens a second as now */
    double compute_share;  /* of that step */
};

/**
 * Fills p->helps of a plan that fits and is predicted, with p->full_tokens and p->tried_tokens.
 * Whatever cannot help is not tried: drives or a network that a step does not wait for, states
 * where it waits for nothing but computation. What does not fit, or gains less than 2 % or than
 * such a plan of what was asked for is off, is left out.
 * Errors: -ENOMEM, with *error.   Cost: a rough plan each, some 50 ms, of up to seven at once: each
 * has a thread, an engine and its workers.
 */
int plan_find_help(struct plan *p, struct hst_error *error);

/** It tells whether another NIC in each node would help, but for the machine, of which nobody said
 * how many it has. */
bool plan_lacks_nics(const struct plan *p);

/** Drives of a node: those of the store, or of the rates; at least 1. */
uint32_t plan_drives(const struct plan *p);

#endif
