# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of layers in halves."""
from rows import mutate

mutate(
    'tools/model/layer/layer.c', 'tools/model/halves',
    ('a half adds what it has computed', '        add_product(p, w, LAYER_O, w->o, x, x);\n', ''),
    ('the MLP norms its own input', '        mlp_norm(p, w, x);\n', '        ;\n'),
    ('its backward is of its checkpoint', 'p->part == LAYER_WHOLE ? w->x1 : checkpoint', 'w->x1'),
    ('of saved products nothing is computed again', '    if (w->saved)\n        swiglu(p, w);',
     '    if (0)\n        swiglu(p, w);'),
)
mutate(
    'tools/model/model.c', 'tools/model/halves',
    ('a half is charged for itself', '(part == LAYER_ATTENTION ? 0 : 2 * 3 * h * f)',
     '2 * 3 * h * f'),
    ('a half is of its layer', '.layer = at / each', '.layer = at'),
    ('tensors of heads are the attention\'s',
     'param >= LAYER_POST_NORM && param <= LAYER_DOWN', 'param >= LAYER_POST_NORM'),
)
mutate(
    'tools/model/units.c', 'tools/model/halves',
    ('the engine is told what a half computes', 'llama_part_flops(model, at->layer, at->part)',
     'llama_layer_flops(model, at->layer)'),
)
mutate(
    'tools/model/step.c', 'tools/model/halves',
    ('a window is that of the half\'s layer', 'llama_layer_window(model, at.layer)',
     'llama_layer_window(model, v->unit - model->first_unit - 1)'),
)
mutate(
    'tools/model/step.c', 'e2e/halves',
    ('halves have windows', 'if (at.kind == UNIT_LAYER)',
     'if (at.kind == UNIT_LAYER && at.part == LAYER_WHOLE)'),
)
mutate(
    'tools/model/work.c', 'tools/model/halves',
    ('what is between the halves is not saved',
     'part == LAYER_WHOLE ? tokens * model->config.hidden : 0', 'tokens * model->config.hidden'),
    ('a half has its own buffers', 'return part == LAYER_ATTENTION ? 0 :', 'return 0 ? 0 :'),
)
mutate(
    'tools/verbs/train/ranks.c', 'e2e/halves',
    ('a run goes on with the units of its store',
     'o->layers = halved ? TRAIN_LAYERS_HALVES : TRAIN_LAYERS_WHOLE;',
     'o->layers = TRAIN_LAYERS_WHOLE;'),
    ('others are refused', 'return train_layers_failed(o, halved, error);', 'return 0;'),
)
mutate(
    'tools/verbs/train/train.c', 'e2e/halves',
    ('step 0 says it, too', 'if (t->run.halves)', 'if (0)'),
)
mutate(
    'tools/verbs/train/resume.c', 'e2e/halves',
    ('a store says which units it has',
     'n += (int)train_layers_line(o->layers == TRAIN_LAYERS_HALVES,',
     'n += (int)train_layers_line(false,'),
)
mutate(
    'tools/verbs/train/engine.c', 'e2e/halves',
    ('halves are named where they fit alone', '    return native == 0;\n', '    return true;\n'),
    ('and where they do', '    if (native == -ENOSPC)\n', '    if (0)\n'),
)
mutate(
    'tools/verbs/ckpt/ckpt.c', 'e2e/halves',
    ('ckpt reads a store of halves',
     'train_layers_halved(info.cursor, info.cursor_bytes)', 'false'),
)
