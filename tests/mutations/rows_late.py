# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of updates of which the next forward has a share, and out of bounds
that count versions."""
from rows import mutate

mutate(
    'engine/plan/graph/graph.c', 'engine/graph',
    ('none is left whose gradients do not last', 'lasts ? b->in->late_share : 0',
     'b->in->late_share'),
)
mutate(
    'engine/plan/graph/graph_build.c', 'engine/graph_streams',
    ('a revert waits for the version before it',
     '    link_to(b, node, b->clip);\n    link_to(b, node, b->committed);\n    for',
     '    link_to(b, node, b->clip);\n    for'),
)
mutate(
    'engine/plan/search/planner.c', 'engine/planner',
    ('a share is chosen for the homes that were given',
     's.rc = s.rc ? s.rc : choose_late(in, in->optimistic, placement, &s.best.step_s);', ''),
    ('a share is chosen of an optimistic update',
     'rc = rc ? rc : choose_late(in, true, placement, &steps->optimistic_s);',
     ''),
    ('homes are tried with a share', 'c.placement.late_eighths = s->late_eighths;', ''),
    ('a share that wins next to nothing is not left',
     'limit_s = *step_s * (1 - c->gain);', 'limit_s = *step_s;'),
    ('the fastest share wins', '        best = c->of[i];\n', ''),
)
mutate(
    'engine/plan/search/planner.c', 'engine/planner-all',
    ('a share is chosen for the homes that won',
     's.rc = choose_late(in, in->optimistic, best, &s.best.step_s);', 's.rc = 0;'),
)
mutate(
    'engine/plan/graph/step_graph.c', 'engine/planner',
    ('a graph has the share of its placement', '.late_share = p->late_eighths / 8.0,',
     ''),
)
mutate(
    'engine/plan/search/placement_search.c', 'engine/engine',
    ('gradients that are not kept need no drive',
     ' || (class == HST_CLASS_GRADS && !in->deferred)', ''),
)
mutate(
    'engine/exec/visit/execute.c', 'engine/executor engine/orders',
    ('on demand, too, early tiles are updated', 'turn->on_demand ? loop_is_idle : may_go_on',
     'may_go_on'),
    ('on the host a client waits where drives are looked at', '(host ? HOST_AHEAD : PASSAGES_MOST)',
     'PASSAGES_MOST'),
    ('a left order is told to the owner',
     'exec->verdict.early_begun ? 0 : exec->in.owner.order_left(exec->in.owner.context)', '0'),
)
mutate(
    'engine/exec/visit/execute.c', 'engine/resuming',
    ("a drain is of the step's graph, whatever was served on demand",
     'int rc = 0;\n    program_resume_step(exec);\n    if (exec->in.comm',
     'int rc = 0;\n    if (exec->in.comm'),
)
mutate(
    'engine/exec/visit/order.c', 'engine/executor engine/orders',
    ('what is evicted is in its buffer',
     '    scheduler_lend_next(&exec->alone.scheduler, held.pool, held.buffer);\n', ''),
    ('checkpoints that were retained go home', '    rc = rc ? rc : evict_acts(exec);\n', ''),
    ('gradients that were retained go home', '    rc = rc ? rc : evict_grads(exec);\n', ''),
    ("the step's own graph is gone on with", '    program_resume_step(exec);\n    return rc;',
     '    return rc;'),
    ('the next order is the one that was seen', 'int rc = program_step(exec, &order, optimistic);',
     'int rc = program_step(exec, NULL, optimistic);'),
)
mutate(
    'engine/exec/lanes/drives.c', 'engine/executor',
    ('a transfer that failed is told', 'if (flight->transfer.error)', 'if (0)'),
)
mutate(
    'engine/exec/update/verdict.c', 'engine/optimistic',
    ('what is left is done in the next step window', 'v->left = v->skipped ? 0 : PHASE_UPDATE;',
     'v->left = 0;'),
    ('a step window that is opened early has it too', 'v->left = PHASE_UPDATE; /*',
     'v->left = 0; /*'),
)
mutate(
    'engine/plan/graph/graph_bound.c', 'engine/simulate',
    ('what a version writes counts', ' || (graph->nodes[i].phases & phases)', ''),
)
mutate(
    'engine/session/predict.c', 'tools/cli_plan',
    ('a bound counts the versions of each step',
     'in.phases, &bound', '0, &bound'),
    ('the share is told', '.late_share = engine->placement.late_eighths / 8.0,',
     ''),
)
mutate(
    'engine/session/tell_plan.c', 'tools/cli_plan',
    ('a share is told of', 'if (eighths > 0 && !engine->config.plan)', 'if (0)'),
)
