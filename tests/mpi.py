# SPDX-License-Identifier: Apache-2.0
"""What tests of several ranks share: how they are started, and who of them runs."""
import os


def environment(folder):
    """Without MPI settings of the caller's, plugins being in that folder; no card and no fast
    network is looked for."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(('OMPI_', 'PMI'))}
    return {**kept, 'HOISTWAY_PLUGIN_PATH': folder, 'OMPI_MCA_btl': 'self,vader,tcp',
            'OMPI_MCA_pml': 'ob1', 'OMPI_MCA_rmaps_base_oversubscribe': '1'}


def launcher(ranks):
    root = ['--allow-run-as-root'] if os.geteuid() == 0 else []
    return ['mpirun', *root, '--oversubscribe', '--bind-to', 'none', '-n', str(ranks)]


def rank_of(entry):
    with open(f'{entry.path}/environ', encoding='utf-8', errors='replace') as f:
        words = f.read().split('\0')
    return next((int(w.split('=')[1]) for w in words if w.startswith('OMPI_COMM_WORLD_RANK=')), -1)


def processes(program, word):
    """Those of a program that have this word among their arguments, in the order of their ranks."""
    found = []
    for entry in os.scandir('/proc'):
        try:
            with open(f'{entry.path}/cmdline', encoding='utf-8', errors='replace') as f:
                words = f.read().split('\0')
            if words[0] == program and word in words:
                found.append((rank_of(entry), int(entry.name)))
        except OSError:
            continue
    return [process for _, process in sorted(found)]
