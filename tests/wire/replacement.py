# SPDX-License-Identifier: Apache-2.0
"""Replaces a forwarder, and checks upgrades that are refused."""

import contextlib
import signal
from pathlib import Path

from tests.lab import wait_until
from tests.lab.steelyard import BUILD

JOURNAL_EMPTY = 16  # bytes of its header
WAYS = ("killed", "stopped", "upgraded")
SOURCES = {"killed": "crashed", "stopped": "stopped", "upgraded": "handed-over"}


def adoption(stage):
    return stage.steelyard.get("status")["forwarder"]["adoption"]


def replace_forwarder(steelyard, way, **changes):
    if way == "upgraded":
        upgraded = steelyard.upgrade(**changes)
        print(f"gap: {upgraded['gap_ns'] / 1e6:.1f} ms")
        return
    number = signal.SIGKILL if way == "killed" else signal.SIGTERM
    steelyard.restart_forwarder(number, **changes)


def forwarders(stage):
    """Returns processes in the host's namespace that may be forwarders: all except the agent."""
    pids = stage.lab["forwarder"].ns.pids()
    return [pid for pid in pids if pid != stage.steelyard.agent.pid]


def refused(stage, text, **upgrade):
    """An upgrade fails with `text`, and nothing has changed."""
    pid = stage.steelyard.forwarder.pid
    done = stage.steelyard.try_upgrade(**upgrade)
    assert done.returncode, done.stdout
    assert text in done.stderr
    wait_until(lambda: forwarders(stage) == [pid], "the refused successor ends")
    assert stage.steelyard.get("status")["forwarder"]["pid"] == pid
    return done.stderr


def refused_after_hand_over(stage, text, **upgrade):
    steelyard = stage.steelyard
    pid = steelyard.forwarder.pid
    ready = steelyard.forwarder.output().count("ready:")
    done = steelyard.try_upgrade(**upgrade)
    assert done.returncode, done.stdout
    assert text in done.stderr
    assert "the old forwarder starts again with its sessions" in done.stderr
    wait_until(
        lambda: steelyard.forwarder.output().count("ready:") > ready, "it forwards once more"
    )
    steelyard.wait_ready()
    steelyard.wait_in_sync()
    assert forwarders(stage) == [pid]
    assert adoption(stage)["source"] in ("crashed", "stopped")
    return done.stderr


def is_stopped(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


@contextlib.contextmanager
def port_of_another(stage):
    """Yields an interface with another XDP program, which an upgrade detects only after
    the hand-over."""
    ns = stage.lab["forwarder"].ns
    pin = f"/sys/fs/bpf/{stage.lab.id}-other"
    ns.ip("link add extra type veth peer name extra-peer")
    try:
        ns.run(["bpftool", "prog", "load", BUILD / "dataplane/kernel/director.bpf.o", pin])
        ns.run(["bpftool", "net", "attach", "xdp", "pinned", pin, "dev", "extra"])
        yield "extra"
    finally:
        ns.ip("link del extra")
        Path(pin).unlink(missing_ok=True)
