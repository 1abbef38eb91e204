/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_PAGE_H
#define HOISTWAY_TOOLS_VIEWS_PAGE_H
/*
 * --html: one page of a run, with all that it needs in itself: no script, nothing from elsewhere.
 * All functions do nothing without a path.
 */
#include "base/fail.h"
#include "views/facts.h"
#include "views/history.h"

struct page {
    const char *path; /* borrowed */
    FILE *file;
    struct history *history; /* own */
};

/** As run_log_check. */
int html_check(const char *path, struct hst_error *error);
/** Replaces an earlier one. E107, E302 without memory. */
int html_open(struct page *page, const char *path, struct hst_error *error);
void html_take(struct page *page, const struct record *record);
/** Writes the page of what was taken so far, whole. E107; the file is closed then. */
int html_write(struct page *page, const struct facts *facts, struct hst_error *error);
void html_close(struct page *page);

#endif
