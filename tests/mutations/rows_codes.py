# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of moments in codes of 8 bits: the map, scales, blocks, alignment."""
from rows import mutate

mutate(
    'cpu_adam/codes.h', 'cpu_adam/codes',
    ("v's code 0 is not zero", '#define V_LEAST    0x1p-25f', '#define V_LEAST    0.0f'),
    ('a scale that is too small is zero', 'if (scale < FLT_MIN)', 'if (scale < 0)'),
    ('a block that is not finite has no scale', 'if (!(scale <= FLT_MAX))', 'if (0)'),
    ("m's largest is kept", '#define M_TO_SCALE ((float)(1 / (1.0 - 7.0 / 8 / 128)))',
     '#define M_TO_SCALE 1.0f'),
    ("v's largest is kept", '#define V_TO_SCALE ((float)(1 / (1.0 - 7.0 / 8 / 256)))',
     '#define V_TO_SCALE 1.0f'),
)

mutate(
    'cpu_adam/codes.h', 'cpu_adam/update',
    ('lines of numbers', '(double)(1 << 3 * (down)) * 8 / 7))', '(double)(1 << 3 * (down))))'),
    ('lines of codes', '((0.5 - (double)(1 << (i)) * 6 / 7)',
     '((0.6 - (double)(1 << (i)) * 6 / 7)'),
)

mutate(
    'cpu_adam/plain.h', 'cpu_adam/update',
    ('a code has the sign', '| (bits_of(m[i]) >> 24 & 0x80u)', ''),
    ('a moment in codes, that of its p', "write_master(kind.weights, weights, master, i, "
     "canonical(e.p));\n        m[i]", 'm[i]'),
)

mutate(
    'cpu_adam/codes_isa.h', 'cpu_adam/codes',
    ('what is behind the range is in no scale', 'each[i / 2 + (i % 2 ? LANES : 0)] = 0;', ';'),
)

mutate(
    'cpu_adam/codes_isa.h', 'cpu_adam/isa-avx2',
    ('codes that were left are written', '    write_left(&blocks[turn ^ 1]);\n', ''),
    ('codes of a block beside the next', '            write_left_pairs(before, i);\n', ''),
    ('a block without a scale is written at once',
     'n == HST_CODE_BLOCK && m.inverse != 0 && v.inverse != 0', 'n == HST_CODE_BLOCK'),
)

mutate(
    'cpu_adam/codes_isa.h', 'cpu_adam/isa-avx512',
    ('a NaN of a moment is noted', '        note_nan(&blocks->m, m);\n', ''),
)

mutate(
    'cpu_adam/codes_staged.h', 'cpu_adam/codes',
    ('half of the least scales is a denormal', 'scale >= 2 * FLT_MIN || scale == 0', 'scale >= 0'),
    ('a block without a scale of m is no stage', 'b.moments->m_written.inverse != 0 && ', ''),
    ('a block of another way is updated', '        if (moments && !done)\n', '        if (0)\n'),
    ('its results are no stage', 'results = done ? moments : NULL', 'results = moments'),
    ('the last blocks are written', 'i < whole || moments || results', 'i < whole || moments'),
    ('a weight that is no number', 'if (some_nan(p))', 'if (0)'),
)

mutate(
    'kernels/cuda/ops/codes.h', 'simt/suite/optimizer',
    ('a segment has three exponents', 'below / 3', 'below / 4'),
    ('a block that is not finite has no scale', 'if (!(scale <= 0x1.fffffep127f))', 'if (0)'),
)

mutate(
    'kernels/cuda/ops/optimizer.cu', 'simt/suite/optimizer',
    ('what is behind the range is left alone', 'if ((size_t)i < left)\n            to[i]',
     'to[i]'),
)

mutate(
    'cpu_adam/into.c', 'cpu_adam/into',
    ('scales go elsewhere too',
     '        send_scales(t.v_scales, here.v_scales, scale_bytes);\n', ''),
)

mutate(
    'engine/session/device.c', 'e2e/bit_identity e2e/optimizers',
    ('tensors begin at blocks', 'if (engine->optimizer->granularity > LAYOUT_PARAM_ALIGN)',
     'if (0)'),
)
