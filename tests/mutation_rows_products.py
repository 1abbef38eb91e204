# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the CUDA device's own matrix products, and of their choice."""
from mutation_rows import mutate

mutate(
    'kernels/cuda/matmul.c', 'cuda/faults',
    ('another word is refused', '!any && strcmp(wish, "cublaslt") != 0', 'false'),
    ('own products never open the library', '!any && strcmp(wish, "own") == 0', 'false'),
    ('what is asked for and absent is an error', '    if (!any)\n        return -ENODEV;\n', ''),
    ('what is found and not usable is an error', 'if (rc != -ENOENT)', 'if (!rc)'),
    ('what is absent is named', 'snprintf(absent, absent_bytes, "%s", BLASLT_SONAME);', ''),
)
mutate(
    'kernels/cuda/math.c', 'cuda/faults e2e/host_math',
    ('own products propose nothing', 'cuda->blaslt ? ", its first proposals" : ""',
     '", its first proposals"'),
)
mutate(
    'kernels/cuda/blaslt_open.c', 'cuda/faults e2e/device',
    ('absent is not the same as broken', 'there ? -ENODEV : -ENOENT', '-ENOENT'),
)
mutate(
    'kernels/cuda/blaslt.c', 'simt/suite/matmul',
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
    ('sums are fused', '__fmaf_rn(x[i / 4][i % 4], y[j / 4][j % 4], sum[i][j])',
     'x[i / 4][i % 4] * y[j / 4][j % 4] + sum[i][j]'),
    ('a tile waits for the one before',
     '        __syncthreads(); /* before the next tile', '        /* before the next tile'),
    ('a step waits for the one before',
     '            __syncthreads(); /* this step', '            /* this step'),
)
