# SPDX-License-Identifier: Apache-2.0
"""How a call ends that is told to: its commands with all that they started, and nothing is lost."""
import os
import signal
import subprocess
import threading
import time

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK_S = 0.1   # a command that runs looks for a signal so often
GRACE_S = 2.0  # from SIGTERM on, before what is left of a command is killed


class Stopped(BaseException):
    """No part may take it for a failure of its own."""

    def __init__(self, number):
        super().__init__(f'ended by {signal.Signals(number).name}')
        self.number = number


class Stop:
    """The signal that this process got. It is raised at once, but for where the main thread holds
    it (`with stop`): there it is raised at the end, or where `check` is called."""

    def __init__(self):
        self.number, self.holds = None, 0

    def install(self):
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays what it is
                signal.signal(number, self.take)

    def take(self, number, _frame):
        if self.number is None:  # a second one does not break off the tidying up
            self.number = number
            if not self.holds:
                raise Stopped(number)

    def check(self):
        if self.number is not None:
            raise Stopped(self.number)

    def __enter__(self):
        self.holds += threading.current_thread() is threading.main_thread()

    def __exit__(self, error, *_):
        self.holds -= threading.current_thread() is threading.main_thread()
        if error is None:
            self.check()


stop = Stop()


def send(process, number):
    """To its group, of which the first process may have ended before the others."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def end(process):
    """First by SIGTERM: a program that can still do so gives back what it holds of the card."""
    send(process, signal.SIGTERM)
    try:
        process.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    send(process, signal.SIGKILL)
    process.communicate()


def listen(process, limit_s):
    """What it says until it ends; None where its time is over before."""
    until = time.monotonic() + limit_s
    while True:
        left_s = max(0, until - time.monotonic())
        try:
            return process.communicate(timeout=min(LOOK_S, left_s))
        except subprocess.TimeoutExpired:
            if stop.number is not None:
                end(process)
                stop.check()
            if left_s <= LOOK_S:
                return None


def run(arguments, limit_s, **how):
    """-> (exit status, what it said, the same of standard error, whether its time was over). All
    that it started has ended then, as it has where this raises Stopped."""
    with stop:
        stop.check()
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   text=True, errors='replace', start_new_session=True, **how)
        said = listen(process, limit_s)
        if said is None:
            send(process, signal.SIGKILL)
        out, err = said or process.communicate()
        return process.returncode, out, err or '', said is None
