#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a folder that runs on another x86-64 Linux: program, plugin, tests, and what they need.

    make_bundle.py BUILD_FOLDER OUT [--archive]

OUT is replaced if it is an earlier bundle, refused if it is anything else. In it: bin/, lib/,
tests/gpu/, run (jobs gpu and demo), bundle.json. Every run path is relative to its file. Of the
Debian libraries all are taken but the C library's own, which must come with the system's loader;
of OpenBLAS what single precision needs (bundle_blas.py). NVIDIA's are not in it: the driver's is
the machine's, cuBLASLt and cuDNN are found as HOISTWAY_CUDA_PATH or the system's loader says. Nor
is Open MPI: lib/ranks has the plugin that takes the machine's.
--archive: makes OUT.tar.xz beside it. Fails where OUT has more than 20 MiB, or the archive 8.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile

import bundle_blas
import parts
import place

MOST_BYTES, ARCHIVE_MOST_BYTES = 20 << 20, 8 << 20
PROGRAMS = ('hoistway', 'bench_gemm', 'bench_ranks', 'test_kernels_triage', 'blas_bytes',
            *(f'test_kernels_{unit}' for unit in parts.CONFORMANCE))
# Opened by the host device, so no program names it; looked for in this folder beside the library.
BLAS, BLAS_FOLDER = 'libopenblas.so.0', 'lib/openblas-openmp'
RANKS_FOLDER = 'lib/ranks'
# Of the C library, and of the machine.
FOREIGN = re.compile(r'^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util)'
                     r'|libcuda|libcudart|libcublas(Lt)?|libcudnn.*|libnvidia.*)\.so(\.\d+)*$')


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'bundle: {" ".join(command)}: {done.stdout}{done.stderr}')
    return done.stdout


def libraries_of(path):
    """soname -> path of all that the loader would take for it, but what is foreign."""
    found = {}
    for line in run('ldd', path).split('\n'):
        name, arrow, rest = line.strip().partition(' => ')
        if not arrow or FOREIGN.match(os.path.basename(name)):
            continue
        if 'not found' in rest:
            sys.exit(f'bundle: {path} needs {name}, which is not found')
        found[name] = rest.rsplit(' (', 1)[0]
    return found


def put(source, target, run_path):
    """A copy without debug information, whose libraries are found from where it lies."""
    shutil.copyfile(os.path.realpath(source), target)
    os.chmod(target, 0o755)
    strip(target, run_path)


def strip(path, run_path):
    run('strip', '--strip-unneeded', path)
    run('patchelf', '--set-rpath', run_path, path)


def find(build, name):
    """A file of the build by its name alone; None where it is not built."""
    for folder in ('tools', 'tests/kernels', 'tests/gpu', 'kernels/cuda', 'engine/comm/mpi'):
        path = os.path.join(build, folder, name)
        if os.path.isfile(path):
            return path
    return None


def fill(build, out):
    for folder in ('bin', 'lib/hwloc', BLAS_FOLDER, RANKS_FOLDER, 'tests/gpu'):
        os.makedirs(os.path.join(out, folder))
    libraries, missing = {}, []
    for name in PROGRAMS:
        path = find(build, name)
        if not path:
            missing.append(name)
            continue
        print(f'bundle: {name}', flush=True)
        libraries.update(libraries_of(path))
        put(path, os.path.join(out, 'bin', name), '$ORIGIN/../lib')
    plugin = find(build, 'libhoistway-cuda.so')
    if plugin:
        libraries.update(libraries_of(plugin))
        libraries['libhoistway-cuda.so'] = plugin
    else:
        missing.append('libhoistway-cuda.so')
    ranks = find(build, place.RANKS_PLUGIN)
    if ranks:
        put(ranks, os.path.join(out, RANKS_FOLDER, place.RANKS_PLUGIN), '$ORIGIN/..')
    else:
        missing.append(place.RANKS_PLUGIN)
    # that which the build was made with, and what it needs itself
    blas = os.path.join(out, BLAS_FOLDER, BLAS)
    bundle_blas.link(run, libraries_of(find(build, 'blas_bytes_linked'))[BLAS], blas)
    libraries.update(libraries_of(blas))
    strip(blas, '$ORIGIN/..')
    for name, path in sorted(libraries.items()):
        print(f'bundle: {name}', flush=True)
        put(path, os.path.join(out, 'lib', name), '$ORIGIN')
    for name in sorted(os.listdir(place.HERE)):
        if name.endswith('.py'):
            shutil.copy(os.path.join(place.HERE, name), os.path.join(out, 'tests/gpu', name))
    shutil.copy(os.path.join(place.ROOT, 'run'), os.path.join(out, 'run'))
    shutil.copy(os.path.join(place.ROOT, 'LICENSE'), os.path.join(out, 'LICENSE'))
    shutil.copy(os.path.join(place.ROOT, 'docs/gpu-suite.md'), os.path.join(out, 'README.md'))
    with open(os.path.join(out, 'bundle.json'), 'w', encoding='utf-8') as file:
        json.dump({'commit': place.commit(), 'missing': missing,
                   'libraries': sorted([*libraries, BLAS])}, file, indent=1)
        file.write('\n')
    return missing


def sizes(out):
    found = []
    for folder, _, files in os.walk(out):
        found += [(os.path.getsize(os.path.join(folder, f)),
                   os.path.relpath(os.path.join(folder, f), out)) for f in files]
    return sorted(found, reverse=True)


def check_size(what, size, most, out):
    if size <= most:
        return
    for part, name in sizes(out):
        print(f'{part / 2**20:8.2f} MiB  {name}')
    sys.exit(f'bundle: {what} has {size / 2**20:.1f} MiB; the most is {most / 2**20:.0f}')


def archive(out):
    """OUT.tar.xz, which unpacks into a folder of OUT's name."""
    path = out + '.tar.xz'
    with tarfile.open(path + '.new', 'w:xz', preset=9) as file:
        file.add(out, os.path.basename(out))
    os.replace(path + '.new', path)
    size = os.path.getsize(path)
    check_size(path, size, ARCHIVE_MOST_BYTES, out)
    print(f'==> {path}: {size / 2**20:.1f} MiB')


def main(build, out, archived=False):
    out = os.path.abspath(out)
    if os.path.lexists(out) and not os.path.exists(os.path.join(out, 'bundle.json')):
        sys.exit(f'bundle: {out} is there and is not an earlier bundle')
    shutil.rmtree(out, ignore_errors=True)
    new = out + '.new'
    shutil.rmtree(new, ignore_errors=True)
    missing = fill(build, new)
    os.rename(new, out)
    found = sizes(out)
    total = sum(size for size, _ in found)
    check_size(out, total, MOST_BYTES, out)
    for name in missing:
        print(f'==> bundle: without {name}, which this build does not have')
    print(f'==> {out}: {len(found)} files, {total / 2**20:.1f} MiB')
    if archived:
        archive(out)


if __name__ == '__main__':
    words = [word for word in sys.argv[1:] if word != '--archive']
    if len(words) != 2:
        sys.exit(__doc__)
    main(*words, archived='--archive' in sys.argv)
