/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_OPTIONS_LAUNCH_H
#define HOISTWAY_TOOLS_CLI_OPTIONS_LAUNCH_H
/* Who this process is among those that a launcher has started together. */
#include "base/fail.h"

#include <hoistway/ranks.h>

#include <signal.h>

/**
 * Of a verb that may be one of several ranks: reads which. Refuses a world that no transport
 * carries, launchers that contradict each other, and flags of which one is missing. E501;
 * rank 0 alone tells what is so on all of them (voice_all_alike).
 * Variables that are half set are nobody's: such a process is alone.
 */
int launch_read(const struct hst_launch_flags *flags, struct hst_launch *launch,
                struct hst_error *error);
/** The same, of a verb whose ranks NCCL may join, where torchrun or --rendezvous tells where they
 * meet. */
int launch_read_joined(const struct hst_launch_flags *flags, struct hst_launch *launch,
                       struct hst_error *error);
/**
 * Refuses several ranks that MPI does not know of: they have no GPUs. E501.
 * own: why this rank has none, which it tells itself; "" where all are on the host alike
 */
int launch_needs_mpi(const struct hst_launch *launch, const char *own, struct hst_error *error);
/**
 * Before a verb that ranks run together reads its command line: what is wrong with that is told
 * once (cli/message/voice.h). It knows what the environment says, and so not --rank. ended: as
 * there.
 */
void launch_speak(const volatile sig_atomic_t *ended);
#endif
