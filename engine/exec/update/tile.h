/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_UPDATE_TILE_H
#define HOISTWAY_ENGINE_EXEC_UPDATE_TILE_H
#include "exec/tile_job.h"

/** This is where the update of a started node finds a tile's parts, and where it puts them. */
struct tile_job update_tile_job(const struct executor *exec, struct scheduled at, uint32_t tile);

#endif
