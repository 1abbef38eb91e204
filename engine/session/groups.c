/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which tensors a group has, by their names, and refuses what would not be what was meant:
   a glob without a tensor, a tensor of two groups. */
#include "session/engine_state.h"

#include <errno.h>
#include <fnmatch.h>
#include <hoistway/predict.h>
#include <string.h>

#define LONGEST_NAME 255u

/* It counts the edits that make a name fit the glob, of which a '*' fits anything. */
static unsigned distance(const char *glob, const char *name)
{
    unsigned row[LONGEST_NAME + 1];
    const size_t length = strlen(name);
    for (unsigned j = 0; j <= length; j++)
        row[j] = j;
    for (; *glob; glob++) {
        unsigned before = row[0]; /* of the glob without this character, and j - 1 of the name */
        row[0] += *glob != '*';
        for (size_t j = 1; j <= length; j++) {
            const unsigned kept = row[j], fits = *glob == '?' || *glob == name[j - 1];
            const unsigned cost = *glob != '*', more = row[j - 1] + cost, less = kept + cost;
            unsigned least = more < less ? more : less;
            least = cost && before + !fits < least ? before + !fits : least;
            row[j] = least;
            before = kept;
        }
    }
    return row[length];
}

/* The longest part of the glob between its wildcards stands in the name. */
static bool has_part(const char *glob, const char *name)
{
    const char *part = glob;
    size_t longest = 0;
    for (const char *at = glob; *at;) {
        const size_t bytes = strcspn(at, "*?[");
        part = bytes > longest ? at : part;
        longest = bytes > longest ? bytes : longest;
        at += bytes + (at[bytes] != '\0');
    }
    return longest > 0 && memmem(name, strlen(name), part, longest);
}

static const char *nearest(const struct layout *layout, const char *glob)
{
    const char *found = "none";
    unsigned least = UINT32_MAX;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const char *name = layout->params[i].name;
        unsigned edits =
            strlen(name) > LONGEST_NAME ? UINT32_MAX - LONGEST_NAME : distance(glob, name);
        edits += has_part(glob, name) ? 0 : LONGEST_NAME;
        if (edits < least) {
            least = edits;
            found = name;
        }
    }
    return found;
}

/* A tied tensor is one, under each of its names. */
static int assign(struct hst_engine *engine, uint32_t g)
{
    const struct optimizer_named_group *group = &engine->groups.list[g];
    struct layout *layout = &engine->layout;
    bool any = false;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        struct layout_param *owner = &layout->params[layout->params[i].owner];
        if (fnmatch(group->glob, layout->params[i].name, 0) != 0)
            continue;
        if (owner->group != 0 && owner->group != g)
            return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                               "--group '%s' and --group '%s' both have tensor \"%.100s\", which "
                               "can be of one. Fix: globs that share no tensor",
                               engine->groups.list[owner->group].text, group->text, owner->name);
        owner->group = g;
        any = true;
    }
    if (any)
        return 0;
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                       "--group '%s': no tensor has a name like '%s'. The nearest is \"%.200s\". "
                       "Fix: a glob that fits names of this model",
                       group->text, group->glob, nearest(layout, group->glob));
}

int groups_read(struct hst_engine *engine)
{
    char why[HST_WHY_BYTES];
    if (!optimizer_groups_read(&engine->config, &engine->groups, why))
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL, "%s", why);
    optimizer_groups_say(&engine->groups, &engine->config);
    return 0;
}

int groups_assign(struct hst_engine *engine)
{
    int rc = 0;
    for (uint32_t g = 1; g < engine->groups.count && rc == 0; g++)
        rc = assign(engine, g);
    return rc;
}

int hst_engine_group(const struct hst_engine *engine, uint32_t nth, struct hst_group *group)
{
    const struct layout *layout = engine->layout.whole ? &engine->whole : &engine->layout;
    if (engine->phase == PHASE_DESCRIBE || !group)
        return -EINVAL;
    if (nth + 1 >= engine->groups.count)
        return -ENOENT;
    *group = (struct hst_group){.params = 0};
    memcpy(group->text, engine->groups.list[nth + 1].text, sizeof group->text);
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const struct layout_param *param = &layout->params[i];
        if (param->owner != i || param->group != nth + 1)
            continue;
        group->params++;
        group->elements += param->count;
    }
    return 0;
}
