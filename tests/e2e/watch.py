# SPDX-License-Identifier: Apache-2.0
"""Waiting for what a child process does to a folder, and never for a length of time."""

import ctypes
import os
import select

IN_NONBLOCK, IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
IN_MODIFY, IN_MOVED_TO, IN_CREATE = 0x2, 0x80, 0x100
LIBC = ctypes.CDLL(None, use_errno=True)


def wait_until(condition, folder, child):
    """Until condition() holds, asked anew after every change to the names of `folder` and to the
    bytes of the files in it, or until the child has ended. True: it holds."""
    changes = LIBC.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
    end = os.pidfd_open(child.pid)
    try:
        watch = LIBC.inotify_add_watch(changes, os.fsencode(folder),
                                       IN_MODIFY | IN_MOVED_TO | IN_CREATE)
        if changes < 0 or watch < 0:
            raise OSError(ctypes.get_errno(), f'inotify of {folder}')
        while not condition():
            ready = select.select([changes, end], [], [])[0]
            if end in ready:
                return condition()
            os.read(changes, 65536)
        return True
    finally:
        os.close(end)
        os.close(changes)
