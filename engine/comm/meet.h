/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_MEET_H
#define HOISTWAY_ENGINE_COMM_MEET_H
#include <hoistway/ranks.h>

enum { MEET_WHY_BYTES = 200 };

/**
 * What --rendezvous says of a launch that was read: its `meet`, or its `folder` and `file`, are
 * written, and that MPI does not join its ranks. by_mpi: the launcher of MPI that has started this
 * process, or null. Pure but for the getter. Errors: -EINVAL with why [MEET_WHY_BYTES] written.
 */
int meet_read(const char *said, const char *by_mpi, hst_getenv_fn *get, struct hst_launch *launch,
              char *why);
#endif
