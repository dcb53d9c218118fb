# SPDX-License-Identifier: Apache-2.0
"""Stops single threads of a program, as a busy host does that gives them no CPU."""

import contextlib
import ctypes
import os
from pathlib import Path

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, thread):
    if libc.ptrace(request, thread, None, None) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"ptrace({request:#x}, {thread}): {os.strerror(code)}")


def threads_of(process, prefix):
    """Returns the ids of a process's threads whose name has this prefix."""
    tasks = Path(f"/proc/{process}/task")
    return [
        int(task.name)
        for task in sorted(tasks.iterdir())
        if (task / "comm").read_text().startswith(prefix)
    ]


@contextlib.contextmanager
def stopped(threads):
    """Stops these threads within the block; the process's other threads run."""
    with contextlib.ExitStack() as stack:
        for thread in threads:
            ptrace(PTRACE_SEIZE, thread)
            stack.callback(ptrace, PTRACE_DETACH, thread)
            ptrace(PTRACE_INTERRUPT, thread)
            os.waitpid(thread, WALL)
        yield
