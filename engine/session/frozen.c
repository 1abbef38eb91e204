/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which tensors are frozen: by their flag, by --freeze, or because --train-only names
   others. It refuses a glob without a tensor, a unit of which a part is frozen, and a model of
   which nothing trains. */
#include "session/engine_state.h"
#include "session/names.h"

#include <errno.h>
#include <fnmatch.h>
#include <hoistway/predict.h>
#include <stdlib.h>
#include <string.h>

static const char *const OPTION[FROZEN_LISTS] = {
    [FROZEN_FREEZE] = "freeze", [FROZEN_TRAIN_ONLY] = "train-only"};

static int refuse(struct hst_engine *engine, enum frozen_list list, const char *glob, size_t bytes,
                  const char *what)
{
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL, "--%s '%.*s': %s", OPTION[list],
                       bytes < 100 ? (int)bytes : 100, glob, what);
}

/* ---- what was given ---- */

/* A name that a shell, or a list of globs, would cut is no name of a tensor. */
static bool is_glob(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == '\'' || text[i] == 0x7f)
            return false;
    return bytes > 0;
}

static int read_glob(struct hst_engine *engine, enum frozen_list list, const char *text,
                     size_t bytes)
{
    struct frozen *frozen = &engine->frozen;
    uint32_t *count = &frozen->count[list];
    if (!is_glob(text, bytes))
        return refuse(engine, list, text, bytes,
                      "no names of tensors. Fix: a glob without spaces and quotes");
    if (bytes >= sizeof frozen->glob[list][0])
        return refuse(engine, list, text, bytes,
                      "it has more than 95 characters. Fix: a shorter glob");
    if (*count == HST_GROUPS_MOST)
        return refuse(engine, list, text, bytes, "more than 8 globs. Fix: fewer");
    memcpy(frozen->glob[list][*count], text, bytes);
    frozen->glob[list][(*count)++][bytes] = '\0';
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* In the order of their texts: the order in which they were given decides nothing. */
static int read_list(struct hst_engine *engine, enum frozen_list list,
                     const char *texts[HST_GROUPS_MOST])
{
    struct frozen *frozen = &engine->frozen;
    int rc = 0;
    for (uint32_t t = 0; t < HST_GROUPS_MOST && texts[t] && rc == 0; t++)
        for (const char *at = texts[t], *end; at && rc == 0; at = *end ? end + 1 : NULL) {
            end = at + strcspn(at, ";");
            rc = read_glob(engine, list, at, (size_t)(end - at));
        }
    qsort(frozen->glob[list], frozen->count[list], sizeof frozen->glob[list][0], by_text);
    for (uint32_t g = 0; g < HST_GROUPS_MOST; g++)
        texts[g] = g < frozen->count[list] ? frozen->glob[list][g] : NULL;
    return rc;
}

int frozen_read(struct hst_engine *engine)
{
    int rc = read_list(engine, FROZEN_FREEZE, engine->config.freeze);
    return rc ? rc : read_list(engine, FROZEN_TRAIN_ONLY, engine->config.train_only);
}

/* ---- which tensors ---- */

/* fits[owner] ← true of all that the glob has a name of. */
static int match(struct hst_engine *engine, enum frozen_list list, const char *glob, bool *fits)
{
    const struct layout *layout = &engine->layout;
    bool any = false;
    for (uint32_t i = 0; i < layout->param_count; i++)
        if (fnmatch(glob, layout->params[i].name, 0) == 0)
            any = fits[layout->params[i].owner] = true;
    if (any)
        return 0;
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                       "--%s '%s': no tensor has such a name. The nearest is \"%.200s\". Fix: a "
                       "glob that fits names of this model",
                       OPTION[list], glob, names_nearest(layout, glob));
}

static int match_all(struct hst_engine *engine, enum frozen_list list, bool *fits)
{
    const struct frozen *frozen = &engine->frozen;
    int rc = 0;
    for (uint32_t g = 0; g < frozen->count[list] && rc == 0; g++)
        rc = match(engine, list, frozen->glob[list][g], fits);
    return rc;
}

static int freeze(struct hst_engine *engine, bool *frozen, bool *trained)
{
    struct layout *layout = &engine->layout;
    int rc = match_all(engine, FROZEN_FREEZE, frozen);
    rc = rc ? rc : match_all(engine, FROZEN_TRAIN_ONLY, trained);
    const bool only = engine->frozen.count[FROZEN_TRAIN_ONLY] > 0;
    for (uint32_t i = 0; i < layout->param_count && rc == 0; i++) {
        const uint32_t owner = layout->params[i].owner;
        layout->params[i].frozen =
            layout->params[owner].frozen || frozen[owner] || (only && !trained[owner]);
    }
    return rc;
}

/* ---- what cannot be ---- */

static int check_units(struct hst_engine *engine)
{
    const struct layout *layout = &engine->layout;
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        uint32_t two[2];
        if (layout_is_mixed(layout, u, two))
            return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                               "\"%.100s\" is frozen and \"%.100s\" is not: gradients and states "
                               "are of unit \"%.60s\" as a whole. Fix: globs that fit all tensors "
                               "of a unit or none of them",
                               layout->params[two[true]].name, layout->params[two[false]].name,
                               layout->units[u].name);
    }
    return 0;
}

/* A number that would not be used is refused. */
static int check_groups(struct hst_engine *engine)
{
    const struct layout *layout = &engine->layout;
    for (uint32_t g = 1; g < engine->groups.count; g++) {
        bool trains = false;
        for (uint32_t i = 0; i < layout->param_count; i++)
            trains = trains || (layout->params[layout->params[i].owner].group == g &&
                                !layout->params[i].frozen);
        if (!trains)
            return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                               "--group '%s': all its tensors are frozen. Fix: leave the group out",
                               engine->groups.list[g].text);
    }
    return 0;
}

static bool any_is(const struct layout *layout, bool frozen)
{
    for (uint32_t i = 0; i < layout->param_count; i++)
        if (layout->params[i].frozen == frozen)
            return true;
    return false;
}

static int check(struct hst_engine *engine)
{
    if (!any_is(&engine->layout, true))
        return 0;
    if (!any_is(&engine->layout, false))
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "all tensors are frozen, nothing is left to train. Fix: --freeze fewer, "
                           "or --train-only more");
    if (engine->config.precision == HST_PRECISION_FP16)
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "--precision fp16 has no frozen tensors: its weights follow from their "
                           "states, which those have not. Fix: --precision bf16 or fp32");
    const int rc = check_units(engine);
    return rc ? rc : check_groups(engine);
}

int frozen_assign(struct hst_engine *engine)
{
    const size_t count = (size_t)engine->layout.param_count + 1;
    bool *fits = calloc(2 * count, sizeof *fits);
    if (!fits)
        return engine_fail_tables(engine, -ENOMEM);
    int rc = freeze(engine, fits, fits + count);
    free(fits);
    layout_rest(&engine->layout);
    return rc ? rc : check(engine);
}

/* ---- what is told ---- */

int hst_engine_frozen(const struct hst_engine *engine, struct hst_frozen *frozen)
{
    const struct layout *layout = engine->layout.whole ? &engine->whole : &engine->layout;
    if (engine->phase == PHASE_DESCRIBE || !frozen)
        return -EINVAL;
    *frozen = (struct hst_frozen){.params = 0};
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const struct layout_param *param = &layout->params[i];
        if (param->owner != i || !param->frozen)
            continue;
        frozen->params++;
        frozen->elements += param->count;
    }
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        frozen->units += layout->units[u].frozen;
        frozen->resting_units += layout->units[u].rests;
    }
    return 0;
}

bool hst_engine_is_frozen(const struct hst_engine *engine, const char *name)
{
    const struct layout *layout = engine->layout.whole ? &engine->whole : &engine->layout;
    for (uint32_t i = 0; engine->phase != PHASE_DESCRIBE && i < layout->param_count; i++)
        if (strcmp(layout->params[i].name, name) == 0)
            return layout->params[i].frozen;
    return false;
}
