/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_ENGINE_PLACEMENT_CHECKS_H
#define TESTS_ENGINE_PLACEMENT_CHECKS_H
/* A model to place, and what must hold of every placement. Checks fail the test. */
#include "plan/placement/placement.h"

#define UNITS 6u

/** An embedding, four layers, a head tied to the embedding. */
struct layout model(uint32_t tile_elements);
/** A unit for each number of rows of 4096 elements, with a checkpoint. */
struct layout model_of_rows(const uint32_t *rows, uint32_t units, uint32_t tile_elements);
/** On the host, in fp32, with a GiB of each tier. place: null, or as --place says it. */
struct placement_in inputs(const struct layout *layout, const char *place);

/** The size of a refusal that "needs" it, as a user would type it; 0: none is named. */
uint64_t named_budget(const char *why);
/** Every address of one tier, none overlapping another, all inside the tier's total. */
void check_addresses(const struct placement_in *in, const struct placement *p, enum hst_tier tier);
/** Every extent on NVMe has a place of its own in its drive's file, which ends with the last. */
void check_drives(const struct placement_in *in, const struct placement *p);
/** The table's sums are the arenas and the files. */
void check_table(const struct placement *p);

#endif
