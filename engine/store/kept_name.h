/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_KEPT_NAME_H
#define HOISTWAY_ENGINE_STORE_KEPT_NAME_H
/*
 * Names of the kept copies that may lie beside a store's files. What is in them is ckpt/'s.
 *
 *   DIRECTORY[d]/step-120       the copy of the version of that step
 *   DIRECTORY[d]/step-120.new   while it is made or removed
 */
#include <stdbool.h>
#include <stdint.h>

#define KEPT_NAME_BYTES 32u

void kept_name(uint64_t step, char name[KEPT_NAME_BYTES]);
void kept_forming_name(uint64_t step, char name[KEPT_NAME_BYTES]);
/** False where it is no such name. */
bool kept_parse(const char *name, uint64_t *step);
bool kept_is_forming(const char *name);

#endif
