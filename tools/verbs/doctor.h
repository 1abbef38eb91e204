/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DOCTOR_H
#define HOISTWAY_TOOLS_DOCTOR_H
/* What the checks of `hoistway doctor` report to. */
#include <hoistway/machine.h>
#include <stdbool.h>
#include <stddef.h>

enum status { STATUS_OK, STATUS_WARN, STATUS_FAIL };

struct doctor_check {
    char name[24];
    enum status status;
    char found[512];
    const char *fix; /* null: nothing to do */
};

#define DOCTOR_MAX_CHECKS 64u
#define DOCTOR_MAX_GPUS   8u /* five rows each */

struct doctor {
    const char *store;
    bool json;
    struct doctor_check checks[DOCTOR_MAX_CHECKS];
    size_t count;
    char store_rung[64]; /* empty: the store can not be used */
    char gpu[128];       /* the first GPU that can be used; empty: none */
    struct hst_topology machine; /* zeroed where it can not be told */
};

void doctor_report(struct doctor *d, const char *name, enum status status, const char *fix,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/** doctor_gpu.c: each GPU with its memory, libraries, link, copies and distance. */
void doctor_check_gpus(struct doctor *d);

#endif
