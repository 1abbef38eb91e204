/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/lanes/lanes.h"

static const struct lane_ops LANE_OPS[LANE_COUNT] = {
    [LANE_READ] = {drives_start, drives_poll, drives_wait, drives_under_way, drives_descriptors,
                   .timed = true},
    [LANE_WRITE] = {.start = drives_start},
    [LANE_H2D] = {device_start_copies, device_poll, device_wait, device_under_way,
                  device_descriptors},
    [LANE_D2H] = {device_start_copies, device_poll, device_wait, device_under_way,
                  device_descriptors},
    [LANE_NET] = {net_start, net_poll, net_wait, net_under_way, net_descriptors},
    [LANE_COMPUTE] = {device_start_updates, device_poll, device_wait, device_under_way,
                      device_descriptors},
    [LANE_UPDATE] = {.start = host_start},
    [LANE_DEVICE_UPDATE] = {device_start_updates, device_poll, device_wait, device_under_way,
                            device_descriptors},
};

const struct lane_ops *lane_ops(enum lane lane)
{
    return &LANE_OPS[lane];
}
