/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which tensors a group has, by their names, and refuses what would not be what was meant:
   a glob without a tensor, a tensor of two groups. */
#include "session/engine_state.h"
#include "session/names.h"

#include <errno.h>
#include <fnmatch.h>
#include <hoistway/predict.h>
#include <string.h>

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
                       group->text, group->glob, names_nearest(layout, group->glob));
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
        if (param->owner != i || param->group != nth + 1 || param->frozen)
            continue;
        group->params++;
        group->elements += param->count;
    }
    return 0;
}
