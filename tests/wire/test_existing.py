# SPDX-License-Identifier: Apache-2.0
"""Access lists with `existing: end`: downloads of newly blocked clients end by a reset; others
continue."""

import os

import pytest

from tests.lab.clients import connect, receive_exactly
from tests.lab.steelyard import VIP, WEB
from tests.lab.wait import wait_until
from tests.wire.stage import ECHO

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
# Bytes per second, and bytes: enough for minutes. A client reads received bytes before it sees the
# reset: the buffer is small.
SLOW, SIZE, BUFFER = "300k", 100_000_000, 128 << 10
RESET = 56  # curl's exit status: failure in receiving network data
METRICS = "127.0.0.1:9275"


@pytest.fixture
def folder(stage):
    """Returns the folder where the agent reads set files: beside its own file."""
    return stage.steelyard.file.parent


def write_set(path, *addresses):
    part = path.with_suffix(".new")
    part.write_text("\n".join(["# blocked", *addresses]) + "\n")
    os.replace(part, path)


def block(stage, path, existing):
    stage.config.access_sets = [{"name": "bad", "file": str(path)}]
    rules = [{"action": "drop", "from": ["bad"]}]
    stage.config.access_lists = [{"name": "edge", "existing": existing, "rules": rules}]
    stage.config.access = "edge"
    stage.config.metrics = METRICS
    stage.apply()


class Download:
    """A slow download by curl, in progress."""

    def __init__(self, stage, host, family):
        address = f"[{VIP[6]}]" if family == 6 else VIP[4]
        self.file = stage.lab.dir / f"slow-{host}-{len(stage.lab.processes)}"
        argv = ["curl", "-sS", "-N", "--limit-rate", SLOW, "-o", self.file]
        self.curl = stage.lab.start(
            host, self.file.name, [*argv, f"http://{address}:{WEB}/files/slow"]
        )
        self.await_progress()

    def size(self):
        return self.file.stat().st_size if self.file.exists() else 0

    def await_progress(self):
        before = self.size()
        wait_until(lambda: self.size() > before or not self.curl.alive(), "more has arrived")
        assert self.curl.alive(), self.curl.describe()
        return True

    def close(self):
        if self.curl.alive():
            self.curl.kill()


def access(stage):
    (one,) = stage.steelyard.get("access")
    return one


def set_has(stage, count):
    (one,) = stage.steelyard.get("sets")
    return one["prefixes"] == count


@pytest.fixture
def downloads(stage):
    for name in stage.nginx:
        with open(stage.lab.dir / f"nginx-{name}" / "files" / "slow", "wb") as file:
            file.truncate(SIZE)
    begun, limits = [], {}
    for host in ("client", "far"):
        limits[host] = stage.lab[host].ns.sysctl("ipv4.tcp_rmem", f"4096 {BUFFER} {BUFFER}")

    def begin(host, family):
        begun.append(Download(stage, host, family))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()
    for host, limit in limits.items():
        stage.lab[host].ns.sysctl("ipv4.tcp_rmem", limit)


# tx-full: downloads run at the machine's full speed.
@pytest.mark.drops("acl-drop", "session-killed", "no-session", "tx-full")
@families
def test_blocked_clients_download_is_reset(stage, downloads, folder, family):
    path, client = folder / "bad.txt", stage.client.address(family)
    write_set(path)
    block(stage, path, "end")
    blocked, other = downloads("client", family), downloads("far", family)
    with connect(stage.client, VIP[family], ECHO) as idle:
        idle.sendall(b"x")
        assert receive_exactly(idle, 1) == b"x"
        write_set(path, client)
        assert blocked.curl.wait(120) == RESET, blocked.curl.describe()
        wait_until(lambda: access(stage)["ended"] >= 2, "both connections have ended")
        with pytest.raises(ConnectionError):
            idle.recv(1)
    other.await_progress()
    assert access(stage)["existing"] == "end"
    assert "(sessions ended)" in stage.steelyard.cli("get", "access")
    text = stage.lab["forwarder"].ns.run(["curl", "-sS", f"http://{METRICS}/metrics"])
    assert 'steelyard_access_ended_sessions_total{list="edge"}' in text
    wait_until(
        lambda: "that it no longer accepts have ended" in stage.steelyard.forwarder.output(),
        "the log says so",
    )
    write_set(path)
    wait_until(lambda: set_has(stage, 0), "no client is blocked")
    downloads("client", family)
    other.await_progress()


@families
def test_list_with_existing_keep_resets_nothing(stage, downloads, folder, family):
    path = folder / "bad.txt"
    write_set(path)
    block(stage, path, "keep")
    one = downloads("client", family)
    write_set(path, stage.client.address(family))
    wait_until(lambda: set_has(stage, 1), "the client is blocked")
    one.await_progress()
    assert access(stage)["ended"] == 0
