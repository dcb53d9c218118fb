# SPDX-License-Identifier: Apache-2.0
"""An older forwarder replaces a newer one, by an upgrade or by a restart.

Newer files are made from this build's own: a later version of the session file, and settings in the
saved configuration that this build does not know."""

import concurrent.futures
import mmap
import os
import signal
import struct

import pytest

from tests.lab import wait_until
from tests.lab.clients import http_get
from tests.lab.steelyard import FORWARDER, VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.conversations import Conversations
from tests.wire.replacement import (
    JOURNAL_EMPTY,
    adoption,
    forwarders,
    is_stopped,
    port_of_another,
    refused,
)
from tests.wire.successor import script

VERSION_AT, VERSION = 8, 8  # of the session file: offset of its version, and the version
UNKNOWN = b"\xa0\x38\x01"  # field 900, the number 1
CONFIG = struct.Struct("<8sIII")  # magic, version, checksum, length


@pytest.fixture
def stage(unchecked_stage, request):
    yield from check_accounting(unchecked_stage, request)


def set_version(stage, version):
    """Writes in place: hugetlbfs has no write()."""
    with open(stage.steelyard.session_file(), "r+b") as file, mmap.mmap(file.fileno(), 0) as bytes_:
        assert struct.unpack_from("=I", bytes_, VERSION_AT)[0] in (VERSION, VERSION + 1)
        struct.pack_into("=I", bytes_, VERSION_AT, version)


def crc32c(data):
    """Like rte_hash_crc() with initial value 0."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def saved_config(stage):
    return stage.steelyard.dir / "state" / "config"


def with_newer_setting(content):
    magic, version, checksum, length = CONFIG.unpack_from(content)
    message = content[CONFIG.size :]
    assert (len(message), crc32c(message)) == (length, checksum)
    message += UNKNOWN
    return CONFIG.pack(magic, version, crc32c(message), len(message)) + message


def test_upgrade_is_refused_if_the_session_file_is_newer(stage):
    """It fails before the takeover, without effect on clients."""
    with Conversations(stage) as talk:
        set_version(stage, VERSION + 1)
        try:
            refused(stage, f"version {VERSION + 1} of a newer forwarder")
        finally:
            set_version(stage, VERSION)
        talk.check_servers()
    stage.steelyard.upgrade()


@pytest.mark.drops("no-session")
def test_restart_keeps_a_newer_session_file_unread(stage):
    """It reports why it has no sessions, and serves new connections."""
    steelyard = stage.steelyard
    with Conversations(stage) as talk:
        steelyard.forwarder.stop()
        set_version(stage, VERSION + 1)
        kept = stage.steelyard.session_file().with_suffix(".refused")
        steelyard.start_forwarder()
        steelyard.wait_reconnected()
        reason = adoption(stage)["refused"]
        assert f"version {VERSION + 1} of a newer forwarder" in reason
        assert adoption(stage)["source"] == "new"
        # The new tables may have needed its memory.
        assert ("kept as" in reason and kept.exists()) or "removed" in reason
        talk.abort()
    assert http_get(stage.client, VIP[4], WEB)
    kept.unlink(missing_ok=True)


def test_upgrade_is_refused_if_settings_are_newer(stage):
    """No setting is lost: the forwarder that knows all of them continues."""
    stage.steelyard.upgrade()  # saves
    file = saved_config(stage)
    with Conversations(stage) as talk:
        before = file.read_bytes()
        newer = with_newer_setting(before)
        file.write_bytes(newer)
        try:
            refused(stage, "a setting (field 900) that this forwarder does not know")
            assert file.read_bytes() == newer
        finally:
            file.write_bytes(before)
        talk.check_servers()
    stage.steelyard.upgrade()


def test_restart_keeps_newer_settings_without_effect(stage):
    """All sessions continue; unknown settings have no effect, are reported, and are kept."""
    steelyard = stage.steelyard
    with Conversations(stage) as talk:
        steelyard.agent.stop()
        steelyard.forwarder.stop()
        newer = with_newer_setting(saved_config(stage).read_bytes())
        saved_config(stage).write_bytes(newer)
        steelyard.start_forwarder()
        talk.check_servers()
        steelyard.forwarder.wait_for(r"of a newer one: .*field 900")
        steelyard.start_agent()
        steelyard.wait_in_sync()
        warnings = steelyard.get("status")["warnings"]
        assert any("of a newer one" in one and "config.newer" in one for one in warnings), warnings
        assert (steelyard.dir / "state" / "config.newer").read_bytes() == newer
        talk.check_servers()
        wait_until(lambda: saved_config(stage).read_bytes() != newer, "it has saved its own")
        steelyard.upgrade()  # now that it has none of the settings
        talk.check_servers()


def test_failed_start_saves_nothing(stage):
    """A newer build that cannot start leaves the configuration as the older one wrote it."""
    steelyard = stage.steelyard
    old = steelyard.forwarder.pid
    journal = steelyard.dir / "state" / "journal"
    sleepy = script(steelyard.dir / "sleepy", f'#!/bin/sh\nkill -STOP $$\nexec {FORWARDER} "$@"\n')
    with (
        Conversations(stage) as talk,
        port_of_another(stage) as port,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        asked = pool.submit(steelyard.try_upgrade, sleepy, ("--port", port))
        (young,) = wait_until(
            lambda: [pid for pid in forwarders(stage) if pid != old and is_stopped(pid)],
            "the successor waits",
        )
        server = stage.config["web4"].server(stage.lab["s1"].v4)
        server.weight = server.weight % 9 + 1
        steelyard.apply()
        assert journal.stat().st_size > JOURNAL_EMPTY
        os.kill(young, signal.SIGCONT)
        done = asked.result()
        assert "another XDP program" in done.stderr
        # The journal still has the change for the old build, which starts again.
        steelyard.forwarder.wait_for("journal: 1 transactions since the configuration was saved")
        steelyard.wait_ready()
        wait_until(lambda: forwarders(stage) == [old], "the successor has ended")
        steelyard.wait_reconnected()
        talk.check_servers()
    assert steelyard.server("web4", stage.lab["s1"].v4)["weight"] == server.weight
