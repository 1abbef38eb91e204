# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of units that are cut into slices: layout, engine, model."""
from rows import mutate

mutate(
    'engine/plan/layout/layout_cut.c', 'engine/layout_cut',
    ('what is small enough stays whole', 'u->block_rows == 0 || matrix->count <= most',
     'u->block_rows == 0'),
    ('slices end where tiles do', 'return blocks * block % tile_elements == 0;',
     'return blocks > 0 && block > 0 && tile_elements > 0;'),
    ('slices are no larger than what stays', 'fit = most / block, blocks = fit;',
     'fit = most / block, blocks = fit + 1;'),
    ('an alias is cut where its owner is', 'if (c->rows[owner] != c->rows[param->unit])',
     'if (0)'),
    ('a slice of an alias belongs to that of its owner',
     '+ (uint32_t)(row / c->rows[unit]);', ';'),
    ('a slice has its own work', 'to->work_bytes = from->slice_work_bytes;', ''),
    ('a unit that is cut has a forward', 'to->no_forward = false;', ''),
    ('FLOPs are shared',
     '(double)from->flops_per_token * (double)to->rows / (double)matrix->dims[0]',
     '(double)from->flops_per_token'),
)
mutate(
    'engine/plan/layout/layout.c', 'engine/layout_cut',
    ('elements are told of the whole', 'param->first + from - param->offset',
     'from - param->offset'),
    ('the digest is that of the whole', 'layout = layout->whole ? layout->whole : layout;\n', ''),
    ('a slice begins no unit', 'layout->units[range.unit].first_row == 0 ||', 'true ||'),
    ('but where ranks have shards of it', ' || layout_stores_slices(layout));', ');'),
    ('elements are counted from the row that has them',
     'first - to->units[range.unit].first_block * LAYOUT_UNIT_ALIGN', 'first'),
    ('blocks end where those of the norm do', '        block % LAYOUT_UNIT_ALIGN != 0',
     '        block == 0'),
)
mutate(
    'engine/session/slices.c', 'engine/slices',
    ('the backward begins with the last slice', 'd->count - 1 - turn', 'turn'),
    ('evaluations follow one another', '(*turn + 1) % d->count', '*turn + 1'),
    ('all slices were visited', 'if (turn >= d->count)', 'if (0)'),
)
mutate(
    'engine/session/step.c', 'engine/slices',
    ('slices begin anew with a step', '    slices_begin(engine);\n    s->stream = NULL;',
     '    s->stream = NULL;'),
    ('and with a drain', '    slices_begin(engine);\n    engine->step', '    engine->step'),
)
mutate(
    'engine/plan/placement/buffer_pools.c', 'engine/slices',
    ('slices share what they keep', 'p->units[u - 1].kept', 'p->units[u - 1].kept + 4096'),
)
mutate(
    'engine/plan/search/plan_seal.c', 'engine/plan_seal tools/cli_plan',
    ('slices that are slower are left',
     'if (rc || !homes_are_better(&sliced.homes, &plan->homes))', 'if (rc)'),
    ('what does not fit is cut', 'if (!is_room(first) && first != -ERANGE)', 'if (1)'),
    ('what cannot be cut is whole', 'if (!is_room(first) && first != -ERANGE)',
     'if (!is_room(first))'),
    ('slices stay where a store has them', 'in->there == PLAN_UNITS_SLICED', 'false'),
    ('whole units stay where a store has them', '|| in->there != PLAN_UNITS_ANY ||', '||'),
    ('of two ways that do not fit the smaller one is told of',
     '(is_room(rc) && !homes_lack_less(&other.homes, &plan->homes))', '0'),
    ('tiles that drives pass are small', '&& !has_tiles_on_drives(p)', ''),
    ('tiles are large where a GPU updates any', 'p->resident_units > 0 && ', ''),
    ('a refusal is a reason alone', '    if (is_room(rc))\n        return rc;\n    if',
     '    if (rc)\n        return rc;\n    if'),
    ('the layout of another who asks stays as it is', 'layout_copy(in->layout, layout)',
     '(*layout = *in->layout, 0)'),
)
mutate(
    'engine/plan/layout/layout_cut.c', 'engine/layout_cut engine/plan_seal',
    ('a copy is no cut', '    copy->whole = layout->whole;\n', ''),
)
mutate(
    'engine/plan/search/plan_seal.c', 'engine/slices',
    ('slices are tried where drives are too small', 'rc == -ENOSPC || rc == -EDQUOT',
     'rc == -ENOSPC'),
)
mutate(
    'engine/exec/visit/order.c', 'engine/slices',
    ('a warning names the unit that the client knows',
     '"follows the new order",\n                   described(exec, unit));',
     '"follows the new order",\n                   unit);'),
)
mutate(
    'tools/model/layer/head.c', 'tools/model/slices tools/model/head tools/model/golden',
    ('blocks are summed up', 'b.first_row + b.rows < vocab', 'false'),
    ('the sum is rounded at the first rows', 'if (b.first_row == 0)', 'if (0)'),
    ('a block has its own weights', 'b.here * p->model->config.hidden', 'b.here'),
    ('what is kept is that of the chunk', 'size_t kept = first % kept_tokens;',
     'size_t kept = 0;'),
    ('logits are recomputed',
     '        block_logits(p, c, block_at(p, i), c->logits);\n        block_gradient',
     '        block_gradient'),
)
mutate(
    'tools/model/step.c', 'tools/model/slices',
    ('slices write into one hidden state',
     'p->first_row ? HST_READ | HST_WRITE : HST_WRITE);\n    emb',
     'HST_WRITE);\n    emb'),
)
mutate(
    'tools/model/work.c', 'tools/model/slices',
    ('each micro-batch has its own state', 'sums + first_token * HEAD_STATE', 'sums'),
)

# Of several ranks
RANKS = 'e2e/rank_slices'
mutate(
    'engine/ckpt/recut.c', RANKS,
    ('tiles of two cuts are compared over all rows',
     '    range = counted_over_all(c->from, range);\n',
     ''),
)
mutate(
    'engine/ckpt/read.c', RANKS,
    ('a tile may be of several units', '    while (next_unit(layout, first, first + range.elements',
     '    if (next_unit(layout, first, first + range.elements'),
)
mutate(
    'engine/ckpt/save.c', RANKS,
    ('what is saved is where the model has it',
     'layout_range_in(model, &s->ckpt->layout, part->extent.range)', 'part->extent.range'),
)
mutate(
    'engine/store/format.c', RANKS,
    ('a store says that it has slices', '(h->slices ? FEATURE_SLICES : 0)', '0u'),
)
mutate(
    'engine/session/decide.c', RANKS,
    ('ranks keep the slices of their store',
     'return shares->map.slices ? PLAN_UNITS_SLICED : PLAN_UNITS_WHOLE;',
     'return PLAN_UNITS_WHOLE;'),
    ('a store of other units is made another one',
     'engine->shares.recut = there != PLAN_UNITS_ANY &&', 'engine->shares.recut = false &&'),
)
