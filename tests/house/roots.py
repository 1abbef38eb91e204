#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first day of somebody who has nothing: `./run demo` and `./run test` in a bare Debian.

    roots.py SOURCE_ROOT [KIND...] [--tests NAME...]

    root    root, in /root (which nobody else can enter), with git
    user    a user who has sudo, in the home directory, with git
    bare    root, from a tarball: no git, /tmp a tmpfs of 1 GiB, no /dev/pts

Each KIND (default: all) gets a system made by debootstrap, a copy of the sources, and nothing else.
Prints the seconds of each phase. --tests: only these of the tests, as `./run test NAME` takes them.
HOISTWAY_ROOT_BASE names a directory with a system to copy in place of making one. Needs root and a
Debian mirror; exits with 77, and says why, where it has not.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'style'))
from style import walk  # noqa: E402

SUITE, MIRROR = 'bookworm', 'http://deb.debian.org/debian'
APT_SOURCES = '/etc/apt/sources.list.d/debian.sources'  # of this machine: its mirror, if it has one
USER = 'anna'
KINDS = {
    'root': {'user': 'root', 'home': '/root', 'packages': ['git']},
    'user': {'user': USER, 'home': f'/home/{USER}', 'packages': ['git', 'sudo']},
    'bare': {'user': 'root', 'home': '/srv', 'packages': []},
}
TMPFS = 'mount -t tmpfs -o size=1g,mode=1777 tmpfs "$root/tmp"\n'
TERMINALS = 'mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"\n'
# In name spaces of its own: when it ends, so do its mounts and all that it started.
ENTER = """set -e
root=$1 user=$2
shift 2
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --bind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
{more}unset XDG_CACHE_HOME TMPDIR
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
exec chroot "$root" su "$user" -s /bin/bash -c "$*"
"""
GIT = ('git init -q && git add -A && git -c user.name=x -c user.email=x@example.org '
       'commit -q -m "as copied"')


def skip(why):
    print(f'skipped: {why}')
    sys.exit(77)


def need_root(*programs):
    if os.geteuid() != 0:
        skip('a system of its own (chroot, mounts) needs root')
    for program in programs:
        if not shutil.which(program):
            skip(f'{program} is not installed')


def make_base(folder, suite=SUITE, given=os.environ.get('HOISTWAY_ROOT_BASE')):
    """A minimal system, with this machine's way to the mirror."""
    base = given or os.path.join(folder, 'base')
    if not given:
        made = subprocess.run(['debootstrap', '--variant=minbase', suite, base, MIRROR],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if made.returncode:
            last = made.stdout.strip().splitlines()[-1:]
            skip(f'debootstrap ended with {made.returncode}: {" ".join(last)}')
    shutil.copy('/etc/resolv.conf', os.path.join(base, 'etc'))
    if suite == SUITE and os.path.exists(APT_SOURCES):
        shutil.copy(APT_SOURCES, base + APT_SOURCES)
        open(os.path.join(base, 'etc', 'apt', 'sources.list'), 'w', encoding='ascii').close()
    return base


def copy_sources(source, target):
    for path in walk(source):
        at = os.path.join(target, path)
        os.makedirs(os.path.dirname(at), exist_ok=True)
        shutil.copy2(os.path.join(source, path), at, follow_symlinks=False)


class Root:
    def __init__(self, kind, base, folder, source):
        self.kind, self.path = kind, os.path.join(folder, kind)
        self.user, home = KINDS[kind]['user'], KINDS[kind]['home']
        self.tree = os.path.join(home, 'hoistway')
        subprocess.run(['cp', '-a', base, self.path], check=True)
        self.must('apt-get', f'apt-get -q update && apt-get -qy install --no-install-recommends '
                  f'{" ".join(KINDS[kind]["packages"])}', user='root')
        if self.user != 'root':
            self.must('useradd', f'useradd -m {self.user} && echo "{self.user} ALL=(ALL) NOPASSWD: '
                      f'ALL" >/etc/sudoers.d/{self.user}', user='root')
        os.makedirs(self.path + home, exist_ok=True)
        copy_sources(source, self.path + self.tree)
        self.must('chown', f'chown -R {self.user}: {self.tree}', user='root')
        if 'git' in KINDS[kind]['packages']:
            self.must('git', f'cd {self.tree} && {GIT}')

    def command(self, line, user=None):
        more = TMPFS if self.kind == 'bare' else TERMINALS
        return ['unshare', '--mount', '--pid', '--fork', '--kill-child', 'bash', '-c',
                ENTER.replace('{more}', more), 'enter', self.path, user or self.user, line]

    def must(self, what, line, user=None):
        done = subprocess.run(self.command(line, user), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode:
            print(done.stdout)
            skip(f'{what} does not work in the new system (above)')

    def run(self, job):
        """-> exit status, lines; prints each as it comes, with the seconds of what went before."""
        begun = phase = time.monotonic()
        print(f'---- {self.kind}: ./run {job}', flush=True)
        lines = []
        with subprocess.Popen(self.command(f'cd {self.tree} && ./run {job}'), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, errors='replace',
                              stderr=subprocess.STDOUT) as child:
            for line in child.stdout:
                if line.startswith('==> '):
                    now = time.monotonic()
                    print(f'     ({now - phase:.0f} s)')
                    phase = now
                print(line, end='', flush=True)
                lines.append(line.rstrip('\n'))
        print(f'---- {self.kind}: ./run {job}: {time.monotonic() - begun:.0f} s, '
              f'exit {child.returncode}', flush=True)
        return child.returncode, lines


def try_kind(kind, base, folder, options):
    root = Root(kind, base, folder, options.source)
    failed = []
    status, _ = root.run('demo')
    if status:
        failed.append(f'{kind}: ./run demo ended with {status}')
    status, lines = root.run(' '.join(['test', *options.tests]))
    last = lines[-1] if lines else ''
    if status or not re.fullmatch(r'[1-9]\d* passed, 0 failed, \d+ skipped', last):
        failed.append(f'{kind}: ./run test ended with {status}: {last}')
    subprocess.run(['rm', '-rf', '--one-file-system', root.path], check=False)
    return failed


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('source')
    parser.add_argument('kinds', nargs='*')
    parser.add_argument('--tests', nargs='+', default=[])
    options = parser.parse_args()
    kinds = options.kinds or list(KINDS)
    if set(kinds) - set(KINDS):
        parser.error(f'a kind is one of: {" ".join(KINDS)}')
    need_root('debootstrap', 'unshare', 'chroot')
    with tempfile.TemporaryDirectory(prefix='hoistway-roots-') as folder:
        os.chmod(folder, 0o755)
        base = make_base(folder)
        failed = [line for kind in kinds for line in try_kind(kind, base, folder, options)]
    print('\n'.join(failed) or f'{", ".join(kinds)}: well')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
