# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of attention by cuDNN, which the double's cuDNN evaluates."""
from rows import mutate

mutate(
    'kernels/cuda/cudnn/plan.c', 'cudnn/formulas',
    ('a head lies within its token', '.strides = {s->seq * token, s->head_dim, token, 1}',
     '.strides = {s->seq * token, s->seq * s->head_dim, s->head_dim, 1}'),
    ('the log sums of a head lie together',
     '.strides = {shape->all_heads * shape->seq, shape->seq, 1, 1}',
     '.strides = {shape->all_heads * shape->seq, 1, shape->all_heads, 1}'),
)
mutate(
    'kernels/cuda/cudnn/forward.c', 'cudnn/formulas',
    ('scores are scaled', '    graph_binary(g, CUDNN_POINTWISE_MUL, product, scale, scaled);\n'
     '    graph_causal(g, scores, scaled, masked, score);',
     '    (void)scaled, (void)scale;\n    graph_causal(g, scores, product, masked, score);'),
)
mutate(
    'kernels/cuda/cudnn/backward.c', 'cudnn/formulas',
    ('gradients of scores are scaled',
     '    graph_binary(t->g, CUDNN_POINTWISE_MUL, weighted, t->scale, ds);',
     '    graph_binary(t->g, CUDNN_POINTWISE_MUL, weighted, t->p, ds);'),
)
mutate(
    'kernels/cuda/cudnn/sdpa.c', 'e2e/cudnn',
    ('the scale is an operand', '    pack_add(&pack, SDPA_SCALE, &scalars->scale, 0);\n', ''),
    ('a run waits for what its stream has before it',
     'sdpa->api.set_stream(sdpa->target.handle, stream)',
     'sdpa->api.set_stream(sdpa->target.handle, NULL)'),
    ('the workspace is aligned',
     '    work -= work % WORK_ALIGN_BYTES;\n', '    work -= WORK_ALIGN_BYTES - 1 - 128;\n'),
)
mutate(
    'kernels/cuda/cudnn/cut.c', 'cudnn/formulas',
    ('the workspace has room for all runs',
     '.work_bytes = cut_work_bytes(form, &most) + WORK_ALIGN_BYTES,',
     '.work_bytes = WORK_ALIGN_BYTES,'),
)
mutate(
    'kernels/cuda/cudnn/open.c', 'simt/cudnn_open',
    ('a library that does not start is not the card', 'failure->why = HST_DEV_LIBRARY;', ';'),
    ('what is not there is told apart', 'return there ? -ENODEV : -ENOENT;', 'return -ENOENT;'),
)
mutate(
    'kernels/cuda/attention.c', 'simt/cudnn_open',
    ('what is not used is told',
     '        snprintf(unused, ATTENTION_UNUSED_BYTES, "%s", reason.text);\n',
     '        (void)unused;\n'),
)
mutate(
    'kernels/cuda/cudnn/cut.c', 'cudnn/cut',
    ('a long backward follows the budget', '        group_count = 1;\n',
     '        group_count = 0;\n'),
    ('what fits is cut as on every card', 'const size_t bound = HST_SDPA_WORK_BYTES -',
     'const size_t bound = 2 * HST_SDPA_WORK_BYTES -'),
)
mutate(
    'kernels/cuda/cudnn/cache.c', 'cudnn/runs',
    ('plans are timed', '    cache->built_s += now_s() - begin_s;\n', '    (void)begin_s;\n'),
)
mutate(
    'kernels/cuda/libraries/math.c', 'e2e/cudnn',
    ('what the budget decides is recorded', '    if (made.largest_bytes)\n',
     '    if (made.largest_bytes > (size_t)1 << 40)\n'),
)
mutate(
    'engine/session/engine.c', 'e2e/cudnn',
    ('a store has what its units were asked for with',
     '    hst_dev_math(engine->dev, engine->math, sizeof engine->math);\n', ''),
)
mutate(
    'tools/model/units.c', 'e2e/cudnn',
    ('plans of a shorter grain are built at the start, too',
     'measure_windows(p, layer, shorter, !evaluates);', ''),
)
mutate(
    'kernels/base/book.c', 'kernels/device e2e/device',
    ('libraries are left some memory', 'return share < rest ? share : rest;',
     'return share < rest ? share : share;'),
)
mutate(
    'tools/bench/budget.c', 'tools/bench_figure',
    ('a benchmark has the budget that training has', 'budget_bytes ? budget_bytes : NO_LIMIT_BYTES',
     'NO_LIMIT_BYTES'),
)
mutate(
    'kernels/cuda/cudnn/sdpa.c', 'cudnn/runs',
    ('no memory is not no plan', 'known = rc != -ENOMEM && rc != -ENODEV;', 'known = true;'),
)
mutate(
    'engine/session/device.c', 'e2e/device',
    ('a small rest is told', '    engine->told_left = true;\n', '    return free_bytes;\n'),
)
mutate(
    'kernels/cuda/attention.c', 'simt/suite-cudnn/documents',
    ('documents are not cuDNN\'s', '!sdpa || args->first || args->window', '!sdpa'),
)
