# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the CUDA device's own kernels, and of what they use of a card."""
from rows import mutate

mutate(
    'kernels/cuda/ops/attention_forward.cu', 'cuda/resources',
    ('values in their one buffer are waited for',
     '            hst_cp_async_wait<0>();\n            __syncthreads(); /* the values',
     '            __syncthreads(); /* the values'),
    ('keys stay until all have used them',
     '            __syncthreads(); /* the values are here', '            /* the values are here'),
    ('eight warps have room for one tile', 'D > 128 && WARPS == 8 ? 1 : 2', '2'),
)
mutate(
    'kernels/cuda/ops/attention_forward.cu', 'simt/suite/documents',
    ('a row that has seen no key has none to be brought down from',
     'if (NARROW && top == -INFINITY)', 'if (false)'),
    ('what a query does not see is taken away', '            sight.hide(s, key);\n', ''),
)
mutate(
    'kernels/cuda/ops/attention_forward.cu', 'simt/documents',
    ('tiles before the first key are left out',
     'NARROW ? first_key(a, at.sequence, block_first) / P::KEYS * P::KEYS : 0', '0'),
)
mutate(
    'kernels/cuda/ops/attention_backward.cu', 'simt/suite/documents',
    ('queries that do not see a key give it nothing',
     '(i % 2 ? from.y : from.x) > key + i / 2 * 8', 'false'),
    ('each query has its own first key',
     '__int_as_float(first_key(a, sequence, query))', '__int_as_float(0)'),
)
mutate(
    'kernels/cuda/ops/attention_backward.cu', 'simt/documents',
    ('queries after the last that sees the keys are left out', 'next.first >= seen_end',
     'next.first >= end'),
)
mutate(
    'kernels/cuda/ops/attention_any.cu', 'simt/suite/documents',
    ('keys before the first are hidden', 'hidden |= column + SIDE * j < from[i]',
     'hidden |= false'),
    ('in the backward too', 'NARROW && key < first_key(*a, sequence, query)', 'false'),
)
mutate(
    'kernels/cuda/ops/attention.h', 'simt/suite/documents',
    ('a first key behind the query is the query',
     'first < (uint32_t)query ? (int)first : query', '(int)first'),
    ('the last query that sees a key counts', 'first_key(a, sequence, middle) > key',
     'first_key(a, sequence, middle) >= key'),
)
mutate(
    'kernels/cuda/ops/attention.cu', 'simt/suite/attention',
    ('chains that a thread has together are apart by threads', 'sum[j], apart / N)',
     'sum[j], apart)'),
    ('rows end where they end', 'add_products(u[k], v[k], sum)',
     'add_products(u[0], v[0], sum)'),
)
mutate(
    'kernels/cuda/ops/rope.cu', 'simt/suite/elementwise',
    ('a head that is not there stays', 'head + rows < a.heads ? HEADS : 1', 'HEADS'),
    ('a block goes over more heads than it has threads for',
     'head < a.heads; head += HEADS * rows', 'head < HEADS * rows; head += HEADS * rows'),
    ('and over longer ones', 'at < half; at += lanes * N', 'at < lanes * N; at += lanes * N'),
    ('places that are given are those of the sequence', 'a.position[q * a.seq + place]',
     'a.position[place]'),
    ('sequences have places of their own', '(q * a.seq + place) * a.heads', 'place * a.heads'),
)
mutate(
    'kernels/cuda/ops/cross_entropy.cu', 'cuda/resources',
    ('so much under way does not spill', 'UNROLL = 2 }', 'UNROLL = 4 }'),
)
mutate(
    'kernels/host/ops/attention.c', 'kernels/documents',
    ('what is before the first key is left out', 'strip_begins_later(&t->first, tile, at, queries)',
     'false'),
    ('a row that has seen no key has nothing to bring down',
     '(uvec)(before == most), (uvec)vec_all(1)', '(uvec)(before == most), (uvec)vec_all(0)'),
    ('the first tile that is seen is not added', 'v, width, i > begin)', 'v, width, i > 0)'),
)
mutate(
    'kernels/host/ops/attention_backward.c', 'kernels/documents',
    ('dq begins with the first tile that is seen',
     'tile->keys.begin > first_key_tile(&t->first) * ATTENTION_KEYS', 'tile->keys.begin > 0'),
)
mutate(
    'kernels/host/ops/attention.h', 'kernels/documents',
    ('a first key behind the query is the query', 'from = from < t ? from : t;', ''),
    ('a window begins where its last token is still seen', 't - a->window + 1 > from',
     't - a->window > from'),
)
mutate(
    'kernels/host/ops/attention.c', 'kernels/attention-amx',
    ('scores of an own kernel are scaled before their maximum is taken',
     'score = halves ? score * s.scale : score;', ''),
)
mutate(
    'kernels/host/ops/attention.h', 'kernels/attention-amx',
    ('weights of an own kernel lie in the first half of a row', 'HALF_LD = 2 * ATTENTION_QUERIES',
     'HALF_LD = ATTENTION_QUERIES'),
)
mutate(
    'kernels/host/ops/attention_backward.c', 'kernels/attention-amx',
    ('gradients of scores are scaled before they are rounded',
     'gradient = halves ? gradient * s->scale : gradient;', ''),
    ('weights of bf16 are hidden as such', 'row_at(row, first, 1, halves ? HST_BF16 : HST_F32)',
     'row_at(row, first, 1, HST_F32)'),
)
mutate(
    'kernels/host/work.c', 'kernels/gemm_bf16',
    ('attention of bf16 depends on who makes its GEMMs',
     'size_t host_attention_work_bytes(struct hst_dev *dev, const struct hst_attention *args)\n'
     '{\n    if (args->dtype == HST_BF16)',
     'size_t host_attention_work_bytes(struct hst_dev *dev, const struct hst_attention *args)\n'
     '{\n    if (false)'),
)
mutate(
    'kernels/host/ops/rope.c', 'kernels/elementwise',
    ('a row turns by its own place', 'a->position ? a->position[t] : t % a->seq', 't % a->seq'),
)
mutate(
    'kernels/operations.c', 'kernels/documents',
    ('first is aligned', 'words_ok(args->lse) && words_or_none_ok(args->first)',
     'words_ok(args->lse)'),
    ('a sequence too long for first is refused',
     '(args->first || args->window) && args->seq > INT32_MAX', 'false'),
)

# ---- tests/kernels/triage ----

mutate(
    'kernels/host/ops/attention.h', 'kernels/triage',
    ('padding sees itself', 'from = from < t ? from : t;', ''),
)
mutate(
    'kernels/host/ops/add.c', 'kernels/triage',
    ('an index is kept whole: at a scale of 16 the largest count is above 2^23',
     'vec_load(a->a, i, r.end, dtype, 0)', 'vec_load(a->a, i & 0x7fffff, r.end, dtype, 0)'),
)
mutate(
    'kernels/host/ops/bias.c', 'kernels/triage',
    ('the last row is a row',
     'for (size_t t = rows.begin; t < rows.end; t++) {\n        void *x',
     'for (size_t t = rows.begin; t + (rows.end == a->tokens) < rows.end; t++) {\n'
     '        void *x'),
    ('the last column is a column',
     'for (size_t i = 0; i < a->width; i += VEC)\n            vec_store(x, i, a->width, dtype,',
     'for (size_t i = 0; i < a->width; i += VEC)\n'
     '            vec_store(x, i, a->width - 1, dtype,'),
)
