/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_OPTIONS_PATH_H
#define HOISTWAY_TOOLS_CLI_OPTIONS_PATH_H
/* This header tells where a path leads. */
#include <stdbool.h>

/**
 * It tells whether a path is a directory or something in it, links followed. Neither need exist,
 * but the directory that holds it has to: what cannot be followed is in nothing.
 */
bool path_is_in(const char *path, const char *directory);

#endif
