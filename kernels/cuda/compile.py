#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles a file of kernels, and keeps what the compiler says of each kernel's resources.

    compile.py RESOURCES NVCC ARGUMENT... -o OBJECT

Runs NVCC with the arguments and `-Xptxas -v`. RESOURCES becomes a JSON object: `compiler`, NVCC's
version, and `kernels`, a list with an object for each kernel and architecture: kernel (its mangled
name), architecture, registers, stack_bytes, spill_store_bytes, spill_load_bytes, shared_bytes
(static), threads and blocks (of __launch_bounds__; 0 where the kernel asks for none) and dynamic
(whether it uses dynamic shared memory). `tests/cuda/resources.py` reads it. All of it is from the
run that makes the object; what NVCC says besides, as warnings, is passed on.
"""
import json
import os
import re
import shutil
import subprocess
import sys

ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(\S+)' for '(sm_\w+)'")
STACK = re.compile(r'\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads')
USED = re.compile(r'ptxas info\s*: Used (\d+) registers')
SHARED = re.compile(r'(\d+) bytes smem')
NOISE = re.compile(r'ptxas info\s*: (Function properties for|Compile time|\d+ bytes gmem)')
PTX_ENTRY = re.compile(r'^(?:\.visible )?\.entry (\w+)\((.*?)\)(.*?)^\{(.*?)^\}', re.S | re.M)
DYNAMIC = 'hst_dyn_shared'  # what HST_DYN_SHARED (launch.h) declares


def read_ptxas(lines):
    """(rows, what ptxas did not say) of the compiler's messages."""
    rows, rest, row = [], [], None
    for line in lines:
        entry, stack, used = ENTRY.match(line), STACK.match(line), USED.match(line)
        if entry:
            row = {'kernel': entry[1], 'architecture': entry[2]}
        elif stack and row is not None:
            row.update(zip(('stack_bytes', 'spill_store_bytes', 'spill_load_bytes'),
                           map(int, stack.groups())))
        elif used and row is not None and 'stack_bytes' in row:
            shared = SHARED.search(line)
            rows.append({**row, 'registers': int(used[1]),
                         'shared_bytes': int(shared[1]) if shared else 0})
            row = None
        elif not NOISE.match(line):
            rest.append(line)
    if row is not None:
        raise ValueError(f"ptxas did not say what {row['kernel']} uses")
    return rows, rest


def read_ptx(text):
    """{kernel: its launch bounds, and whether it uses dynamic shared memory} of PTX."""
    kernels = {}
    for name, _, directives, body in PTX_ENTRY.findall(text):
        threads = re.search(r'\.maxntid (\d+)(?:, (\d+))?(?:, (\d+))?', directives)
        blocks = re.search(r'\.minnctapersm (\d+)', directives)
        count = 1
        for side in threads.groups() if threads else ():
            count *= int(side or 1)
        kernels[name] = {'threads': count if threads else 0,
                         'blocks': int(blocks[1]) if blocks else 0, 'dynamic': DYNAMIC in body}
    return kernels


def kernels_of(folder):
    kernels = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith('.ptx'):
            with open(os.path.join(folder, name), encoding='utf-8') as f:
                for kernel, bounds in read_ptx(f.read()).items():
                    if kernels.setdefault(kernel, bounds) != bounds:
                        raise ValueError(f'{kernel} differs between architectures: {bounds}')
    return kernels


def version_of(nvcc):
    text = subprocess.run([nvcc, '--version'], capture_output=True, text=True, check=True).stdout
    return re.search(r'\bV([\d.]+)', text)[1]


def main(resources, command):
    keep = resources + '.keep'  # the same folder each time: its name may be in the object
    shutil.rmtree(keep, ignore_errors=True)
    os.makedirs(keep)
    try:
        # One ptxas at a time: all write to the same stderr.
        run = subprocess.run([*command, '-Xptxas', '-v', '--keep', '--keep-dir', keep],
                             stderr=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            sys.stderr.write(run.stderr)
            return run.returncode
        rows, rest = read_ptxas(run.stderr.splitlines(keepends=True))
        sys.stderr.writelines(rest)
        kernels = kernels_of(keep)
    finally:
        shutil.rmtree(keep, ignore_errors=True)
    for row in rows:
        row.update(kernels[row['kernel']])
    with open(resources, 'w', encoding='utf-8') as f:
        json.dump({'compiler': version_of(command[0]), 'kernels': rows}, f, indent=0)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 2 else __doc__)
