# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of second slots on drives without a store, and of activations that
are kept for the backward."""
from rows import mutate

mutate(
    'engine/tier/scratch.c', 'engine/scratch',
    ('a write goes to the slot whose bytes do not stand',
     'bool other = write || place->fresh;', 'bool other = place->fresh;'),
    ('a read finds what was written last', 'bool other = write || place->fresh;',
     'bool other = write;'),
    ('what is settled stands', 'scratch->places[i].second ^= scratch->places[i].fresh;', ''),
    ('what is settled is so once', '.fresh;\n        scratch->places[i].fresh = false;\n',
     '.fresh;\n'),
    ('a revert forgets', 'return -EBUSY;\n        scratch->places[i].fresh = false;\n',
     'return -EBUSY;\n'),
    ('a revert refuses what is on its way',
     'if (scratch->places[i].fresh && scratch->places[i].writing)', 'if (0)'),
    ('what has one slot is never fresh', 'place->fresh = distance > 0;', 'place->fresh = true;'),
)
mutate(
    'engine/plan/placement/lay_out.c', 'engine/placement',
    ('second slots are in the file', 'p->drive_bytes[d] = sat_add(p->drive_bytes[d], bytes);', ''),
    ('second slots are in the sum', 'p->nvme_bytes = sat_add(p->nvme_bytes, bytes);', ''),
    ('second slots are in the table', '*sum = sat_add(*sum, bytes);\n    }', '    }'),
    ('second slots are apart from first ones', 'distances[d] = bytes;',
     'distances[d] = bytes / 2;'),
    ('states have second slots',
     'take_second_on_drives(in, HST_CLASS_STATES, starts, p, p->states_slot_on);', ''),
)
mutate(
    'engine/plan/search/placement_refuse.c', 'engine/placement',
    ('a refusal tells of second slots',
     ' and for a second slot of its weights and states', ''),
)
mutate(
    'engine/plan/graph/graph.c', 'engine/scheduler',
    ('what is written is settled without a store',
     'return in->stored || (in->optimistic && drives);', 'return in->stored;'),
)
mutate(
    'engine/session/store/versions.c', 'engine/optimistic',
    ('each step settles what the one before has written',
     'return !engine->plan_in.stored && engine_is_optimistic(engine) ? PHASE_COMMIT : 0;',
     'return 0;'),
    ('a step out of order settles it too',
     '    settle(engine);\n    return versions_due', '    return versions_due'),
)
mutate(
    'engine/session/store/versions.c', 'engine/optimistic',
    ('scratch is reverted', 'engine->extents      ? scratch_revert(engine->extents)', '0 ? 0'),
    ('scratch is settled', 'scratch_settle(engine->extents);', 'return;'),
)
mutate(
    'engine/session/update_time.c', 'engine/optimistic',
    ('without a store drives may have second slots',
     '.frees = !engine->plan_in.stored || engine->versions.every == 1,',
     '.frees = engine->plan_in.stored && engine->versions.every == 1,'),
)
mutate(
    'engine/plan/search/homes.c', 'engine/homes engine/optimistic',
    ('second slots on drives are no other homes',
     '(tier == HST_TIER_NVME && !with->in.stored)', 'false'),
)
mutate(
    'engine/session/views.c', 'engine/saved',
    ('an evaluation leaves nothing', 'at == PLACEMENT_NO_ADDRESS || sweep == HST_EVAL',
     'at == PLACEMENT_NO_ADDRESS'),
)
mutate(
    'engine/plan/placement/lay_out.c', 'engine/placement',
    ('they are spread evenly', 'if (able == 0 || owed < able)',
     'if (able == 0 || p->saved_units == some || in->layout->units[u].saved_bytes == 0)'),
    ('what is recomputed in segments keeps none',
     'p->segment > 1 ? 0 : c->saved < able', 'c->saved < able'),
)
mutate(
    'engine/plan/placement/placement.c', 'engine/placement',
    ('none are kept where that is asked for', '!in->recompute && !elsewhere', '!elsewhere'),
    ('nor where they have another home', '!in->recompute && !elsewhere', '!in->recompute'),
    ('each micro-batch has its own',
     'return sat_times(placement->layout->units[unit].saved_bytes, placement->micro_count);',
     'return placement->layout->units[unit].saved_bytes;'),
)
mutate(
    'engine/plan/search/placement_search.c', 'engine/saved tools/cli_room',
    ('they take what is left', '            fill_saved(s, &choice, p);\n', ''),
    ('what is to be near is not sent offloaded for them',
     'in->compute_tier == HST_TIER_DRAM || !offloaded || placement_may_be_offloaded(in)', 'true'),
)
mutate(
    'engine/plan/search/planner.c', 'tools/cli_room',
    ('they are weighed against units', '    try_saved(&s);\n', ''),
    ('also where all units are near', 'offloaded <= (gpu && all)', 'offloaded <= 0'),
)
mutate(
    'engine/plan/graph/step_graph.h', 'tools/cli_room',
    ('a backward is shorter by them', '(kept ? 0.0 : 1.0)', '1.0'),
)
mutate(
    'tools/model/layer/layer.c', 'tools/model/step',
    ('a backward does not compute again what was saved', '    if (!w->saved) {', '    if (1) {'),
    ('the stream between the halves is saved',
     'void *x1 = p->part == LAYER_WHOLE && w->saved ? w->x1 : x;', 'void *x1 = x;'),
    ('the second norm is made again', '            mlp_norm(p, w, x1);\n', '            ;\n'),
)
mutate(
    'tools/model/step.c', 'tools/model/step',
    ('each micro-batch is saved apart', '+ v->micro * each', '+ 0 * each'),
)
