# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of frozen tensors."""
from rows import mutate

mutate(
    'engine/session/frozen.c', 'engine/frozen',
    ('a glob without a tensor', 'if (any)', 'if (1)'),
    ('all of a unit are frozen or none', 'if (layout_is_mixed(layout, u, two))', 'if (0)'),
    ('something trains', 'if (!any_is(&engine->layout, false))', 'if (0)'),
    ('fp16 has none', 'if (engine->config.precision == HST_PRECISION_FP16)', 'if (0)'),
    ('a group has tensors that train', 'if (!trains)', 'if (0)'),
    ('freeze is before train-only', 'frozen[owner] || (only', '(only'),
    ('a tied tensor is frozen by each name',
     'fits[layout->params[i].owner] = true', 'fits[i] = true'),
)
mutate(
    'engine/plan/layout/layout.c', 'engine/frozen',
    ('a frozen tensor has no gradient', 'if (param->frozen)\n            continue;', ''),
    ('units rest up to the first that trains',
     'rests = rests && !unit->no_forward && (unit->frozen', 'rests = (unit->frozen'),
)
mutate(
    'engine/plan/placement/lay_out.c', 'engine/frozen',
    ('no states in memory', 'if (unit->frozen)\n            continue;', ''),
    ('no second slots of weights', 'take_weights(in, false, p);\n    p->weights_slot',
     'take_weights(in, false, p);\n    take_weights(in, true, p);\n    p->weights_slot'),
    ('no checkpoints of what rests', 'u->rests ? 0 : u->act_bytes_per_token',
     'u->act_bytes_per_token'),
)
mutate(
    'engine/exec/tiles/memory.c', 'engine/frozen',
    ('it is written once', 'moving->move == MEMORY_TRAINED && is_frozen', '0 && is_frozen'),
)
mutate(
    'engine/exec/moves.c', 'engine/frozen',
    ('it stays in its slot', 'slot ? placement_second_in_dram(p, kind, tile) : 0',
     'slot ? p->weights_slot : 0'),
)
mutate(
    'engine/store/store.c', 'store/fixed',
    ('a committed one is not written', 'entry.bytes == 0 || store->version != STORE_NO_VERSION',
     'entry.bytes == 0'),
)
mutate(
    'engine/plan/graph/graph.c', 'engine/graph',
    ('no update of it is late', 'if (u->frozen)\n            continue;', ''),
)
mutate(
    'engine/plan/graph/graph_parts.c', 'engine/graph',
    ('its backward leaves no gradients',
     'operands_visit(b, unit, !blind, !b->in->units[unit].frozen)',
     'operands_visit(b, unit, !blind, true)'),
)
mutate(
    'engine/ckpt/version_text.c', 'engine/frozen',
    ('a resume compares globs', 'int n = list_write("freeze", c->freeze, text, bytes);',
     'int n = 0;'),
)
