# SPDX-License-Identifier: Apache-2.0
"""`steelyard hook`, and programs that are stopped while requests arrive."""

import contextlib
import json
import os
import signal

from tests.lab import wait_until
from tests.lab.commands import run_steelyard


def stack_name(test):
    """Makes unique names: all tests that run now keep sockets of stacks in one folder."""
    return f"test-{test}-{os.getpid()}"


def hook(stack, *words, check=True):
    """Runs `steelyard hook` for a stack of this name; returns its output, also of errors. Retries
    while a busy machine delays the stack beyond the command's timeout."""
    done = run_steelyard("hook", *words, "--stack", stack, check=check)
    text = done if isinstance(done, str) else done.stdout + done.stderr
    if check and "when their threads next wait" in text:
        wait_until(lambda: not is_silent(stack), f"the stacks of {stack} have obeyed")
    return text


def is_silent(stack):
    """Returns whether a stack of this name has not yet executed its orders."""
    return bool(stack_view(stack).get("silent"))


def stack_view(stack):
    """Returns what `steelyard hook list` reports of a stack, as JSON."""
    (view,) = json.loads(hook(stack, "list", "-o", "json"))
    return view


def hook_list(stack):
    """Returns the hooks of a stack by name, and its number of stacks."""
    view = stack_view(stack)
    return {one["name"]: one for one in view["hooks"]}, view["stacks"]


def packets_received(host, interface="front"):
    (link,) = json.loads(host.ns.ip(f"-j -s link show dev {interface}"))
    return link["stats64"]["rx"]["packets"]


@contextlib.contextmanager
def stopped(pid, host):
    """Stops a program on a host; when it continues, all packets sent meanwhile are in its
    interface's queue. Each call of the yielded function sends one request."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T", "the program is stopped")

    def send(one, data):
        before = packets_received(host)
        one.sendall(data)
        wait_until(lambda: packets_received(host) > before, "the request has arrived")

    try:
        yield send
    finally:
        os.kill(pid, signal.SIGCONT)


def state_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
