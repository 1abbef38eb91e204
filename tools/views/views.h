/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_VIEWS_H
#define HOISTWAY_TOOLS_VIEWS_VIEWS_H
/*
 * The views of a run: csv, events of TensorBoard, a page. They are made of the lines of its log, as
 * these are written or from a log that is there: the same bytes, but for a run's last second.
 */
#include "views/csv.h"
#include "views/page.h"
#include "views/tfevents.h"

struct views_paths {
    const char *csv, *tfevents, *html; /* null: none */
};

struct views {
    struct facts facts;
    struct csv csv;
    struct tfevents tfevents;
    struct page page;
    bool live; /* a row is in its file before the next step begins */
    /* The first failure: the view that failed is closed, the others go on. */
    int native;
    struct hst_error error;
};

/** Refuses what cannot be written or is something else: writes nothing. E107. */
int views_check(const struct views_paths *paths, struct hst_error *error);
/** Replaces earlier ones. After an error nothing is open. */
int views_open(struct views *views, const struct views_paths *paths, struct hst_error *error);
/** It takes one line of a log; of an odd line null. Failures: views->native. */
void views_take(void *context, const char *line, size_t bytes);
/** All lines that a log has so far. E106 and E420 where it cannot be read. */
int views_read(struct views *views, const char *log, struct hst_error *error);
/** Writes the page as the run stands. */
void views_show(struct views *views);
/** Writes the page, closes all. Returns the first failure of all, with *error; 0 a second time. */
int views_close(struct views *views, struct hst_error *error);

#endif
