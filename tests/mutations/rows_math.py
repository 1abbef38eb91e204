# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of what names the bits, and of what opens OpenBLAS."""
from rows import mutate

mutate(
    'kernels/host/cores.c', 'kernels/cores',
    ('names are found in any case of letters', 'strcasecmp(cores[i].name, name) == 0',
     '__builtin_strcmp(cores[i].name, name) == 0'),
    ('an instruction set that is missing is one', 'core->needs & ~features & BIT(f)',
     'core->needs & ~features & BIT(0)'),
)
mutate(
    'kernels/host/blas.c', 'kernels/cores',
    ('a process has one core',
     'blas.handle ? compare_core(core, failure)', 'blas.handle ? 0'),
)
mutate(
    'kernels/host/gemm_bf16.c', 'kernels/gemm_bf16',
    ('what is below 2^-126 is zero in FMA too', 'zeros = 0x8040;', 'zeros = 0;'),
    ('stretches are added up', 'tiles(g, &a, &b, k || g->accumulate,',
     'tiles(g, &a, &b, g->accumulate,'),
    ('the last stretch alone is rounded', 'last && g->rounded', 'g->rounded'),
)
mutate(
    'kernels/host/gemm_bf16_pack.h', 'kernels/gemm_bf16',
    ('a NaN has no payload', 'nan, sums, (__m512)_mm512_set1_epi32(0x7fc00000)',
     'nan, sums, sums'),
    ('the last of an odd k has no second term', '2 * pair + 1 < s->terms ? there : 0', 'there'),
    ('a tie goes to the even number', '_mm512_set1_epi32(0x7fff)), odd)',
     '_mm512_set1_epi32(0x7fff)), one)'),
)
mutate(
    'kernels/host/gemm_bf16_amx.c', 'kernels/gemm_bf16',
    ('stretches are added up', 'g->accumulate || !s->first', 'g->accumulate'),
    ('the panel in use is not that which is packed', 's->panels[row / SIDE % 2]);',
     's->panels[0]);'),
    ('the last of an odd k has no second term', '2 * pair + 1 < s->terms ? there : 0', 'there'),
    ('the definition has even terms and odd ones apart', 'sums[i % 2] = _mm512_fmadd_ps(',
     'sums[0] = _mm512_fmadd_ps('),
)
mutate(
    'kernels/host/gemm_bf16_choose.c', 'kernels/gemm_bf16',
    ('an older core has the bytes of its processors',
     'if (!core_has(core, HOST_BF16_FMA) || ', 'if ('),
    ('a core without AMX has the bytes of its processors',
     'core_has(core, HOST_BF16_AMX) && ', ''),
    ('AMX is not used without leave', 'XFEATURE_XTILEDATA) != 0)\n        return 0;',
     'XFEATURE_XTILEDATA) != 0)\n        *fault = NULL;'),
    ('what AMX makes is told', '", own GEMMs of bf16 by AMX, attention by AMX"',
     '", own GEMMs of bf16"'),
    ('a word that stands twice is refused',
     'kernel != HOST_BF16_ANY ? wish->kernel != HOST_BF16_ANY',
     'kernel != HOST_BF16_ANY ? false'),
)
mutate(
    'kernels/host/device.c', 'kernels/gemm_bf16',
    ('fp32 does not depend on who makes bf16', 'host->bf16_asked ? ', 'true ? '),
)
mutate(
    'kernels/host/blas_equal.c', 'kernels/cores',
    ('cores are equal in the version that was compared',
     '    if (strncmp(a, compared, prefix) != 0 || strncmp(b, compared, prefix) != 0)\n'
     '        return false;\n', ''),
    ('what stands behind the core counts', ' && strcmp(a + a_length, b + b_length) == 0', ''),
)
mutate(
    'kernels/host/blas_find.c', 'kernels/blas_opened',
    ('room is looked at before the library is loaded',
     'if (handle || !host_blas_room(false, callers, failure))', 'if (handle)'),
    ('the folders of the environment come first',
     '    if (is_in_environment(search))\n        return true;\n', ''),
)
mutate(
    'kernels/base/folders.c', 'kernels/plugin',
    ('a folder that is not absolute is passed over', "*folder == '/' && length < PATH_MAX",
     'length < PATH_MAX'),
    ('the folders after the first count too', '        folder += length + 1;\n',
     '        return false;\n'),
    ('who does not find it says where it was', 'if (tell && length)', 'if (false)'),
)
mutate(
    'engine/ckpt/version_text.c', 'engine/version_text',
    ('the line is taken out', '    memmove(line, next, strlen(next) + 1);\n', ''),
    ('texts are told from the start of an item',
     '        same--;\n', '        break;\n'),
)
mutate(
    'engine/session/store/versions.c', 'e2e/host_math',
    ('a resume compares what bits depend on',
     '    other_run_tell_math(engine, engine->versions.math);\n', ''),
)
