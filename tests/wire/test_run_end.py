# SPDX-License-Identifier: Apache-2.0
"""Ends of programs on the user-space stack: kills, exits with unsent bytes, signals, and the death
of their supervisor."""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, http_get
from tests.lab.netns import is_over
from tests.lab.run import run_command
from tests.wire.running import LIGHTTPD, V4, has_program, on_stack, sanitized, site, start


@sanitized
def test_kill_leaves_no_kernel_state(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    argv = ["lighttpd", "-D", "-f", folder / "conf"]
    for _ in range(3):
        process = start(stack, "killed", argv, 8001)
        with connect(stack["client"], V4, 8001) as open_one:
            open_one.sendall(b"GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n")
            assert open_one.recv(9) == b"HTTP/1.1 "
            stack["forwarder"].ns.kill_all()
        assert process.wait() == -signal.SIGKILL
        wait_until(lambda: not has_program(stack), "the XDP program is gone")


# Its last write leaves all bytes in the stack's send buffer.
LAST_WRITE = """
import os, socket
one = socket.create_server(("0.0.0.0", 8001))
two = one.accept()[0]
two.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
two.recv(4096)
two.sendall(bytes(range(256)) * {times})
os.write(1, b"has written all\\n")
"""
TIMES = 4096  # 1 MB


@sanitized
def test_exited_program_serves_slow_clients(stack):
    """They read a little now and then, long after its last write."""
    script = stack.dir / "last_write.py"
    script.write_text(LAST_WRITE.format(times=TIMES))
    process = start(stack, "last", [sys.executable, script], 8001)
    data = b""
    with stack["client"].ns.socket(socket.AF_INET) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        slow.settimeout(60)
        slow.connect((V4, 8001))
        slow.sendall(b"all")
        process.wait_for("has written all")
        while part := slow.recv(64 << 10):
            data += part
            time.sleep(0.15)  # too few: the client is not slow, and the test proves less
    assert data == bytes(range(256)) * TIMES
    assert process.wait() == 0


def threads(pid):
    """Returns a process's main thread, and its others."""
    numbers = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    numbers.remove(pid)
    return pid, numbers


def ticks(pid):
    """Returns the main thread's processor time."""
    words = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def wakes(pid):
    """Returns how often the library's helper thread, which sleeps 10 ms at a time, has slept."""
    return max(
        int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", status)[1])
        for thread in threads(pid)[1]
        for status in [Path(f"/proc/{pid}/task/{thread}/status").read_text()]
    )


def sleeps(pid):
    """Returns whether the main thread was nearly idle while the helper slept 100 times."""
    first, used = wakes(pid), ticks(pid)
    wait_until(lambda: wakes(pid) >= first + 100, "the helper continues")
    return ticks(pid) - used <= 5


WAITS = {
    "epoll": "it = select.epoll(); it.register(one); it.poll()",
    "poll": "it = select.poll(); it.register(one); it.poll()",
    "accept": "",
}
SERVE = """
import select, socket
one = socket.create_server(("10.0.0.1", 8001))
one.listen()
while True:
    {wait}
    two = one.accept()[0]
    two.recv(4096)
    two.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\nhello")
    two.close()
"""


@sanitized
@pytest.mark.parametrize("way", WAITS)
def test_worker_survives_its_supervisor_and_sleeps(stack, way):
    """In each kind of wait: the supervisor's end of a socket was closed."""
    script = stack.dir / f"serve_{way}.py"
    script.write_text(SERVE.format(wait=WAITS[way]))
    process = start(stack, f"alone-{way}", [sys.executable, script], 8001)
    pid = int(re.search(r"pid (\d+) is worker", process.output())[1])
    assert http_get(stack["client"], V4, 8001, "/") == b"hello"
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: sleeps(pid), "the worker sleeps")
    assert http_get(stack["client"], V4, 8001, "/") == b"hello"
    assert has_program(stack)
    wait_until(lambda: sleeps(pid), "the worker sleeps again")


def test_signals_and_exit_status_are_forwarded(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    process = start(stack, "stopped", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == 0
    done = on_stack(stack, "sh", "-c", "exit 7", check=False)
    assert done.returncode == 7
    done = on_stack(stack, "sh", "-c", "kill -9 $$", check=False)
    assert done.returncode == 128 + signal.SIGKILL


ENDED = """
import os, signal, socket
one = socket.create_server(("0.0.0.0", 8001))
two = one.accept()[0]
two.recv(4096)
two.sendall(bytes({length}))
os.write(1, b"has written all\\n")
while True:
    {then}
"""


@sanitized
@pytest.mark.parametrize(
    "then", ("signal.pause()", "bytearray(1 << 20)"), ids=("waits", "allocates")
)
def test_a_signal_ends_connections_too(stack, then):
    """The peer gets what was sent and the end of the connection, whatever the program does."""
    length = 32 << 10
    script = stack.dir / "ended.py"
    script.write_text(ENDED.format(length=length, then=then))
    process = start(stack, "ended", [sys.executable, script], 8001)
    with connect(stack["client"], V4, 8001) as one:
        one.sendall(b"all")
        process.wait_for("has written all")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
        data = b""
        while part := one.recv(64 << 10):
            data += part
        assert data == bytes(length)


@sanitized
def test_a_signal_ends_it_beside_a_supervisor_that_does_not_answer(stack):
    """Its status is the signal's, too."""
    script = stack.dir / "unanswered.py"
    script.write_text(SERVE.format(wait=WAITS["epoll"]))
    process = start(stack, "unanswered", [sys.executable, script], 8001)
    pid = int(re.search(r"pid (\d+) is worker", process.output())[1])
    os.kill(process.pid, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: is_over(pid), "the worker has ended")
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert process.wait() == 128 + signal.SIGTERM


COUNT = """
import os, signal
def say(number, _):
    os.write(1, f"got {number}\\n".encode())
for number in (signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, say)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


def read_until(descriptor, wanted):
    text = ""
    while wanted not in text:
        assert select.select([descriptor], [], [], 30)[0], f"no {wanted!r} in {text!r}"
        text += os.read(descriptor, 4096).decode()
    return text


def test_terminal_signal_arrives_once(stack):
    """Ctrl-C signals the supervisor and the program; the supervisor does not forward it."""
    master, slave = pty.openpty()
    command = ["setsid", "--ctty", *run_command([sys.executable, "-c", COUNT])]
    terminal = {"stdin": slave, "stdout": slave, "stderr": slave}
    with subprocess.Popen(stack["forwarder"].ns.command(command), **terminal) as process:
        os.close(slave)
        try:
            read_until(master, "ready")
            os.write(master, b"\x03")
            said = read_until(master, f"got {int(signal.SIGINT)}")
            # The supervisor forwards signals in the order of their numbers.
            process.send_signal(signal.SIGUSR1)
            said += read_until(master, f"got {int(signal.SIGUSR1)}")
        finally:
            process.kill()
    os.close(master)
    assert said.count(f"got {int(signal.SIGINT)}") == 1


def test_second_run_is_refused(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    start(stack, "first", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    done = on_stack(stack, "true", check=False)
    assert done.returncode == 2 and "has an XDP program already" in done.stderr
