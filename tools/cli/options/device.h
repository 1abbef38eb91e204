/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_OPTIONS_DEVICE_H
#define HOISTWAY_TOOLS_CLI_OPTIONS_DEVICE_H
/* Which device a verb computes on where the user named none; what is told of one that cannot be
 * used. */
#include "base/fail.h"

#include <hoistway/kernels.h>
#include <stdbool.h>

struct device_choice {
    const char *name; /* of hst_dev_open; static, the user's own, or `indexed` */
    char indexed[24];
    bool gpu;         /* not the host */
    bool warn;        /* a GPU is there, but cannot be used */
    char why[512];    /* why the host was chosen; "" where the user named it */
};

/**
 * wish null: a GPU where it answers, else the host. A name is taken as it is.
 * local   of several ranks of a node, which have a GPU each: the number of the one that is meant by
 *         null and by "cuda"; else 0
 * Ownership: *choice stays where it is while its name is used.
 */
void device_choose(const char *wish, unsigned local, struct device_choice *choice);

/** True where nothing is wrong: a machine without a GPU, or a build without its plugin. */
bool device_absent(enum hst_dev_why why);
/** A device that did not open, as an error with its fix (E201). Returns native. */
int device_refused(const char *name, int native, const struct hst_dev_failure *failure,
                   struct hst_error *error);
#endif
