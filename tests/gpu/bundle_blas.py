# SPDX-License-Identifier: Apache-2.0
"""OpenBLAS for a bundle: of Debian's static library what products in single precision need.

Debian's shared library is 36 MB, nearly all of it kernels for double and complex numbers, twenty
processors each, and LAPACK. The static library beside it is made of the same objects, so what is
linked from it gives the same bytes. Each processor's table, setparam_PROCESSOR.o, names all of its
kernels: those that are not of single precision are made zero before the linker looks for them.
"""
import os
import re
import sys
import tempfile

# What kernels/host looks up by dlsym, and nothing else. Without the functions at the end a
# processor that this OpenBLAS does not know has its oldest kernels.
USED = ('cblas_sgemm', 'openblas_get_config', 'openblas_get_corename', 'openblas_get_parallel',
        'openblas_set_num_threads', 'blas_memory_alloc', 'blas_memory_free',
        'gotoblas_dynamic_init', 'gotoblas_dynamic_quit')
NAMED = re.compile(r':setparam_[A-Z0-9_]+\.o: +U (\w+_[A-Z]\w*)$', re.M)
KEPT = re.compile(r'i?s[a-z]')  # sgemm_kernel_ZEN, isamax_k_ZEN
RESERVED = '_GLOBAL_OFFSET_TABLE_'


def left_out(undefined):
    """Kernels in the tables that are left out. undefined: what `nm -A -u` says of the archive."""
    return sorted({name for name in NAMED.findall(undefined)
                   if name != RESERVED and not KEPT.match(name)})


def link(run, shared, out):
    """Writes `out` from the static library beside the shared one. run: runs a command, returns what
    it said, ends the program where it fails."""
    archive = os.path.join(os.path.dirname(os.path.realpath(shared)), 'libopenblas.a')
    if not os.path.exists(archive):
        sys.exit(f'bundle: no {archive}. Fix: apt install libopenblas-openmp-dev')
    names = left_out(run('nm', '-A', '-u', archive))
    if not names:
        sys.exit(f'bundle: {archive} is not built for several processors (DYNAMIC_ARCH)')
    with tempfile.TemporaryDirectory() as folder:
        exported, none = os.path.join(folder, 'exported'), os.path.join(folder, 'none')
        with open(exported, 'w', encoding='ascii') as file:
            file.write('{ global: ' + ' '.join(f'{name};' for name in USED) + ' local: *; };\n')
        with open(none, 'w', encoding='ascii') as file:
            file.writelines(f'{name} = 0;\n' for name in names)
        run('cc', '-shared', '-o', out, f'-Wl,-soname,{os.path.basename(out)}',
            f'-Wl,--version-script,{exported}', '-Wl,--gc-sections,-z,defs',
            *(f'-Wl,-u,{name}' for name in USED), none, archive, '-lgomp', '-lm', '-lpthread')
