# SPDX-License-Identifier: Apache-2.0
"""What a test takes from a program that it starts: system calls that a filter refuses, and the room
of a small file system. Each is a `preexec_fn`, run in the child; 99 is its exit where it cannot."""
import ctypes
import errno
import fcntl
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
KNOWN_MACHINE = platform.machine() in ('x86_64', 'aarch64')  # whose numbers of calls are here
X86 = platform.machine() == 'x86_64'
IO_URING_SETUP = 425  # the same number on every architecture
FCNTL, FALLOCATE, PWRITE = (72, 285, 18) if X86 else (25, 47, 68)


class Instruction(ctypes.Structure):
    """Of a system call filter."""

    _fields_ = [
        ('code', ctypes.c_uint16),
        ('jt', ctypes.c_uint8),
        ('jf', ctypes.c_uint8),
        ('k', ctypes.c_uint32),
    ]


LOAD, IF_EQUAL, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER, SECOND_ARGUMENT, THIRD_ARGUMENT = 0, 24, 32  # where they are in what the filter is given
ALLOW, REFUSE_WITH = 0x7FFF0000, 0x00050000


def install_filter(*steps):
    """In the child."""

    class Program(ctypes.Structure):
        _fields_ = [('length', ctypes.c_uint16), ('filter', ctypes.POINTER(Instruction))]

    filled = (Instruction * len(steps))(*(Instruction(*step) for step in steps))
    program = Program(len(steps), filled)
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or LIBC.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)
    ):
        os._exit(99)


def forbid_io_uring():
    """As Docker's default profile does."""
    install_filter(
        (LOAD, 0, 0, NUMBER),
        (IF_EQUAL, 0, 1, IO_URING_SETUP),
        (RETURN, 0, 0, REFUSE_WITH | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    )


def forbid_o_direct():
    """As a file system without it does."""
    install_filter(
        (LOAD, 0, 0, NUMBER),
        (IF_EQUAL, 0, 5, FCNTL),
        (LOAD, 0, 0, SECOND_ARGUMENT),
        (IF_EQUAL, 0, 3, fcntl.F_SETFL),
        (LOAD, 0, 0, THIRD_ARGUMENT),
        (IF_ANY_BIT, 0, 1, os.O_DIRECT),
        (RETURN, 0, 0, REFUSE_WITH | errno.EINVAL),
        (RETURN, 0, 0, ALLOW),
    )


def forbid_fallocate():
    """As a file system without it."""
    install_filter(
        (LOAD, 0, 0, NUMBER),
        (IF_EQUAL, 0, 1, FALLOCATE),
        (RETURN, 0, 0, REFUSE_WITH | errno.EOPNOTSUPP),
        (RETURN, 0, 0, ALLOW),
    )


def forbid_writing_zeros():
    """Nor the plain writes that take its place; the I/O itself goes through io_uring."""
    forbid_fallocate()
    forbid(PWRITE, errno.EIO)()


def forbid(number, code, *arguments):
    """As a profile does that does not know the call; arguments: each an offset and its value."""

    def install():
        checks = []
        for i, (at, value) in enumerate(arguments):
            left = 2 * (len(arguments) - i - 1) + 1
            checks += [(LOAD, 0, 0, at), (IF_EQUAL, 0, left, value)]
        install_filter(
            (LOAD, 0, 0, NUMBER),
            (IF_EQUAL, 0, len(checks) + 1, number),
            *checks,
            (RETURN, 0, 0, REFUSE_WITH | code),
            (RETURN, 0, 0, ALLOW),
        )

    return install


def mount_tmpfs(directory, size):
    """In the child: a small file system that only it sees."""

    def mount():
        options = ctypes.c_char_p(f'size={size}'.encode())
        if (
            LIBC.unshare(CLONE_NEWNS)
            or LIBC.mount(None, b'/', None, MS_REC | MS_PRIVATE, None)
            or LIBC.mount(b'tmpfs', directory.encode(), b'tmpfs', 0, options)
        ):
            os._exit(99)

    return mount
