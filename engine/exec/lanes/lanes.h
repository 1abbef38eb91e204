/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_LANES_LANES_H
#define HOISTWAY_ENGINE_EXEC_LANES_LANES_H
/*
 * It tells how nodes of a lane are begun, and how they are seen to end: one table for each lane.
 * Which node may start is the scheduler's (plan/graph/scheduler.h).
 *
 * To add one: a file here that fills the table, a row in lanes.c, and in loop.c its place in the
 * orders, whether it is busy (is_busy) and what waiting for it is called (stall_of).
 */
#include "exec/executor.h"

/** For lane_ops.wait: until something has ended. */
#define LANE_WAIT_LONG UINT64_MAX

/** All return the sticky error. *moved is set where any node was started, or is done. */
struct lane_ops {
    /** Starts the lane's next nodes as long as they may start and there is room for them; of a lane
     * whose nodes this thread does itself, one, which is done then. */
    int (*start)(struct executor *exec, enum lane lane, bool *moved);
    /** Ends what is seen to be done, without waiting. Null: a started node is done at once, or is
     * seen to be with another lane's. */
    int (*poll)(struct executor *exec, enum lane lane, bool *moved);
    /** Waits until something of what is under way has ended; for wait_ns at most where `timed`.
     * Null: see poll. */
    int (*wait)(struct executor *exec, enum lane lane, uint64_t wait_ns);
    /** True where wait has something to wait for. */
    bool (*is_under_way)(const struct executor *exec, enum lane lane);
    /** fds ← [room], of which one polls readable when something of what is under way may have
     * ended. Returns how many there are; negative: it has none, and is looked at instead. */
    int (*descriptors)(struct executor *exec, enum lane lane, int *fds, uint32_t room);
    /** wait can be short, so that others are looked at meanwhile. */
    bool timed;
};

/** The table of a lane; all null where it has no nodes yet. */
const struct lane_ops *lane_ops(enum lane lane);

/* lanes/drives.c: READ and WRITE share what is under way, and are polled and waited for as READ */
int drives_open(struct executor *exec);
void drives_close(struct executor *exec);
int drives_start(struct executor *exec, enum lane lane, bool *moved);
int drives_poll(struct executor *exec, enum lane lane, bool *moved);
int drives_wait(struct executor *exec, enum lane lane, uint64_t wait_ns);
bool drives_under_way(const struct executor *exec, enum lane lane);
int drives_descriptors(struct executor *exec, enum lane lane, int *fds, uint32_t room);

/* lanes/net.c: in the order in which they were begun */
int net_start(struct executor *exec, enum lane lane, bool *moved);
int net_poll(struct executor *exec, enum lane lane, bool *moved);
int net_wait(struct executor *exec, enum lane lane, uint64_t wait_ns);
bool net_under_way(const struct executor *exec, enum lane lane);
int net_descriptors(struct executor *exec, enum lane lane, int *fds, uint32_t room);
/** An end of the loop: all that ranks do together up to the visit at hand is done. */
bool net_is_even(struct executor *exec);

/* lanes/device.c: H2D, D2H and COMPUTE end in the order in which they were enqueued */
int device_start_copies(struct executor *exec, enum lane lane, bool *moved);
int device_start_updates(struct executor *exec, enum lane lane, bool *moved);
int device_poll(struct executor *exec, enum lane lane, bool *moved);
int device_wait(struct executor *exec, enum lane lane, uint64_t wait_ns);
bool device_under_way(const struct executor *exec, enum lane lane);
int device_descriptors(struct executor *exec, enum lane lane, int *fds, uint32_t room);

/* lanes/host.c: UPDATE */
int host_start(struct executor *exec, enum lane lane, bool *moved);
/** The norm is known, of a started CLIP or of a step without one: the update's factor, and what the
 * step window behind has to do. */
int host_clip(struct executor *exec);
/** The step window behind the one at hand is run with these. */
unsigned host_phases_behind(const struct executor *exec);

#endif
