# SPDX-License-Identifier: Apache-2.0
"""Runs chunks in processes, a few ahead of the one whose result is next: memory stays bounded, and
results come in order."""
from __future__ import annotations

import collections
import ctypes
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Callable, Iterable, Iterator

from hoistway.errors import PYTHON, Refusal

ENDING = (signal.SIGINT, signal.SIGTERM)
AHEAD = 2  # chunks per process
PR_SET_PDEATHSIG = 1

_work: Callable | None = None  # what a process inherits, and need not be sent


def _begin(parent: int) -> None:
    """In a process of the pool: it ends with its parent, which alone hears an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _call(item: object) -> object:
    return _work(item)


def _nothing() -> None:
    pass


def in_order(work: Callable, items: Iterable, processes: int) -> Iterator:
    """work(item) of each item. The processes are forked before the first item is asked for."""
    global _work
    _work = work
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context('fork'), _begin,
                               (os.getpid(),))
    waiting: collections.deque = collections.deque()
    try:
        # an exception that a signal raises in what Python does after a fork is ignored
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            pool.submit(_nothing).result()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        for item in items:
            waiting.append(pool.submit(_call, item))
            if len(waiting) > AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise Refusal(PYTHON, 'a process of prep was ended from outside; did memory run out '
                      '(dmesg)? Fix: fewer --processes') from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
