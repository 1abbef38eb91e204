/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_SITE_H
#define HOISTWAY_ENGINE_STORE_SITE_H
/*
 * The directories that --store names, looked at before anything is made: a plan, a run and who only
 * asks get the same answer. Nothing here changes anything. All functions fill *error where they
 * fail.
 */
#include "store/files.h"

#include <hoistway/hoistway.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct store_site {
    const char *path; /* as the user named it; borrowed */
    bool there;       /* else it can be made in `parent` */
    char parent[PATH_MAX];
    dev_t file_system; /* that it is on, or will be */
    ino_t inode;       /* where it is there */
};

/**
 * Fills in all but the paths. Errors: -EINVAL one is named twice; -EEXIST one would be in another
 * one, or in a store; those of stat(2) and access(2), -ENOTDIR: it is there and cannot be used, or
 * cannot be made.
 */
int store_sites_look(struct store_site *sites, uint32_t count, struct hst_error *error);
/**
 * Then: whether these directories are a store's, or can become one's.
 * Errors: those of store_directory_open and store_directories_check.
 */
int store_sites_check(const struct store_site *sites, uint32_t count, uint32_t rank,
                      enum store_expected expected, struct hst_error *error);

#endif
