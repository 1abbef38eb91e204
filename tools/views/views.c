/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which view gets what, and which failure is told: the first. */
#include "views/views.h"

#include <errno.h>
#include <string.h>

int views_check(const struct views_paths *paths, struct hst_error *error)
{
    int native = csv_check(paths->csv, error);
    native = native ? native : tfevents_check(paths->tfevents, error);
    return native ? native : html_check(paths->html, error);
}

int views_open(struct views *views, const struct views_paths *paths, struct hst_error *error)
{
    struct hst_error ignored;
    *views = (struct views){.native = 0};
    int native = csv_open(&views->csv, paths->csv, error);
    native = native ? native : tfevents_open(&views->tfevents, paths->tfevents, error);
    native = native ? native : html_open(&views->page, paths->html, error);
    if (!native)
        return 0;
    (void)csv_close(&views->csv, &ignored);
    (void)tfevents_close(&views->tfevents, &ignored);
    html_close(&views->page);
    return native;
}

static void note(struct views *views, int native, const struct hst_error *error)
{
    if (!native || views->native)
        return;
    views->native = native;
    views->error = *error;
}

void views_take(void *context, const char *line, size_t bytes)
{
    struct views *views = context;
    struct hst_error error = {0};
    const struct record record = record_of(line, bytes);
    facts_take(&views->facts, &record);
    note(views, csv_take(&views->csv, &record, views->live, &error), &error);
    note(views, tfevents_take(&views->tfevents, &record, &views->facts, views->live, &error),
         &error);
    html_take(&views->page, &record);
}

int views_read(struct views *views, const char *log, struct hst_error *error)
{
    FILE *file = fopen(log, "re");
    if (!file)
        return fail(error, FAIL_DATA_FILE, -errno, "%.250s cannot be opened: %s. Fix: check it.",
                    log, strerror(errno));
    record_read(file, views_take, views);
    const bool failed = ferror(file);
    fclose(file);
    return failed ? fail(error, FAIL_READ, -EIO,
                         "%.250s cannot be read. Fix: see dmesg for its drive.", log)
                  : 0;
}

void views_show(struct views *views)
{
    struct hst_error error = {0};
    note(views, html_write(&views->page, &views->facts, &error), &error);
}

int views_close(struct views *views, struct hst_error *error)
{
    struct hst_error own = {0};
    views_show(views);
    html_close(&views->page);
    note(views, csv_close(&views->csv, &own), &own);
    note(views, tfevents_close(&views->tfevents, &own), &own);
    const int native = views->native;
    if (native)
        *error = views->error;
    views->native = 0;
    return native;
}
