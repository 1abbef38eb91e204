# SPDX-License-Identifier: Apache-2.0
"""Lives of a run of several ranks, each ended where a test wants it to be (ends.c) or at any
moment, and what has to be true of them. rank_ends.py and rank_soak.py draw them."""
import concurrent.futures
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mpi  # noqa: E402

STEPS = 12      # of a run; an end comes in the first three of a life
WAYS = 4
LIMIT_S = 5     # --peer-timeout of a life that ends early
PATIENT_S = 60  # of one that nobody ends: a busy drive may take longer than 5 s for a flush
GONE_S = 10     # all processes have ended, at most so long after one of them has
LOST_S = 20     # that long after its start mpirun is ended, where no rank is left
KINDS = (
    ('--precision=bf16', '--place=states=nvme,weights=nvme'),
    ('--precision=fp32', '--place=states=dram,weights=dram', '--update=optimistic', '--clip=4.8'),
    ('--precision=fp16', '--place=states=nvme,weights=nvme,grads=nvme,acts=nvme'),
    ('--precision=bf16', '--place=states=nvme', '--zero-stage=2', '--clip=0'),
    ('--precision=fp32', '--place=states=dram,weights=dram', '--zero-stage=1',
     '--update=optimistic', '--clip=4.8'),
    ('--precision=bf16', '--place=states=nvme', '--zero-stage=0', '--update=optimistic'),
    ('--precision=bf16', '--state=8bit', '--place=states=nvme'),
)
HOW = ('kill', 'segv', 'exit', 'fail')
# Where a life ends, and the most that a rank surely comes there in three steps. What the last rank
# has to update or to load may be one tile a step.
STEP_PLACES = {'forward': 12, 'backward': 12, 'gather': 15, 'exchange': 12, 'agree': 3, 'agreed': 3,
               'update': 3, 'manifest': 6, 'sync': 3, 'superblock': 6, 'superblock-sync': 3,
               'vote': 2, 'committed': 3}
# How often it comes there for the version that a load makes: nothing is left of that but by luck.
LOAD_PLACES = {'manifest': 2, 'sync': 1, 'superblock': 2, 'superblock-sync': 1}
FIRST_PLACES = {'load': 1, 'publish': 1}
LATER_PLACES = {'versions': 1, 'versions-seen': 1, 'opened': 2}
LAST_PLACES = {'export': 4, 'close': 1}


class Wrong(AssertionError):
    """What was seen of a run that should not be so."""


class End:
    """How a rank ends, and where: in the n-th time that it comes there."""

    def __init__(self, how, rank, place, nth=1):
        self.how, self.rank, self.place, self.nth = how, rank, place, nth

    def __str__(self):
        return f'{self.how},{self.rank},{self.place},{self.nth}'

    def leaves_version(self):
        return self.place in STEP_PLACES and self.nth > LOAD_PLACES.get(self.place, 0)


class Moment:
    """A rank that a signal ends so many seconds after the start; it may have ended by then."""

    def __init__(self, number, rank, seconds):
        self.number, self.rank, self.seconds = number, rank, seconds

    def __str__(self):
        return f'signal {self.number:d} to rank {self.rank} after {self.seconds:.2f} s'


class Programs:
    def __init__(self, program, with_ends, root, plugins):
        self.program, self.with_ends, self.plugins = program, with_ends, plugins
        self.model = os.path.join(root, 'tests', 'golden', 'untied-mha')

    def missing(self):
        there = os.path.exists(os.path.join(self.plugins, 'libhoistway-mpi.so'))
        return not (there and shutil.which('mpirun'))


def namespaces(programs):
    """The class of nodes of comm's test of ranks, whose arguments are a program and a folder."""
    path = os.path.join(sys.argv[3], 'tests', 'comm', 'ranks.py')
    spec = importlib.util.spec_from_file_location('comm_ranks', path)
    module = importlib.util.module_from_spec(spec)
    kept, sys.argv = sys.argv, [path, programs.with_ends, programs.plugins]
    try:
        spec.loader.exec_module(module)
    finally:
        sys.argv = kept
    return module.Nodes


AT_ONCE = 3  # a rank's end is mostly waited for


def all_of(test, work, rows):
    """work(*row) of each, some at once."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for row, done in [(row, pool.submit(work, *row)) for row in rows]:
            with test.subTest(row=row):
                done.result()


class Run:
    """A run in a folder of its own, for the time of a `with`; it has one life after another."""

    def __init__(self, programs, kind, ranks, steps=STEPS, limit_s=LIMIT_S, apart=False):
        """apart: each rank has a directory of its own."""
        self.tells_ways = True
        self.name = 'store{rank}' if apart else 'store'
        self.on_nodes = None # how many ranks each has; None: as many
        self.programs, self.kind, self.ranks = programs, kind, ranks
        self.steps, self.limit_s = steps, limit_s

    def __enter__(self):
        self.folder = os.path.abspath(tempfile.mkdtemp(prefix='hst-lives-', dir='.'))
        self.store, self.mark = self.path(self.name), self.path('mark')
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def options(self, *more, limit_s=None):
        tokens = os.path.join(self.programs.model, 'tokens.bin')
        own = [word for word in (f'--data={tokens}', '--lr=1e-3', '--batch-tokens=96')
               if not any(k.startswith(word[:word.index('=') + 1]) for k in self.kind)]
        return ['train', '--device=host', '--model', self.programs.model, *own,
                '--steps', str(self.steps), '--seq-len=24',
                *([f'--ways={WAYS}'] if self.tells_ways else []), '--threads=1',
                '--store', self.store, '--log', self.path('log.jsonl'), '--export',
                self.path('export'), '--export-dtype=fp32',
                '--durability=step', f'--peer-timeout={limit_s or self.limit_s}', *self.kind, *more]

    def environment(self, end=None, patience_s=0):
        """patience_s: how long mpirun lets ranks end by themselves."""
        env = mpi.environment(self.programs.plugins)
        env['OMPI_MCA_odls_base_sigkill_timeout'] = str(patience_s)
        if isinstance(end, End):
            env.update(HOISTWAY_END=str(end), HOISTWAY_END_MARK=self.mark)
        return env

    def start(self, *more, end=None, patience_s=0, launcher=None, last_rank=None, nodes=None,
              limit_s=None):
        """launcher: its words, in place of those of mpirun on this machine; last_rank: the words of
        what starts the last rank, which is another program for mpirun then; nodes: two, with half
        of the ranks each."""
        self.program = self.programs.with_ends if isinstance(end, End) else self.programs.program
        if os.path.exists(self.mark):
            os.unlink(self.mark)
        words = [self.program, *self.options(*more, limit_s=limit_s)]
        env = self.environment(end, patience_s)
        under = mpi.launcher(self.ranks) if launcher is None else launcher
        if last_rank is not None:
            under = mpi.launcher(self.ranks - 1)
            words += [':', '-n', '1', *last_rank, *words]
        if nodes is not None:
            under = nodes.command(self.on_nodes or [self.ranks // 2] * 2)[:-1]
            under += [word for name in sorted(env) if name.startswith('HOISTWAY_END')
                      for word in ('-x', name)]
            env.update(nodes.environment())
        with open(self.path('stderr'), 'wb') as told, open(self.path('stdout'), 'wb') as said:
            return subprocess.Popen([*under, *words], stdout=said, stderr=told, env=env)

    def read(self, name):
        with open(self.path(name), encoding='utf-8', errors='replace') as file:
            return file.read()

    def processes(self):
        return mpi.processes(self.program, self.store)

    def end_all(self):
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def struck(self):
        """The clock when a rank ended; None: it did not."""
        if not os.path.exists(self.mark):
            return None
        text = self.read('mark')
        return float(text) if text.endswith('\n') else None

    def wait_for_mark(self, child, seconds=60):
        until = time.monotonic() + seconds
        while self.struck() is None:
            if child.poll() is not None or time.monotonic() > until:
                raise Wrong(f'it never came there: {self.read("stderr")}')
            time.sleep(0.005)

    def mpirun_may_wait(self):
        """For nobody, where a rank was killed that was about to join the others: docs/launch.md."""
        return 'PMIX ERROR: UNREACHABLE' in self.read('stderr')

    def wait_until_gone(self, child, since, within):
        """All processes, and mpirun. -> its status"""
        while child.poll() is None or self.processes():
            took = time.monotonic() - since
            if took > LOST_S and not self.processes() and self.mpirun_may_wait():
                print('mpirun did not end by itself', flush=True)
                child.kill()
                child.wait()
            if took > within:
                left = self.processes()
                self.end_all()
                child.kill()
                child.wait()
                raise Wrong(f'{len(left)} processes are left after {within:.0f} s: '
                            f'{self.read("stderr")}')
            time.sleep(0.005)
        return child.returncode

    def told_late(self, child, within):
        """What is told where a rank has stopped, and all end with 1 behind their limit."""
        self.wait_for_mark(child)
        status, told = self.wait_until_gone(child, time.monotonic(), within), self.read('stderr')
        if status != 1:
            raise Wrong(f'it ends with {status}: {told}')
        return told

    # ---- what the log has ----

    def lines(self, kind):
        if not os.path.exists(self.path('log.jsonl')):
            return []
        with open(self.path('log.jsonl'), encoding='utf-8') as file:
            return [json.loads(text) for text in file
                    if text.endswith('}\n') and f'"kind":"{kind}"' in text]

    def committed(self):
        return max((line['step'] for line in self.lines('commit')), default=None)

    def told(self, kind, *what):
        lines = [tuple(line[key] for key in what) for line in self.lines(kind)]
        if len(set(lines)) != len(lines):
            raise Wrong(f'a {kind} is told twice: {lines}')
        return lines

    def kept(self):
        """In each directory, where all ranks have theirs."""
        names = {self.name.format(rank=rank) for rank in range(self.ranks)}
        found = [[kept for kept in os.listdir(self.path(name)) if kept.startswith('step-')]
                 for name in sorted(names)]
        if any(sorted(kept) != sorted(found[0]) for kept in found):
            raise Wrong(f'ranks have kept {found}')
        return sorted(found[0])

    def came_to(self):
        """Each step's loss and norm, what was evaluated and sampled, and the exported bytes."""
        steps = self.told('step', 'step', 'loss', 'grad_norm')
        steps += self.told('eval', 'step', 'loss') + self.told('sample', 'step', 'number', 'text')
        return steps, self.exported()

    def exported(self):
        sums = {}
        for name in sorted(os.listdir(self.path('export'))):
            with open(os.path.join(self.path('export'), name), 'rb') as file:
                sums[name] = hashlib.sha256(file.read()).hexdigest()
        return sums

    # ---- a life ----

    def check_start(self, known, told):
        """No version that was told as committed is lost."""
        after = re.search(r'going on after step (\d+)', told)
        if known and after and int(after[1]) < known:
            raise Wrong(f'version {known} was lost: {told}')
        if known and 'the run begins at step 0' in told:
            raise Wrong(f'version {known} was lost: {told}')

    def end_early(self, end, patience_s=0, nodes=None):
        """A life that ends so. -> whether a rank was ended: at a moment all may be over."""
        known = self.committed()
        child = self.start('--resume', end=end, patience_s=patience_s, nodes=nodes)
        if isinstance(end, End):
            status = self.wait_until_gone(child, time.monotonic(), 90)
            struck = self.struck()
            if struck is None:
                raise Wrong(f'it never came there: {self.read("stderr")}')
            took = time.monotonic() - struck
        else:
            struck = self.strike(child, end)
            status = self.wait_until_gone(child, time.monotonic(), 90)
            took = time.monotonic() - (struck or time.monotonic())
        told = self.read('stderr')
        if struck and status == 0:
            raise Wrong(f'mpirun tells of no failure: {told}')
        if took > GONE_S and not self.mpirun_may_wait():
            raise Wrong(f'processes went on for {took:.1f} s: {told}')
        if not struck and status:
            raise Wrong(f'it failed by itself, {status}: {told}')
        self.check_start(known, told)
        return bool(struck)

    def strike(self, child, moment):
        try:
            child.wait(moment.seconds)
            return None
        except subprocess.TimeoutExpired:
            there = self.processes()
        if len(there) <= moment.rank:
            return None
        try:
            os.kill(there[moment.rank], moment.number)
        except ProcessLookupError:
            return None
        return time.monotonic()

    def go_on(self, *more, nodes=None):
        """A life that nobody ends: its end is that of a run that was left alone."""
        known = self.committed()
        child = self.start('--resume', *more, nodes=nodes, limit_s=PATIENT_S,
                           launcher=() if self.ranks == 1 and not nodes else None)
        status = self.wait_until_gone(child, time.monotonic(), 120)
        told = self.read('stderr')
        if status:
            raise Wrong(f'it does not go on, {status}: {told}')
        self.check_start(known, told)
        want, got = alone(self.programs, self.kind, self.steps), self.came_to()
        if got != want:
            raise Wrong(f'it goes on to {got}, not to {want}')


@functools.lru_cache(maxsize=None)
def alone(programs, kind, steps=STEPS, *more):
    """What one process comes to: the oracle of all."""
    with Run(programs, kind, 1, steps) as run:
        child = run.start(*more, launcher=())
        if child.wait(120):
            raise AssertionError(f'one process, {" ".join(kind)}: {run.read("stderr")}')
        return run.came_to()


# ---- rows: how many ranks, of which kind, and the ends of their lives ----------------------------

class Row:
    def __init__(self, ranks, kind, ends, patience_s=0):
        self.ranks, self.kind, self.ends, self.patience_s = ranks, kind, ends, patience_s
        self.killed = 0 # ends that came, once it has been run

    def __str__(self):
        return f'{self.ranks} ranks, {" ".join(self.kind)}: {"; ".join(map(str, self.ends))}'


def some_end(rnd, kind, ranks, how, place, least=1):
    if place == 'export' and '--zero-stage=0' in kind:
        place = 'close' # each of the replicas has all that is exported
    most = {**STEP_PLACES, **FIRST_PLACES, **LATER_PLACES, **LAST_PLACES}[place]
    return End(how, rnd.randrange(ranks), place, rnd.randint(least, most))


def some_row(rnd, lives=3):
    """In each life but the last one a rank ends; which ends fit says what went before."""
    kind, ranks, ends = rnd.choice(KINDS), rnd.choice((2, 2, 2, 4)), []
    for _ in range(rnd.randint(1, lives)):
        held = any(end.leaves_version() for end in ends)
        # where some had published the version of the load, the next life may go on from it
        named = any(end.place == 'publish' for end in ends)
        places = {**STEP_PLACES, **(LATER_PLACES if held else {} if named else FIRST_PLACES)}
        if rnd.random() < 0.15:
            places = LAST_PLACES
        ends.append(some_end(rnd, kind, ranks, rnd.choice(HOW), rnd.choice(sorted(places))))
        if places is LAST_PLACES:
            break
    return Row(ranks, kind, ends)


def wrong_of(programs, row):
    """-> what is wrong with a row; None: nothing."""
    try:
        with Run(programs, row.kind, row.ranks) as run:
            for end in row.ends:
                row.killed += run.end_early(end, row.patience_s)
            run.go_on()
    except Wrong as wrong:
        return f'{row}: {wrong}'
    return None
