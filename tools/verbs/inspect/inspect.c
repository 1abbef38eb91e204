/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hoistway inspect: tells what a path is by what is in it, and shows that. Writes nothing but what
 * is made of a log.
 */
#include "verbs/inspect/inspect.h"
#include "cli/message/message.h"
#include "cli/options/verb.h"
#include "data/pack.h"
#include "hf/folder.h"
#include "verbs/ckpt/ckpt.h"
#include "verbs/verbs.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const token_dtypes[] = {"u16", "u32", NULL};

static const char *const packs[] = {"on", "off", NULL};
static const char *const longs[] = {"split", "cut", "drop", "refuse", NULL};

static const struct hst_option table[] = {
    {.name = "token-dtype",
     .group = "input",
     .type = HST_OPTION_CHOICE,
     .offset = offsetof(struct inspect_options, token_dtype),
     .argument = "TYPE",
     .default_text = "by the file's header",
     .choices = token_dtypes,
     .first_choice = TOKEN_U16,
     .help = "of token files without a header"},
    {.name = "seq-len",
     .group = "input",
     .type = HST_OPTION_COUNT,
     .offset = offsetof(struct inspect_options, seq_len),
     .argument = "N",
     .default_text = "not told",
     .least = 1,
     .greatest = PACK_MOST_SEQ_LEN,
     .help = "tells how many rows of N inputs documents would fill"},
    {.name = "row",
     .group = "input",
     .type = HST_OPTION_COUNT,
     .offset = offsetof(struct inspect_options, row),
     .argument = "N",
     .default_text = "not told",
     .least = 1,
     .greatest = UINT32_MAX,
     .help = "shows the documents of that row, from 1 on"},
    {.name = "pack",
     .group = "input",
     .type = HST_OPTION_CHOICE,
     .offset = offsetof(struct inspect_options, pack),
     .argument = "on|off",
     .default_text = "on",
     .choices = packs,
     .first_choice = DATA_PACK_ON,
     .help = "off: one document a row"},
    {.name = "long",
     .group = "input",
     .type = HST_OPTION_CHOICE,
     .offset = offsetof(struct inspect_options, longer),
     .argument = "HOW",
     .default_text = "split; with a mask: refuse",
     .choices = longs,
     .first_choice = PACK_LONG_SPLIT,
     .help = "documents longer than --seq-len"},
    {.name = "all",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct inspect_options, all),
     .help = "every tensor and version, where one screen has no room for them"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct inspect_options, json),
     .help = "one JSON object"},
    {.name = "csv",
     .group = "of a log",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct inspect_options, views.csv),
     .argument = "FILE",
     .default_text = "none",
     .help = "its steps and evaluations as a table, a row each"},
    {.name = "tfevents",
     .group = "of a log",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct inspect_options, views.tfevents),
     .argument = "DIR",
     .default_text = "none",
     .help = "its steps for TensorBoard"},
    {.name = "html",
     .group = "of a log",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct inspect_options, views.html),
     .argument = "FILE",
     .default_text = "none",
     .help = "a page of the run, with its charts"},
};

/* ---- what is there ---- */

enum kind {
    KIND_STORE,
    KIND_FORMING,
    KIND_STORE_FILE,
    KIND_MODEL,
    KIND_WEIGHTS,
    KIND_LOG,
    KIND_TRACE,
    KIND_RATES,
    KIND_BENCH,
    KIND_TOKENS
};

static bool has(const char *directory, const char *name)
{
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* Files of this project begin with these, and others do not. */
static const struct {
    const char *begin;
    enum kind kind;
} beginnings[] = {
    {"HSTSTORE", KIND_STORE_FILE},
    {"{\"kind\":\"run\"", KIND_LOG},
    {"{\"hoistway\":", KIND_TRACE},
    {"hoistway rates ", KIND_RATES},
    {"{\"program\":\"nvme-bench\"", KIND_BENCH},
};

/* It goes by the first bytes: one of those, or a header's length and the brace that it begins
 * with. */
static enum kind kind_of_file(const char *path)
{
    unsigned char first[32] = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const ssize_t got = fd < 0 ? -1 : pread(fd, first, sizeof first, 0);
    uint64_t header_bytes;
    if (fd >= 0)
        close(fd);
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        const size_t n = strlen(beginnings[i].begin);
        if (got >= (ssize_t)n && memcmp(first, beginnings[i].begin, n) == 0)
            return beginnings[i].kind;
    }
    memcpy(&header_bytes, first, sizeof header_bytes);
    const size_t n = strlen(path);
    const bool named = n > 12 && strcmp(path + n - 12, ".safetensors") == 0;
    const bool looks = got >= 9 && first[8] == '{' && le64toh(header_bytes) < UINT32_MAX;
    return named || looks ? KIND_WEIGHTS : KIND_TOKENS;
}

/* A model's config.json says what its directory is: "DIR/config.json" becomes "DIR". */
static bool cut_config(char *path)
{
    static const char name[] = "config.json";
    const size_t n = strlen(path), length = sizeof name - 1;
    struct stat st;
    if (n < length || strcmp(path + n - length, name) != 0 ||
        (n > length && path[n - length - 1] != '/') || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    if (n == length)
        strcpy(path, ".");
    else
        path[n - length - (n > length + 1)] = '\0'; /* of "/config.json" the slash is left */
    return true;
}

static int find_kind(const char *path, enum kind *kind, struct hst_error *error)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return fail(error, FAIL_DATA_FILE, -errno, "%.250s cannot be looked at: %s. Fix: check it.",
                    path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        *kind = kind_of_file(path);
        return 0;
    }
    if (has(path, "r00000.d0.blk") || has(path, "reshard.unfinished"))
        *kind = KIND_STORE;
    else if (has(path, "r00000.d0.blk.new"))
        *kind = KIND_FORMING;
    else if (has(path, "config.json") || has(path, "model.safetensors") ||
             has(path, "model.safetensors.index.json"))
        *kind = KIND_MODEL;
    else
        return fail(error, FAIL_DATA_FILE, -EINVAL,
                    "%.250s holds neither a model (config.json, model.safetensors) nor a store "
                    "(r00000.d0.blk). Fix: name the directory that does.",
                    path);
    return 0;
}

/* ---- the verb ---- */

static int refuse_forming(const char *path, struct hst_error *error)
{
    return fail(error, (enum fail_code)HST_E_STORE_EMPTY, -ENOENT,
                "%.250s is a store in which no version was ever committed. Fix: none needed to "
                "start at step 0.",
                path);
}

/* It refuses, of something else, what is made of a log. */
static int refuse_views(const char *path, const struct views_paths *views, struct hst_error *error)
{
    const char *option = views->csv        ? "--csv"
                         : views->tfevents ? "--tfevents"
                         : views->html     ? "--html"
                                           : NULL;
    if (!option)
        return 0;
    return fail(error, FAIL_VALUE, -EINVAL,
                "%s is made of the log of a run, and %.250s is none. Fix: the file of train's "
                "--log.",
                option, path);
}

static int inspect_one(const char *path, enum kind kind, const struct inspect_options *o,
                       struct hst_error *error)
{
    int native = kind == KIND_LOG ? 0 : refuse_views(path, &o->views, error);
    if (native)
        return native;
    switch (kind) {
    case KIND_STORE:
    case KIND_FORMING:
        return refuse_forming(path, error);
    case KIND_STORE_FILE:
        return inspect_store_file(path, o, error);
    case KIND_MODEL:
    case KIND_WEIGHTS:
        if (kind == KIND_WEIGHTS && inspect_has_tokens(path))
            break;
        return inspect_weights(path, kind == KIND_MODEL, o, error);
    case KIND_LOG:
        return inspect_log(path, o, error);
    case KIND_TRACE:
        return inspect_trace(path, o, error);
    case KIND_RATES:
        return inspect_rates(path, o, error);
    case KIND_BENCH:
        return inspect_bench(path, o, error);
    case KIND_TOKENS:
        break;
    }
    return inspect_tokens(path, o, error);
}

static int inspect(const struct cli_operands *operands, const struct inspect_options *o,
                   struct hst_error *error)
{
    struct ckpt_source source = {.ranks = NULL};
    char *store = source.store, first[CKPT_STORE_BYTES];
    enum kind kind = KIND_TOKENS;
    if (operands->count == 0)
        return fail(error, FAIL_MISSING, -EINVAL,
                    "nothing is named to inspect. Fix: name a model's directory, a store, data, a "
                    "log or another file; hoistway inspect --help lists them.");
    int native = ckpt_store(operands, store, error);
    native = native ? native : ckpt_store_alone(store, error);
    if (native)
        return native;
    snprintf(first, sizeof first, "%.*s", (int)strcspn(operands->values[0], ","),
             operands->values[0]);
    char *found = access(first, F_OK) ? folder_cached(first) : NULL;
    const bool whole = strcmp(first, operands->values[0]) == 0;
    if (found)
        snprintf(first, sizeof first, "%s", found);
    const bool config = whole && operands->count == 1 && cut_config(first);
    const char *path = found || config ? first : operands->values[0];
    free(found);
    native = inspect_check_packing(o, error);
    native = native ? native : find_kind(first, &kind, error);
    if (native)
        return native;
    if (kind == KIND_STORE)
        native = refuse_views(first, &o->views, error);
    bool goes_on; /* there is no other rank */
    if (kind == KIND_STORE && !native)
        return ckpt_list(&source, o->json, o->all || o->json ? SIZE_MAX : SCREEN_LINES - 3,
                         &goes_on, error);
    if (native)
        return native;
    if (operands->count > 1)
        return fail(error, FAIL_USAGE, -EINVAL,
                    "'%.100s' is no store, of which there may be several directories. Fix: one "
                    "path at a time.",
                    first);
    return inspect_one(path, kind, o, error);
}

int verb_inspect(int argc, char **argv)
{
    struct inspect_options options = {.json = false};
    struct cli_operands operands = {.argument = "DIR|FILE..."};
    const struct cli_verb verb = {
        .name = "inspect",
        .about =
            "Tells on one screen what is there: a model's directory or its config.json, a "
            "safetensors "
            "file,\na store (all of its directories) or one of its files, tokens, a log, a trace, "
            "rates, a result of\nnvme-bench. Of a log it makes what train makes with --csv, "
            "--tfevents and --html.",
        .sets = {{table, sizeof table / sizeof table[0], &options}},
        .set_count = 1,
        .operands = &operands,
    };
    struct hst_error error = {0};
    int code;
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    int native = inspect(&operands, &options, &error);
    return native ? cli_fail(&error) : CLI_EXIT_OK;
}
