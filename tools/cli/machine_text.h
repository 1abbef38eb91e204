/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MACHINE_TEXT_H
#define HOISTWAY_TOOLS_CLI_MACHINE_TEXT_H
/*
 * Machines as text that people write: how large they are, how fast, and where each figure is from.
 * docs/machines/README.md says what stands in one.
 */
#include <hoistway/machine.h>

#define MACHINE_BEGINS     "hoistway machine 1\n"
#define MACHINE_TEXT_BYTES ((size_t)64 << 10) /* no text is longer */
#define MACHINE_WORD       48u
#define MACHINE_LINE       200u

struct machine {
    char name[MACHINE_WORD], about[MACHINE_LINE];
    char date[MACHINE_WORD];                   /* "2026-11-27" */
    uint32_t gpus, compute_major, drives;      /* of a node; gpus 0: the host computes */
    uint32_t nics;                             /* of a node, to other nodes; 0: not known */
    uint64_t hbm_bytes;                        /* of a GPU */
    uint64_t dram_bytes, nvme_bytes;           /* of a node */
    uint32_t sources;                          /* lines that name one */
    struct hst_rates rates; /* figures that are assumed have no time, and `how` begins so */
};

struct machine_fault {
    uint32_t line, column; /* from 1, in bytes */
    char why[200];         /* "two lines of 'dram'" */
};

/** It tells whether text begins as a machine does. Pure. */
bool machine_begins(const char *text);
/** It tells whether a figure is assumed: nobody measured it on such a machine. Pure. */
bool machine_assumes(const struct hst_figure *figure);
/**
 * Reads a text of `bytes` bytes, NUL-terminated. -EBADMSG with *fault, *machine being undefined.
 * Pure.
 */
int machine_parse(const char *text, size_t bytes, struct machine *machine,
                  struct machine_fault *fault);

#endif
