# SPDX-License-Identifier: Apache-2.0
"""What tests of several ranks share: how they are started, and who of them runs."""
import os
import re
import shlex
import shutil
import subprocess
import tempfile


def environment(folder):
    """Without MPI settings of the caller's, plugins being in that folder; no card and no fast
    network is looked for, nor where PCI devices are: in a virtual machine that takes each process
    tens of milliseconds. Where a rank fails the others are ended at once: mpirun would give each a
    second, whether it is there still or not. Nor is munge asked who they are: where its daemon has
    left a socket and is gone, each mpirun takes two seconds longer."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(('OMPI_', 'PMI'))}
    return {**kept, 'HOISTWAY_PLUGIN_PATH': folder, 'OMPI_MCA_btl': 'self,vader,tcp',
            'OMPI_MCA_pml': 'ob1', 'HWLOC_COMPONENTS': '-pci,-linuxio',
            'OMPI_MCA_rmaps_base_oversubscribe': '1', 'OMPI_MCA_odls_base_sigkill_timeout': '0',
            'PMIX_MCA_psec': 'native'}


def missing(folder):
    """No ranks can be started."""
    return not shutil.which('mpirun') or not os.path.exists(
        os.path.join(folder, 'libhoistway-mpi.so'))


def launcher(ranks):
    root = ['--allow-run-as-root'] if os.geteuid() == 0 else []
    return ['mpirun', *root, '--oversubscribe', '--bind-to', 'none', '-n', str(ranks)]


def as_mpich():
    """What follows a launcher where ranks are not to know of mpirun of Open MPI. They would be
    ended by MPI_Abort then, which says so."""
    return ['bash', '-c', 'export PMI_SIZE=$OMPI_COMM_WORLD_SIZE PMI_RANK=$OMPI_COMM_WORLD_RANK; '
            'unset ${!OMPI_COMM_WORLD_*}; exec "$@"', 'bash']


def shard_bytes(ranks, units):
    """Of f32, of units of so many elements: each is cut into as many shards of whole blocks."""
    return sum(-(-elements // (4096 * ranks)) * 4096 * 4 for elements in units)


def small_memory(test, size):
    """What a command is started by that has so little in /dev/shm, as in Docker. Open MPI's own
    files lie elsewhere: mpirun 4.1 may crash while it says that there is no room for them."""
    mount = (f'mount -t tmpfs -o size={size} none /dev/shm && export '
             f'OMPI_MCA_btl_vader_backing_directory={shlex.quote(tempfile.gettempdir())} && '
             'exec "$@"')
    command = ['unshare', '-m', 'sh', '-c', mount, 'sh']
    if subprocess.run([*command, 'true'], capture_output=True, check=False).returncode:
        test.skipTest('no mount of its own can be made (unshare -m)')
    return command


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


def errors_of(told):
    """What is told, once each: where ranks refuse alike the others are silent, unless the launcher
    takes more than two seconds to end them."""
    return set(re.findall(r'error\[[^\n]*', told))
