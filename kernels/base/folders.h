/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_FOLDERS_H
#define HST_KERNELS_FOLDERS_H
/* A library is looked for in one folder after another, by the rules that hold for all of them. */
#include <limits.h>
#include <stdbool.h>

/* The file wanted, and in words where it was looked for. */
struct dev_search {
    const char *file;
    char path[PATH_MAX]; /* of the file, once found */
    char places[320];
};

/* Adds to the words; what does not fit is cut. */
__attribute__((format(printf, 2, 3))) void dev_search_tell(struct dev_search *search,
                                                           const char *format, ...);
/* It tells whether the folder, given as printf has it, has the file: its path is written then. */
__attribute__((format(printf, 2, 3))) bool dev_search_in(struct dev_search *search,
                                                         const char *format, ...);
/*
 * The first folder of a list with colons between them that has the file. Those that are not
 * absolute are passed over: what they name depends on where a program was started. `tell`: each
 * folder without the file is added to the words.
 */
bool dev_search_list(struct dev_search *search, const char *folders, bool tell);

#endif
