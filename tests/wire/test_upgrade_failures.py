# SPDX-License-Identifier: Apache-2.0
"""Upgrades of the forwarder that fail, before or after the old forwarder has handed over; its
sessions continue."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.lab import wait_until
from tests.lab.steelyard import FORWARDER, SMALL_PAGES_MB
from tests.wire.conftest import check_accounting
from tests.wire.conversations import Conversations
from tests.wire.replacement import (
    JOURNAL_EMPTY,
    forwarders,
    is_stopped,
    port_of_another,
    refused,
    refused_after_hand_over,
)
from tests.wire.successor import script, successor

pytestmark = pytest.mark.both_builds


@pytest.fixture
def stage(unchecked_stage, request):
    yield from check_accounting(unchecked_stage, request)


@pytest.mark.parametrize(
    ("stage_of_failure", "text"),
    (
        ("exits", "status 3"),
        ("dies", "signal 9"),
        ("fails", "out of luck"),
        ("speaks-otherwise", "speaks hand-over version 2, this forwarder 1"),
        ("ready-too-early", "unexpected message"),
    ),
)
def test_failure_during_preparation_changes_nothing(stage, stage_of_failure, text):
    with Conversations(stage) as talk:
        refused(stage, text, binary=successor(stage.steelyard.dir, stage_of_failure))
        talk.check_servers()
        stage.apply()
    # The next upgrade succeeds.
    stage.steelyard.upgrade()


def test_broken_binary_is_refused(stage):
    folder = stage.steelyard.dir
    refused(stage, "No such file", binary=folder / "nowhere")
    refused(stage, "not an executable file", binary=folder)
    (folder / "text").write_text("no program")
    refused(stage, "not an executable file", binary=folder / "text")
    refused(stage, "Exec format error", binary=script(folder / "strange", "no program"))


@pytest.mark.parametrize(
    ("options", "text"),
    (
        (("--instance", "other"), "--instance"),
        (("--state", "/nowhere"), "--state"),
        (("--socket", "/run/steelyard/other.sock"), "--socket"),
        (("--workers", "0"), "--workers 0: must be a number from 1"),
        (("--frobnicate",), "--frobnicate: unknown option"),
        (("--port", "nowhere"), "nowhere"),
        (("--cleanup",), "cannot be used in an upgrade"),
        (("--memory", "1000000"), "two forwarders need their memory"),
        (("--memory", "1000000"), "sysctl vm.nr_hugepages="),
    ),
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_unsuitable_options_are_refused(stage, options, text):
    """The new forwarder refuses them with its own message."""
    if "--memory" in options and "--no-huge" in stage.steelyard.forwarder_options():
        pytest.skip("too few huge pages for this test")
    with Conversations(stage) as talk:
        refused(stage, text, options=options)
        talk.check_servers()


def test_change_of_session_memory_is_refused(stage):
    """Even if an earlier forwarder left a session file there."""
    if "--no-huge" in stage.steelyard.forwarder_options():
        pytest.skip("too few huge pages for this test")
    name = f"steelyard-{stage.lab.id}"
    small = ["--no-huge", "--memory", SMALL_PAGES_MB]
    left = Path("/dev/shm") / name
    with Conversations(stage) as talk:
        refused(stage, "session tables in /dev/shm", options=small)
        assert not left.exists()
        left.write_bytes((Path("/dev/hugepages") / name).read_bytes())
        left.chmod(0o600)
        try:
            refused(stage, "session tables in /dev/shm", options=small)
        finally:
            left.unlink()
        talk.check_servers()


@pytest.mark.parametrize(("kind", "text"), (("dies", "signal 9"), ("fails", "out of luck")))
def test_failure_after_the_hand_over_restarts_the_old_forwarder(stage, kind, text):
    """The old forwarder restarts in its own process, from its own binary."""
    with Conversations(stage) as talk:
        refused_after_hand_over(
            stage, text, binary=successor(stage.steelyard.dir, f"{kind}-sealed")
        )
        talk.check_servers()
    stage.steelyard.upgrade()


def test_busy_port_restarts_the_old_forwarder(stage):
    with port_of_another(stage) as port, Conversations(stage) as talk:
        refused_after_hand_over(stage, "another XDP program", options=("--port", port))
        talk.check_servers()


def test_stop_during_preparation_ends_both(stage):
    steelyard = stage.steelyard
    upgrading = threading.Thread(
        target=steelyard.try_upgrade, args=(successor(steelyard.dir, "hangs"),), daemon=True
    )
    with Conversations(stage) as talk:
        upgrading.start()
        wait_until(lambda: steelyard.get("status")["forwarder"]["upgrading"], "it prepares")
        assert "being upgraded" in steelyard.cli("get", "status")
        again = steelyard.try_upgrade()
        assert again.returncode
        assert "under way" in again.stderr
        assert len(forwarders(stage)) == 2
        server = stage.config["web4"].server(stage.lab["s1"].v4)
        server.weight = server.weight % 9 + 1
        steelyard.apply()
        journal = steelyard.dir / "state" / "journal"
        assert journal.stat().st_size > JOURNAL_EMPTY
        assert steelyard.forwarder.stop() == 0
        assert journal.stat().st_size == JOURNAL_EMPTY  # it is not synced: the snapshot is
        upgrading.join()
        assert not forwarders(stage)
        steelyard.start_forwarder()
        talk.check_servers()


def test_death_during_preparation_ends_the_successor(stage):
    """The state stays for the next start."""
    steelyard = stage.steelyard
    sleepy = script(steelyard.dir / "sleepy", f'#!/bin/sh\nkill -STOP $$\nexec {FORWARDER} "$@"\n')
    upgrading = threading.Thread(target=steelyard.try_upgrade, args=(sleepy,), daemon=True)
    with Conversations(stage) as talk:
        upgrading.start()
        old = steelyard.forwarder.pid
        (young,) = wait_until(
            lambda: [pid for pid in forwarders(stage) if pid != old and is_stopped(pid)],
            "the successor waits",
        )
        steelyard.kill_forwarder()
        upgrading.join()
        os.kill(young, signal.SIGCONT)
        wait_until(lambda: not forwarders(stage), "the successor ends")
        assert "to be replaced is gone" in steelyard.forwarder.output()
        os.waitpid(young, 0)
        steelyard.start_forwarder()
        talk.check_servers()
