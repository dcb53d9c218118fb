# SPDX-License-Identifier: Apache-2.0
"""Secrets stay where they belong.

Secret are the query of a check's path, where people put tokens, and the forwarder's keys: of slots,
of the session index, and of cookies."""

import os
import re
import secrets
import struct
from pathlib import Path

import pytest

from tests.lab import wait_until
from tests.lab.clients import http_get
from tests.lab.servers import nginx_log
from tests.lab.steelyard import FAST_CHECKS, VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

TOKEN = "m4rk3r-" + secrets.token_hex(8)
KEY = secrets.token_hex(16)  # of the slots, as its file stores it
METRICS = "127.0.0.1:9273"
LISTINGS = (
    "services servers status drops ports sessions workers slots snat access sets attacks".split()
)


class SecretStage(Stage):
    def begin(self):
        file = self.steelyard.dir / "slot-key"
        file.write_text(KEY + "\n")
        file.chmod(0o600)
        self.steelyard.options.slot_key = str(file)
        self.config.metrics = METRICS
        check = {"type": "http"} | FAST_CHECKS
        self.config["web4"].health = check | {"path": f"/healthz?token={TOKEN}"}
        # It echoes, which is no valid HTTP answer.
        self.config["echo4"].health = check | {"path": f"/echo?token={TOKEN}"}
        self.steelyard.start()
        self.steelyard.wait_server("web4", self.lab["s1"].address(4), "up")
        self.steelyard.wait_server("echo4", self.lab["s1"].address(4), "down")

    def restore(self):
        self.revive()


@pytest.fixture(scope="module")
def secret_stage():
    with SecretStage() as stage:
        yield stage


@pytest.fixture
def stage(secret_stage, request):
    yield from check_accounting(secret_stage, request)


def key_bytes():
    return struct.pack("=QQ", int(KEY[:16], 16), int(KEY[16:], 16))


def outputs(stage):
    """Returns {what: text} of everything that commands, metrics and logs print."""
    steelyard = stage.steelyard
    address = stage.lab["s1"].address(4)
    commands = [["get", name] for name in LISTINGS]
    commands += [["describe", "service", "web4"], ["describe", "service", "echo4"]]
    commands += [["describe", "server", f"{address}@web4"], ["stats"], ["diff"]]
    found = {}
    for words in commands:
        for form in ([], ["-o", "json"]):
            done = steelyard.cli(*words, *form, check=False)
            assert done.returncode == 0, done.stderr
            found[" ".join(words + form)] = done.stdout + done.stderr
    found["metrics"] = stage.lab["forwarder"].ns.run(["curl", "-sS", f"http://{METRICS}/metrics"])
    found["agent's log"] = steelyard.agent.output()
    found["forwarder's log"] = steelyard.forwarder.output()
    for process in (steelyard.agent, steelyard.forwarder):
        for name in ("cmdline", "environ"):
            text = Path(f"/proc/{process.pid}/{name}").read_text(errors="replace")
            found[f"{process.name}'s {name}"] = text
    return found


def test_outputs_contain_no_secret(stage):
    assert any(path == f"/healthz?token={TOKEN}" for *_, path in nginx_log(stage.lab, "s1"))
    http_get(stage.client, VIP[4], WEB)
    found = outputs(stage)
    assert "/healthz?…" in found["describe service web4"]
    assert "the answer is no HTTP" in found["describe service echo4 -o json"]
    assert "the answer is no HTTP" in found["agent's log"]
    for what, text in found.items():
        assert TOKEN not in text, what
        assert KEY not in text.lower(), what


@pytest.mark.parametrize(
    "wrong",
    (
        f"path: /he althz?token={TOKEN}",
        f"path: healthz?token={TOKEN}",
        f"path:/healthz?token={TOKEN}: x",
        f"host: www.example.org/?token={TOKEN}",
        f'"?token={TOKEN}": x',
        f"type: http?token={TOKEN}",
        f"interval: [/healthz?token={TOKEN}]",
    ),
)
def test_errors_contain_no_secret(stage, wrong):
    """Errors of the command, of the agent's answer and in its log, when the file itself is
    wrong."""
    steelyard = stage.steelyard
    good = steelyard.file.read_text()
    text = good.replace(f"path: /healthz?token={TOKEN}", wrong)
    assert text != good
    done = steelyard.cli("apply", "-", stdin=text, check=False)
    checked = steelyard.cli("check", "-", stdin=text, check=False)
    assert done.returncode == checked.returncode == 2
    assert "health" in done.stderr
    before = len(steelyard.agent.output())
    steelyard.file.write_text(text)
    try:
        wait_until(
            lambda: "configuration refused" in steelyard.agent.output()[before:],
            "the agent refuses the file",
        )
        status = steelyard.cli("get", "status", check=False).stdout
    finally:
        steelyard.file.write_text(good)
    wait_until(
        lambda: "configuration loaded" in steelyard.agent.output()[before:], "it is good again"
    )
    for text in (done.stderr, done.stdout, checked.stderr, status, steelyard.agent.output()):
        assert TOKEN not in text


def files_below(folder):
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def test_files_contain_no_secret(stage):
    steelyard = stage.steelyard
    may = {steelyard.file, steelyard.dir / "slot-key"}
    for path in files_below(steelyard.dir):
        if path not in may:
            content = path.read_bytes()
            assert TOKEN.encode() not in content, path
            assert KEY.encode() not in content, path
            assert key_bytes() not in content, path
    file = stage.steelyard.session_file()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (steelyard.dir / "state").stat().st_mode & 0o066 == 0


def test_world_readable_slot_key_is_reported(stage):
    """The forwarder starts, and names the remedy."""
    file = stage.steelyard.dir / "slot-key"
    file.chmod(0o644)
    try:
        stage.steelyard.restart_forwarder()
        stage.steelyard.forwarder.wait_for("every user can read the slot key: chmod 600")
    finally:
        file.chmod(0o600)
    stage.steelyard.wait_reconnected()


# ---- core dumps ----------------------------------------------------------------------------------


def mappings(pid):
    """Returns (first address, end, whether core dumps leave it out) of readable memory."""
    place = None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if head := re.match(r"([0-9a-f]+)-([0-9a-f]+) (r?)", line):
            place = int(head[1], 16), int(head[2], 16), bool(head[3])
        elif line.startswith("VmFlags:") and place[2]:
            flags = line.split()[1:]
            if not {"io", "pf"} & set(flags):
                yield place[0], place[1], "dd" in flags


def contents(pid, left_out):
    """Returns the memory that core dumps include, or that they leave out."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for begin, end, hidden in mappings(pid):
            if hidden != left_out:
                continue
            try:
                memory.seek(begin)
                yield memory.read(end - begin)
            except (OSError, OverflowError):
                continue  # of the kernel


HEADER = struct.Struct("=8sI")  # dataplane/balance/session/session_file.h
INDEX_KEY, SLOT_KEY, COOKIES = slice(104, 168), slice(168, 184), slice(1024, 1040)


@pytest.mark.both_builds
@pytest.mark.skipif("asan" in os.environ.get("SY_BUILD", ""), reason="keeps freed memory")
def test_core_dumps_contain_no_key(stage):
    """The process also has none after an upgrade, or after it adopted sessions."""
    steelyard = stage.steelyard
    http_get(stage.client, VIP[4], WEB)
    steelyard.upgrade()
    steelyard.wait_reconnected()
    steelyard.restart_forwarder()
    steelyard.wait_reconnected()
    http_get(stage.client, VIP[4], WEB)
    start = stage.steelyard.session_file().read_bytes()[:4096]
    assert HEADER.unpack_from(start) == (b"SYSLOTS\0", 8)
    keys = {"index": start[INDEX_KEY], "slots": start[SLOT_KEY], "cookies": start[COOKIES]}
    assert keys["slots"] == key_bytes()
    pid = steelyard.forwarder.pid
    found = {name for part in contents(pid, True) for name, key in keys.items() if key in part}
    assert found == set(keys)  # otherwise the search finds nothing anywhere
    for part in contents(pid, False):
        for name, key in keys.items():
            assert key not in part, name
