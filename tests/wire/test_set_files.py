# SPDX-License-Identifier: Apache-2.0
"""Access sets whose prefixes are in files: refreshed live, kept by the forwarder."""

import ipaddress
import os
import signal

import pytest

from tests.lab import CommandFailed
from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.steelyard import VIP, WEB
from tests.lab.wait import wait_until
from tests.wire.stage import ECHO

pytestmark = pytest.mark.workers(2)  # each process maps sources to prefixes itself
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
MANY = 100_000
FIRST4 = int(ipaddress.IPv4Address("100.64.0.0"))
FIRST6 = int(ipaddress.IPv6Address("2001:db8:9::"))


@pytest.fixture
def folder(stage):
    """Returns the folder where the agent reads set files: beside its own file."""
    return stage.steelyard.file.parent


def write_set(path, *more):
    """Writes MANY addresses, a tenth of them IPv6, and the given ones; replaces the file as a
    whole."""
    lines = ["# unused addresses", *more]
    lines += [str(ipaddress.IPv4Address(FIRST4 + 2 * i)) for i in range(MANY - MANY // 10)]
    lines += [str(ipaddress.IPv6Address(FIRST6 + 2 * i)) for i in range(MANY // 10)]
    part = path.with_suffix(".new")
    part.write_text("\n".join(lines) + "\n")
    os.replace(part, path)


def block(stage, path):
    stage.config.access_sets = [{"name": "bad", "file": str(path)}]
    stage.config.access_lists = [
        {"name": "edge", "rules": [{"action": "drop", "from": ["bad"]}]},
    ]
    stage.config.access = "edge"
    stage.apply()


def the_set(stage):
    (one,) = stage.steelyard.get("sets")
    return one


def wait_prefixes(stage, count):
    wait_until(lambda: the_set(stage)["prefixes"] == count, f"the set has {count} prefixes")


def is_silent(stage, family):
    with pytest.raises(TimeoutError):
        connect(stage.client, VIP[family], WEB, timeout_s=1)
    return True


def echoes(one):
    one.sendall(b"x")
    return receive_exactly(one, 1) == b"x"


@pytest.mark.drops("acl-drop")
@families
def test_changed_file_refreshes_its_set(stage, folder, family):
    path, client = folder / "bad.txt", stage.client.address(family)
    write_set(path)
    block(stage, path)
    with connect(stage.client, VIP[family], ECHO) as before:
        assert echoes(before)
        write_set(path, client)
        wait_prefixes(stage, MANY + 1)
        assert is_silent(stage, family)
        assert echoes(before), "an established session is not asked"
        write_set(path, client, f"{client}/x")
        problem = wait_until(lambda: the_set(stage)["problem"], "the broken file is reported")
        assert f"{path}:3: " in problem
        assert any(problem in one for one in stage.steelyard.get("status")["warnings"])
        assert is_silent(stage, family)
        write_set(path)
        wait_prefixes(stage, MANY)
        assert the_set(stage)["problem"] == ""
        assert http_get(stage.client, VIP[family], WEB)
        assert echoes(before)


@pytest.mark.drops("acl-drop")
@families
def test_set_survives_both_processes(stage, folder, family):
    """A forwarder without its agent has the set; an agent without the file keeps it."""
    path, client = folder / "bad.txt", stage.client.address(family)
    write_set(path, client)
    block(stage, path)
    assert is_silent(stage, family)
    stage.steelyard.agent.kill()
    stage.steelyard.restart_forwarder(signal.SIGKILL)
    assert is_silent(stage, family)
    path.unlink()
    stage.steelyard.start_agent()
    stage.steelyard.wait_in_sync()
    assert the_set(stage)["problem"] == f"{path} does not exist"
    assert the_set(stage)["prefixes"] == MANY + 1
    assert is_silent(stage, family)
    write_set(path)
    wait_prefixes(stage, MANY)
    assert http_get(stage.client, VIP[family], WEB)
    stage.steelyard.upgrade()
    stage.steelyard.wait_reconnected()
    assert the_set(stage)["prefixes"] == MANY


@pytest.mark.drops("acl-drop")
def test_damaged_set_is_sent_again(stage, folder):
    path, client = folder / "bad.txt", stage.client.address(4)
    write_set(path, client)
    block(stage, path)
    stage.steelyard.forwarder.stop(signal.SIGTERM)
    (file,) = (stage.steelyard.dir / "state" / "sets").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    stage.steelyard.start_forwarder()
    stage.steelyard.wait_reconnected()
    wait_prefixes(stage, MANY + 1)
    assert is_silent(stage, 4)


def test_unreadable_file_is_refused(stage, folder):
    """An apply that names a file with mistakes changes nothing."""
    path = folder / "unread.txt"
    for text, why in ((None, "does not exist"), ("10.0.0.1/33\n", f"{path}:1: ")):
        if text:
            path.write_text(text)
        with pytest.raises(CommandFailed, match=why):
            block(stage, path)
        assert stage.steelyard.get("sets") == []


def test_files_outside_the_folder_are_not_read(stage, folder):
    """Errors about files that are read show none of their content."""
    link = folder / "link.txt"
    link.symlink_to("/etc/shadow")
    bad = folder / "secret.txt"
    bad.write_text("root:secret:1::\n")
    for path, why in (
        ("/etc/shadow", "is not in"),
        ("/proc/self/environ", "is not in"),
        (f"{folder}/../../../etc/shadow", "is not in"),
        (link, "leads out of"),
        (bad, "this line is not a prefix"),
    ):
        with pytest.raises(CommandFailed, match=why) as refused:
            block(stage, path)
        assert "root:" not in str(refused.value)
