# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks beside fio share: its command line, and huge pages for its buffers.

Memory decides more than any setting of a queue: a block of 1 MiB in huge pages is one segment, in
small ones up to 256. Ours always asks for huge pages, so fio gets them from a pool that is set up
for it where this is root, and it is said where it is not.
"""
import contextlib
import json
import subprocess
import sys

POOL = '/proc/sys/vm/nr_hugepages'
HUGE_BYTES = 2 << 20


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f'{" ".join(command)}\n{done.stdout}{done.stderr}')
    return json.loads(done.stdout[done.stdout.index('{'):])


def free_pages():
    with open('/proc/meminfo', encoding='ascii') as file:
        return next(int(line.split()[1]) for line in file if line.startswith('HugePages_Free'))


@contextlib.contextmanager
def huge_pages(size_bytes):
    """A pool that holds buffers of so many bytes, for the time of a `with`; yields whether it is
    there. What the pool had before comes back."""
    wanted = size_bytes // HUGE_BYTES + 8
    with open(POOL, encoding='ascii') as file:
        before = int(file.read())
    more = max(wanted - free_pages(), 0)
    try:
        if more:
            with open(POOL, 'w', encoding='ascii') as file:
                file.write(str(before + more))
    except PermissionError:
        more = 0
    try:
        yield free_pages() >= wanted
    finally:
        if more:
            with open(POOL, 'w', encoding='ascii') as file:
                file.write(str(before))


def command(path, kind, block_kib, depth, *, size_mib, fixed=1, huge=True, loops=1):
    """io_uring, O_DIRECT; `fixed`: buffers and files registered with the ring; its buffers are not
    changed between writes, as ours are not."""
    return ['fio', '--name=x', f'--filename={path}', f'--size={size_mib}M', f'--rw={kind}',
            f'--bs={block_kib}k', f'--iodepth={depth}', '--direct=1', '--ioengine=io_uring',
            f'--fixedbufs={fixed}', f'--registerfiles={fixed}', '--scramble_buffers=0',
            f'--iomem={"mmaphuge" if huge else "malloc"}', '--fallocate=none', f'--loops={loops}',
            '--output-format=json']


def measure(*args, **settings):
    """Bytes per second and CPU seconds per GB of one run."""
    job = run(command(*args, **settings))['jobs'][0]
    moved = job['read']['io_bytes'] + job['write']['io_bytes']
    seconds = job['job_runtime'] / 1e3
    busy = (job['usr_cpu'] + job['sys_cpu']) / 100 * seconds
    return {'rate': moved / seconds, 'cpu': busy / moved * 1e9}
