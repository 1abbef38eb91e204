# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of measuring a model's computation beside its products."""
from rows import mutate

mutate(
    'engine/probe/probe_operations.c', 'engine/compute',
    ('a part grows', 't->amount * probe_growth(seconds, wish_s)', 't->amount'),
    ('never beyond the whole', 'wish_s), t->operation->amount)', 'wish_s), 1e300)'),
    ('one that cannot grow ends it', 't->amount > before && ', ''),
    ('a part is told', 't->amount < o->amount ?', '0 ?'),
    ('an amount that is none is refused', 't->amount > 0 && ', ''),
    ('so is one without end', ' && isfinite(t->amount)', ''),
)
mutate(
    'engine/probe/probe_products.c', 'engine/compute',
    ('the host is warmed', 'warm(probe, products, rcs, grown);', '(void)warm;'),
    ('a batch is so many', '2 * (double)batch_of(p) * (double)p->m', '2 * (double)p->m'),
    ('all of a batch have room', 't->set_bytes = a_bytes + b_bytes + c_one * batch_of(p)',
     't->set_bytes = a_bytes + b_bytes + c_one'),
    ('what is no FLOP takes time alone', 'sum->flop += flop ? amount : 0;', 'sum->flop += amount;'),
    ('operations count', 'i < in->gemm_count + in->operation_count; i++)',
     'i < in->gemm_count; i++)'),
    ('all memory is there', '.memory = {b.memory, b.used_bytes}',
     '.memory = {b.memory, b.work_bytes + b.room_bytes}'),
    ('an operation counts as often as it says', 'o->times ? o->times : 1', '1'),
    ('one that is not known is missed', 'if (f->value <= 0) {', 'if (product && f->value <= 0) {'),
)
mutate(
    'engine/probe/probe.c', 'engine/probe',
    ('one without a call is refused', 'return o->enqueue && ', 'return '),
    ('an amount is finite', 'isfinite(o->amount) && ', ''),
    ('a text is one line', " && !strchr(o->what, '\\n')", ''),
)
mutate(
    'engine/probe/identity.c', 'engine/cache',
    ('operations are part of the question', 'i < probe->operation_count', 'i < 0'),
    ('so is the code', 'hst_version(), PROBE_CODE,', 'hst_version(), "",'),
)
mutate(
    'tools/model/operations.c', 'tools/model/operations',
    ('attention is not part of a layer',
     'room, r.param, PASS_PRODUCTS | PASS_ATTENTION);\n    p.op',
     'room, r.param, PASS_PRODUCTS);\n    p.op'),
    ('GEMMs are not either', 'room, r.param, PASS_PRODUCTS | PASS_ATTENTION);\n    p.op',
     'room, r.param, PASS_ATTENTION);\n    p.op'),
    ('nor part of the head', 'room, &r.param, PASS_PRODUCTS)', 'room, &r.param, 0)'),
    ('a grain is whole sequences', '    tokens -= tokens % seq;\n', ''),
    ('memory is kept to', 'bytes(part, room) > room->memory.size_bytes', 'false'),
    ('attention as well',
     'carve_attention(room->dev, NULL, documents, &b) > room->memory.size_bytes', 'false'),
    ('heads share their keys', 'a->heads = group * a->kv_heads;', ''),
    ('the forward is computed twice', 'i < 2 && rc == 0', 'i < 1 && rc == 0'),
    ('all layers have norms', '.times = c->layers, .enqueue', '.times = 1, .enqueue'),
    ('of the head a chunk', 'tokens_of(most, chunk_of(of->model))',
     'tokens_of(most, of->model->run.micro_batch_tokens)'),
    ('few keys are left to many', 'a->seq > (spare ? KEYS_ENOUGH : KEYS_LEAST)',
     'a->seq > KEYS_LEAST'),
    ('each worker has a piece', 'pieces / 2 >= width', 'true'),
    ('the least part is not cut', 'if (part->run.micro_batch_tokens <= TOKENS_LEAST)',
     'if (part->run.micro_batch_tokens <= 1)'),
)
mutate(
    'tools/cli/forecast.c', 'tools/cli_plan',
    ('a plan asks for them', '.operation_count = in->operation_count};', '.operation_count = 0};'),
)
