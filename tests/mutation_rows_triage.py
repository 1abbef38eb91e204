# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of what the triage of every operation stands on."""
from mutation_rows import mutate

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
