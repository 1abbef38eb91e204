# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of norms that a device makes, of weights that are written when all
others have been read, of what a bound knows of buffers, and of updates by some of the threads."""
from rows import mutate

mutate(
    'engine/plan/graph/graph_parts.c', 'engine/graph',
    ('the norm is no work of the host beside a device',
     '    if (parts_norm_on_host(b, unit))\n        norm', '    norm'),
)
mutate(
    'engine/plan/graph/operands.c', 'engine/graph engine/away',
    ('partials travel with their gradients',
     '    add_partials(b, unit, device, at_home(HST_TIER_DRAM));\n', ''),
)
mutate(
    'engine/plan/graph/operands_weights.c', 'engine/operands',
    ('weights are read once', 'passed += tiles;', ''),
    ('a piece begins where the last one ended', 'extents * piece / pieces', '0'),
    ('the last tile is short', 'least(stop, run->shard_bytes)', 'stop'),
)
mutate(
    'engine/plan/graph/operands.c', 'engine/operands',
    ('a record has its padding', 'bytes_of(b, what)) + pad', 'bytes_of(b, what))'),
    ('checkpoints have no wide buffers', 'b->in->units[unit].acts, POOL_ACTS)',
     'b->in->units[unit].acts, parts_pool(b, unit, POOL_ACTS))'),
)
mutate(
    'engine/exec/program.c', 'engine/matrix',
    ('what was kept is not read, and not told', 'program_is_kept(exec, at) ? 0 : node->work',
     'node->work'),
)
mutate(
    'engine/plan/placement/buffer_pools.c', 'engine/placement_gpu',
    ('partials have a place behind gradients', 'sat_add(weights_bytes(in, unit), partials)',
     'weights_bytes(in, unit)'),
)
mutate(
    'engine/plan/graph/operands.c', 'engine/away',
    ('partials are behind the gradients', '(uint64_t)((double)elements * b->in->grad_bytes),',
     '0,'),
)
mutate(
    'engine/exec/update/optimizer_device.c', 'engine/away',
    ('partials that leave with gradients are not copied twice',
     'stays ? moves_host_partials(exec, unit) : NULL', 'moves_host_partials(exec, unit)'),
)
mutate(
    'engine/session/step.c', 'engine/away',
    ('a device makes the norm of what leaves it',
     'if (executor_norms_behind_backward(&engine->exec) && !engine->layout',
     'if (placement_is_resident(&engine->placement, held) && !engine->layout'),
)
mutate(
    'engine/session/predict.c', 'tools/cli_plan',
    ('beside a device no norm of the host need be known', '(!engine_computes_in_dram(engine) ||',
     '(0 ||'),
)
mutate(
    'engine/plan/graph/graph_kept.c', 'engine/graph_streams',
    ('an update that does not wait writes at once', 'in->deferred && i-- > 0', 'i-- > 0'),
    ('weights that stay are written last', 'write_last = stays ||', 'write_last ='),
    ('so are the last ones that have a buffer',
     'write_last = stays || (!again && taken[pool] < in->buffers[pool])', 'write_last = stays'),
    ('and no more of them', 'taken[pool] < in->buffers[pool]);',
     'taken[pool] <= in->buffers[pool]);'),
    ('nor those that the backward reads again', '(!again && taken', '(taken'),
    ('what others read too is written at once',
     'b->units[in->units[i].alias_of[a]].write_last = false;', ';'),
)
mutate(
    'engine/plan/graph/graph_order.c', 'engine/simulate',
    ('a bound counts buffers', '                hold(f, n->reservation[l]);\n', ''),
    ('and not those that are free', 'if (spare == 0 && due <', 'if (due <'),
)
mutate(
    'engine/plan/graph/graph_order.c', 'engine/schedule',
    ('a bound knows of buffers that are held over a turn',
     'return f->end[e.reservation] - (e.before ? f->order->anchors : 0) >= need;', 'return false;'),
)
mutate(
    'engine/plan/graph/graph_updates.c', 'engine/graph_streams',
    ('they wait for all reads', '        build_dep(b, write, b->last_read);\n', ''),
)
mutate(
    'engine/plan/graph/graph_updates.c', 'engine/scheduler',
    ('tiles with a slot are written at once', 'PHASE_UPDATE && slot == GRAPH_NONE;',
     'PHASE_UPDATE;'),
    ('what is written late was updated before', '        build_dep(b, write, i);\n', ''),
    ('its buffer is lent until then', '        build_use(b, write, s->first_weights);\n', ''),
)
mutate(
    'engine/plan/graph/graph_build.c', 'engine/scheduler',
    ('reads wait for what is written late',
     'kind == NODE_WRITE_TILE && i < write[1]; i++)', '0;)'),
)
mutate(
    'engine/plan/search/planner.c', 'engine/planner',
    ('a plan chooses the threads that update',
     's.rc = s.rc ? s.rc : choose_threads(in, in->optimistic, best, &s.best.step_s);', ''),
    ('and those of an optimistic update',
     'return rc ? rc : choose_threads(in, true, placement, &steps->optimistic_s);', 'return rc;'),
    ('and, on its homes, of a deferred one',
     '    rc = rc ? rc : choose_threads(in, false, placement, &steps->deferred_s);\n', ''),
    ('fewer threads are slower',
     'planner_update_share(p->update_threads[optimistic], machine->threads, machine->half);',
     '1;'),
    ('a share of the threads is on the line from what half of them do',
     'return half + (1 - half) * (update_threads - half_threads) / (threads - half_threads);',
     'return half;'),
    ('fewer than half of them do less', 'return half * update_threads / half_threads;',
     'return half;'),
    ('half of them do no less than their number', 'fmax(half, half_threads / threads)', 'half'),
    ('and no more than all', 'fmin(fmax(half, half_threads / threads), 1)',
     'fmax(half, half_threads / threads)'),
    ('half is rounded up', 'threads / 2 + threads % 2', 'threads / 2'),
)
mutate(
    'engine/probe/probe_memory.c', 'engine/probe',
    ('half of the workers rest', '    b->most = (width + 1) / 2;\n', ''),
    ('half of them is rounded up', 'b->most = (width + 1) / 2;', 'b->most = width / 2;'),
    ('who rests is told to', 'if (b->most > 0 && probe->workers)'),
    ("the caller's cannot rest", 'if (width > 1 && !probe->workers)'),
    ('one alone is half of itself', 'if (width > 1 && !probe->workers)', 'if (!probe->workers)'),
)
mutate(
    'engine/probe/probe_copies.c', 'engine/probe',
    ('half of the workers are measured', '        probe_half(load);\n', '        (void)load;\n'),
    ('what is not measured for want of memory says so', '        probe_half_fail(probe, LITTLE);\n',
     '        (void)load;\n'),
    ('where all threads compute none rests',
     'probe_half_fail(probe, "the device works in host memory: all threads update");', ''),
)
mutate(
    'engine/probe/cache.c', 'engine/cache',
    ("what the caller's workers cannot do is no failure", '? copies && !probe->parallel',
     '? copies'),
)
mutate(
    'engine/session/predict.c', 'engine/plan',
    ("half is of the precision's update",
     'rates->figures[engine->optimizer->half_rate].value',
     'rates->figures[HST_RATE_HALF_FP32].value'),
    ('it is a share', 'half_rate].value / all : 0;', 'half_rate].value : 0;'),
    ('what was measured is of the threads that did it',
     'if (is_to_begin(engine)) /* else what is measured is theirs */', 'if (1)'),
    ('a prediction knows of half', '    m->half = half_of(engine, rates);\n', ''),
)
mutate(
    'engine/session/predict.c', 'tools/cli_plan',
    ('a plan knows of half', '.half = half_of(engine, rates)};', '.half = 0};'),
)
mutate(
    'engine/exec/update/optimizer.c', 'engine/away',
    ('so many threads update', 'exec->in.placement->update_threads[exec->verdict.optimistic]', '0'),
)
mutate(
    'engine/machine/workers.c', 'engine/workers',
    ('some of the workers rest',
     'return (uint64_t)number * workers->most % workers->width < workers->most;', 'return true;'),
    ('who rests takes no piece away', '        if (takes_part(workers, self->number))\n', ''),
)
mutate(
    'engine/session/tell_plan.c', 'tools/cli_plan',
    ('fewer threads are told of', 'if (threads > 0 && !engine->config.plan)', 'if (0)'),
)
mutate(
    'engine/session/predict.c', 'tools/cli_plan',
    ('a plan tells how many threads update', '.update_threads = update_threads(engine) ?',
     '.update_threads = 0 ?'),
)
