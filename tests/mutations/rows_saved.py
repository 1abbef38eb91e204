# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of activations that are kept for the backward."""
from rows import mutate

mutate(
    'engine/exec/views.c', 'engine/saved',
    ('an evaluation leaves nothing', 'at == PLACEMENT_NO_ADDRESS || sweep == HST_EVAL',
     'at == PLACEMENT_NO_ADDRESS'),
)
mutate(
    'engine/plan/placement/lay_out.c', 'engine/placement',
    ('they are spread evenly', 'if (able == 0 || owed < able)',
     'if (able == 0 || p->saved_units == some || in->layout->units[u].saved_bytes == 0)'),
    ('what is computed again in segments keeps none',
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
    ('they take what is left', '            fill_saved(in, &choice, p);\n', ''),
    ('what is to be near is not sent offloaded for them',
     'in->compute_tier == HST_TIER_DRAM || !offloaded || may_be_offloaded(in)', 'true'),
)
mutate(
    'engine/plan/search/planner.c', 'tools/cli_room',
    ('they are weighed against units', '    try_saved(&s);\n', ''),
    ('also where all units are near', 'offloaded <= (gpu && all)', 'offloaded <= 0'),
)
mutate(
    'engine/plan/graph/step_graph.c', 'tools/cli_room',
    ('a backward is shorter by them', '(saved ? 0 : RECOMPUTE_FORWARDS)', 'RECOMPUTE_FORWARDS'),
)
mutate(
    'tools/model/layer.c', 'tools/model/step',
    ('a backward does not compute again what was saved', '    if (w->saved) {', '    if (0) {'),
    ('the stream between the halves is saved', 'void *x1 = w->saved ? w->x1 : x;',
     'void *x1 = x;'),
    ('the second norm is made again',
     '    pass_rmsnorm(p, w->x1, LAYER_POST_NORM, w->n2, w->rstd2);\n', ''),
)
mutate(
    'tools/model/step.c', 'tools/model/step',
    ('each micro-batch is saved apart', '+ v->micro * each', '+ 0 * each'),
)
