# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the CUDA device's own matrix products, and of their choice."""
from rows import mutate

mutate(
    'kernels/cuda/matmul.c', 'cuda/faults',
    ('another word is refused', '!any && strcmp(wish, "cublaslt") != 0', 'false'),
    ('own products never open the library', '!any && strcmp(wish, "own") == 0', 'false'),
    ('what is asked for and absent is an error', '    if (!any)\n        return -ENODEV;\n', ''),
    ('what is found and not usable is an error', 'if (rc != -ENOENT)', 'if (!rc)'),
    ('what is absent is named', 'snprintf(absent, absent_bytes, "%s", BLASLT_SONAME);', ''),
)
mutate(
    'kernels/cuda/libraries/math.c', 'cuda/faults e2e/host_math',
    ('own products propose nothing', 'cuda->blaslt ? ", its first proposals" : ""',
     '", its first proposals"'),
)
mutate(
    'kernels/cuda/libraries/blaslt_open.c', 'cuda/faults e2e/device',
    ('absent is not the same as broken', 'there ? -ENODEV : -ENOENT', '-ENOENT'),
)
mutate(
    'kernels/cuda/libraries/blaslt.c', 'simt/suite/matmul',
    ('what lies unevenly is told', 'places % ALIGNMENT_BYTES ? places & -places : ALIGNMENT_BYTES',
     'ALIGNMENT_BYTES'),
)
mutate(
    'kernels/operations.c', 'kernels/matmul',
    ('a matrix begins at an element',
     ' && (uintptr_t)matrix->data % hst_dtype_bytes(matrix->dtype) == 0', ''),
)
mutate(
    'kernels/cuda/ops/matmul.cu', 'simt/matmul',
    ('nothing is added to a C that stays', ' || (!args->k && args->accumulate)', ''),
)
mutate(
    'kernels/cuda/ops/matmul.h', 'simt/matmul',
    ('a batch has all its tiles', '((args->n - 1) / columns + 1) * batch;',
     '((args->n - 1) / columns + 1);'),
    ('each product has its place', 'tile %= rows * columns;', ''),
    ('bands end with the rows', 'rows - first < BAND ? rows - first : BAND', 'BAND'),
    ('a matrix begins anywhere', '(uintptr_t)matrix.data % bytes == 0', 'true'),
    ('odd leading dimensions are seen', 'matrix.ld * element % bytes == 0', 'true'),
    ('what is there is added to', 'old[i] + sum[i]', 'sum[i]'),
    ('columns beyond the last stay', '        if (i < left) {', '        {'),
)
mutate(
    'kernels/cuda/ops/matmul_half.cu', 'simt/matmul',
    ('what lies unevenly is read one by one',
     '!begins_at(args->a, 16) || !begins_at(args->b, 16)', 'false'),
    ('each product has its operands', 'at.product * a.a_step', '0'),
    ('each product has its C', 'size_t begin = at.product * a.c_step;', 'size_t begin = 0;'),
    ('k ends where it ends', 'columns = ALONG ? depth : extent;',
     'columns = ALONG ? STEP : extent;'),
    ('a step is waited for', 'hst_cp_async_wait<STAGES - 2>();', ''),
    ('a tile waits for the one before',
     '        __syncthreads(); /* before the next tile', '        /* before the next tile'),
    ('sums wait for the last step', '        __syncthreads(); /* all have used the last step',
     '        /* all have used the last step'),
    ('offsets have 64 bits', 'row * matrix.ld + chunk * 8', '(int)(row * matrix.ld + chunk * 8)'),
)
mutate(
    'kernels/cuda/ops/matmul_f32.cu', 'simt/matmul',
    ('each product has its operands', 'at.product * a.b_step', '0'),
    ('each product has its C', '(float *)a.c.data + at.product * a.c_step', '(float *)a.c.data'),
    ('sums are fused', '__fmaf_rn(x[i / 4][i % 4], y[j / 4][j % 4], sum[i][j])',
     'x[i / 4][i % 4] * y[j / 4][j % 4] + sum[i][j]'),
    ('a tile waits for the one before',
     '        __syncthreads(); /* before the next tile', '        /* before the next tile'),
    ('a step waits for the one before',
     '            __syncthreads(); /* this step', '            /* this step'),
)
mutate(
    'kernels/operations.c', 'kernels/matmul',
    ('results of a batch lie apart',
     ' &&\n           args->c_step >= (args->m - 1) * args->c.ld + args->n', ''),
    ('steps are whole vectors', 'step * hst_dtype_bytes(dtype) % 16 == 0', 'dtype_ok(dtype)'),
)
mutate(
    'kernels/host/ops/matmul.c', 'kernels/matmul',
    ('each product has its operands', 'row_at(one.b.data, i, one.b_step,',
     'row_at(one.b.data, 0, one.b_step,'),
)
mutate(
    'tools/model/layer/linear.c', 'tools/model/linear',
    ('both of two are made', '            .batch = batch.count,\n            .b_step',
     '            .b_step'),
)
