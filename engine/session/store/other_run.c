/* SPDX-License-Identifier: Apache-2.0 */
/* This file tells how a store is of another run than this one, with all differences at once; and
 * what a run that goes on has from it where it was not told. */
#include "session/store/other_run.h"
#include "ckpt/ckpt.h"
#include "ckpt/version_text.h"
#include "session/ranks/ranks.h"
#include "session/store/shares.h"
#include "store/look.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lines of the settings that are no options, to be given as they were. */
static bool is_option(const char *line)
{
    return strncmp(line, "tile-elements ", 14) != 0 && strncmp(line, "parameters ", 11) != 0 &&
           strncmp(line, "norm ", 5) != 0 && strncmp(line, "rounding ", 9) != 0 &&
           strncmp(line, "frozen ", 7) != 0;
}

/* The line that begins with the same word; null. */
static const char *find_line(const char *text, const char *like)
{
    const size_t word = strcspn(like, " \n") + 1;
    for (; *text; text += strcspn(text, "\n") + 1)
        if (strncmp(text, like, word) == 0)
            return text;
    return NULL;
}

static bool is_in(const char *text, const char *line)
{
    const char *same = find_line(text, line);
    return same && strncmp(same, line, strcspn(line, "\n") + 1) == 0;
}

struct lines {
    char text[200];
    int bytes;
};

static void add(struct lines *lines, const char *before, const char *line)
{
    const int room = (int)sizeof lines->text - lines->bytes;
    const int n = snprintf(lines->text + lines->bytes, (size_t)room, "%s%.*s", before,
                           (int)strcspn(line, "\n"), line);
    lines->bytes += n < room ? n : room - 1;
}

/* The digest of parameters depends on tiles: of as many, in other tiles, it tells nothing. */
static bool follows_from_tiles(const char *line, const char *other)
{
    const char *same = find_line(other, line);
    return strncmp(line, "parameters ", 11) == 0 && same &&
           strcspn(line, "(") == strcspn(same, "(") && strncmp(line, same, strcspn(line, "(")) == 0;
}

/* Which tensors are frozen follows from globs that are told. */
static bool follows_from_globs(const char *line, const char *of, const char *other)
{
    static const char *const globs[] = {"freeze ", "train-only "};
    bool told = false;
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++) {
        const char *was = find_line(of, globs[i]), *is = find_line(other, globs[i]);
        told = told || (was ? !is_in(other, was) : is != NULL);
    }
    return told && strncmp(line, "frozen ", 7) == 0;
}

/* It lists those of `of` that `other` has not got, and tells whether all are options. */
static bool list(const char *of, const char *other, const char *first, const char *between,
                 struct lines *lines)
{
    bool options = true;
    /* the batch first: the default of the micro-batch follows from it */
    const char *batch = find_line(of, "batch-tokens "), *tiles = find_line(of, "tile-elements ");
    const bool other_tiles = tiles && !is_in(other, tiles);
    if (batch && !is_in(other, batch))
        add(lines, first, batch);
    for (const char *line = of; *line; line += strcspn(line, "\n") + 1) {
        if (line == batch || is_in(other, line) || follows_from_globs(line, of, other) ||
            (other_tiles && follows_from_tiles(line, other)))
            continue;
        add(lines, lines->bytes ? between : first, line);
        options = options && is_option(line);
    }
    return options;
}

static int refuse(struct hst_engine *engine, const char *settings_then, const char *settings_now)
{
    char was[VERSION_SETTINGS_BYTES], is[VERSION_SETTINGS_BYTES];
    version_settings_name_unsaid(settings_then, was);
    version_settings_name_unsaid(settings_now, is);
    struct lines then = {.bytes = 0}, now = {.bytes = 0}, fix = {.bytes = 0};
    bool options = list(was, is, "", ", ", &then);
    options = list(is, was, "", ", ", &now) && options;
    (void)list(was, is, "--", " --", &fix);
    return report_fail(&engine->report, HST_E_STORE_OTHER, -EINVAL,
                       "the store was trained with %s, this run has %s. Fix: %s, or another "
                       "--store",
                       then.bytes ? then.text : "less", now.bytes ? now.text : "less",
                       options && fix.bytes ? fix.text : "the model and options of that run");
}

int other_run_refuse(struct hst_engine *engine, const char *was, const char *is)
{
    return strcmp(was, is) == 0 ? 0 : refuse(engine, was, is);
}

/* The version that the store holds says this: its settings, and as much of the client's cursor as
 * there is room for. */
struct said {
    char settings[VERSION_SETTINGS_BYTES];
    void *cursor; /* null: it is not wanted */
    size_t room_bytes, cursor_bytes;
};

static bool said_by(const struct store_set *set, struct said *said)
{
    struct version_text text;
    struct hst_error ignored;
    bool known = false;
    struct look *look = calloc(1, sizeof *look);
    if (!look)
        return false;
    int rc = look_open_set(set, false, look, &ignored);
    const struct store_candidate *last =
        rc ? NULL : store_choose_version(&look->candidates, 1, STORE_NO_VERSION);
    if (last && look_load(look, last, &ignored) == 0 &&
        version_text_split(&look->about.cursor, &text) &&
        text.settings_bytes < VERSION_SETTINGS_BYTES) {
        char math[HST_DEV_MATH_BYTES];
        const size_t bytes =
            text.cursor_bytes < said->room_bytes ? text.cursor_bytes : said->room_bytes;
        memcpy(said->settings, text.settings, text.settings_bytes);
        said->settings[text.settings_bytes] = '\0';
        version_math_take(said->settings, math, sizeof math);
        if (said->cursor && bytes > 0)
            memcpy(said->cursor, text.cursor, bytes);
        said->cursor_bytes = text.cursor_bytes;
        known = true;
    }
    look_close(look);
    free(look);
    return known;
}

int other_run_explain(struct hst_engine *engine, int rc)
{
    struct store_directory directories[STRIPE_DRIVES_MAX];
    struct said said = {.cursor = NULL};
    const char *was = said.settings;
    char is[VERSION_SETTINGS_BYTES];
    struct hst_error ignored;
    bool open = engine->drive_count > 0;
    uint64_t digest;
    if (!engine->plan_in.stored || engine->config.plan ||
        (engine->report.error.code != HST_E_BUDGET &&
         engine->report.error.code != HST_E_DISK_SPACE))
        return rc;
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        directories[d] = (struct store_directory){.fd = -1};
    for (uint32_t d = 0; d < engine->drive_count && open; d++)
        open = engine->drives[d].path &&
               store_directory_open(engine->drives[d].path, &directories[d], &ignored) == 0;
    const struct store_set set = {
        .directories = directories, .drives = engine->drive_count, .number = engine->ranks.rank};
    open = open && said_by(&set, &said);
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        store_directory_close(&directories[d]);
    if (!open || !version_settings_digest(was, &digest) || digest == layout_digest(&engine->layout))
        return rc;
    version_settings_write(&engine->config, &engine->layout, is, sizeof is);
    (void)version_settings_take_news(was, is);
    const char *tiles = find_line(was, "tile-elements ");
    if (!tiles || !is_in(is, tiles)) /* in others every digest is another */
        return rc;
    engine->report.error = (struct hst_error){0};
    return refuse(engine, was, is);
}

/* It is of one rank's files, under the names that they have. */
static bool said_by_share(const struct shares *shares, uint32_t nth, struct said *said)
{
    struct share_directories directories;
    struct hst_error ignored;
    const struct share_found *found = &shares->own[nth];
    bool known = share_directories_open(shares, nth, &directories, &ignored) == 0;
    const struct store_set set = {.directories = directories.list,
                                  .drives = directories.drives,
                                  .number = found->rank,
                                  .forming = found->forming};
    known = known && said_by(&set, said);
    share_directories_close(&directories);
    return known;
}

/* The files of any rank that are found say it. */
static bool said_by_store(const char *store, const struct hst_store_place *place, struct said *said)
{
    struct shares shares = {.replicas = UINT32_MAX}; /* their names alone tell files apart */
    bool known = false;
    const bool listed = shares_list(&shares, store, place) == 0;
    for (unsigned forming = 0; forming < 2; forming++)
        for (uint32_t i = 0; i < shares.count && listed && !known; i++)
            if (shares.own[i].forming == forming)
                known = said_by_share(&shares, i, said);
    shares_free(&shares);
    return known;
}

uint32_t hst_store_ways(const char *store, const struct hst_store_place *place)
{
    struct said said = {.cursor = NULL};
    return said_by_store(store, place, &said) ? version_settings_ways(said.settings) : 0;
}

bool hst_store_cursor(const char *store, const struct hst_store_place *place, void *cursor,
                      size_t capacity, size_t *cursor_bytes)
{
    struct said said = {.cursor = cursor, .room_bytes = capacity};
    const bool known = said_by_store(store, place, &said);
    *cursor_bytes = known ? said.cursor_bytes : 0;
    return known;
}

/* The same in the mean, and so no other training: the run goes on. */
void other_run_tell_news(struct hst_engine *engine, unsigned news)
{
    if (news & VERSION_NEWS_NORM && engine->config.clip > 0 && ranks_tells(engine))
        report_log(&engine->report, HST_LOG_INFO,
                   "I622 the store does not say that norms of gradients were exact sums, as they "
                   "are now: what is clipped (--clip) from here on may differ in its last bits "
                   "from what the hoistway that wrote the store would make of it");
    if (news & VERSION_NEWS_ROUNDING && ranks_tells(engine))
        report_log(
            &engine->report, HST_LOG_WARNING,
            "W622 the store was trained when the rounding of moments to bf16 (--state bf16) did "
            "not depend on where an element is: from here on it does, so equal weights are "
            "rounded independently, and bits are not those of the hoistway that wrote the store");
}

/* Other bits are no reason to stop, but one to say so: the run is not that which an uninterrupted
   one would have been. Versions of before say nothing. Ranks have the same products, so that one
   of them tells. */
void other_run_tell_math(struct hst_engine *engine, const char *was)
{
    const char *is = engine->math;
    if (!*was || hst_dev_math_equal(was, is) || !ranks_tells(engine))
        return;
    version_math_differ(&was, &is);
    bool host = hst_dev_flags(engine->dev) & HST_DEV_HOST_MEMORY;
    report_log(&engine->report, HST_LOG_WARNING,
               "W624 results depend on '%.160s' now, on '%.160s' when the store was trained: from "
               "here on they are not the bits of a run without an interruption. Fix: where that "
               "matters, the machine and libraries of before%s",
               is, was, host ? ", or a --host-math of docs/errors.md" : ", and its --hbm");
}
