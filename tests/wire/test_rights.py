# SPDX-License-Identifier: Apache-2.0
"""Permissions: which users and groups may use the sockets, and what the forwarder may request from
the kernel."""

import contextlib
import grp
import json
import os
import pwd
import socket
import struct
import sys
from pathlib import Path

import pytest

from tests.lab.api import forwarder as pb
from tests.lab.process import run
from tests.lab.steelyard import STEELYARD
from tests.wire.conftest import check_accounting
from tests.wire.control import Control, frame, request
from tests.wire.stage import Stage

# Groups and users of every Debian system.
FORWARD = "daemon"  # group of the forwarder's socket; the user of that name runs the agent
CHANGE, READ = "mail", "games"
OPERATOR, READER, STRANGER = 60001, 60002, 60003
SHARE, CONNECTIONS, RESERVED = 8, 32, 8


def gid(name):
    return grp.getgrnam(name).gr_gid


@pytest.fixture(scope="module")
def rights_stage():
    with Stage(running=False) as stage:
        stage.start(group=FORWARD, agent_options=["--group", CHANGE, "--read-group", READ])
        yield stage


@pytest.fixture
def stage(rights_stage, request):
    yield from check_accounting(rights_stage, request)


def as_user(user, groups, *argv):
    """Runs a command as a user with these groups; returns the CompletedProcess."""
    ids = ",".join(str(gid(name)) for name in groups)
    extra = ["--groups", ids] if ids else ["--clear-groups"]
    words = ["setpriv", "--reuid", user, "--regid", user, *extra, "--", *argv]
    return run(words, check=False)


def cli(stage, user, groups, *words):
    return as_user(user, groups, STEELYARD, "--socket", stage.steelyard.agent_socket, *words)


@contextlib.contextmanager
def becoming(user, group):
    """Creates this thread's sockets as the user within the block; root again afterwards."""
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def connect_as(stage, user, group=None):
    with becoming(user, gid(group or FORWARD)):
        return Control(stage.steelyard.forwarder_socket)


def test_sockets_have_their_modes(stage):
    steelyard = stage.steelyard
    for path, group in (
        (steelyard.forwarder_socket, FORWARD),
        (steelyard.agent_socket, CHANGE),
        (steelyard.dir / "agent-read.sock", READ),
    ):
        status = path.stat()
        assert status.st_mode & 0o777 == 0o660
        assert (status.st_uid, status.st_gid) == (0, gid(group))


def test_notes_belong_to_root(stage):
    netns = os.stat(f"/proc/{stage.steelyard.forwarder.pid}/ns/net").st_ino
    notes = [path for path in Path("/run/steelyard").iterdir() if str(netns) in path.name]
    assert any(path.name.startswith("claims-") for path in notes)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in notes} == {
        path.name: "0o600" for path in notes
    }


@pytest.mark.parametrize(
    "words", (["status"], ["services"], ["sessions"], ["drops"], ["attacks"], ["ports"])
)
def test_readers_may_read(stage, words):
    done = cli(stage, READER, [READ], "get", *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) is not None


@pytest.mark.parametrize("words", (["apply"], ["drain", "10.1.0.11"], ["kill", "10.1.0.11"]))
def test_readers_may_not_change(stage, words):
    before = stage.steelyard.states()
    done = cli(stage, READER, [READ], *words)
    assert done.returncode == 2
    assert f"only to root and members of the group {CHANGE}:" in done.stderr
    assert stage.steelyard.states() == before


def test_only_root_reads_load_on_this_host(stage):
    """The agent reads this host's load only for root's file, not for an operator's."""
    text = stage.steelyard.file.read_text()
    assert "load:" not in text
    load = '    load: { type: prometheus, url: "http://127.0.0.1:9/", query: x }\n'
    head, rest = text.split("    servers:\n", 1)
    changed = stage.steelyard.dir / "changed.yaml"
    changed.write_text(f"{head}{load}    servers:\n{rest}")
    done = cli(stage, OPERATOR, [CHANGE], "apply", changed)
    assert done.returncode == 2
    assert "root allows it by `steelyard agent --allow-egress 127.0.0.1`" in done.stderr
    assert cli(stage, 0, [], "apply", changed).returncode == 0
    assert cli(stage, OPERATOR, [CHANGE], "apply", changed).returncode == 0  # it is there already
    changed.write_text(text)
    assert cli(stage, OPERATOR, [CHANGE], "apply", changed).returncode == 0


def test_operators_may_change(stage):
    address = "10.1.0.11"
    assert cli(stage, OPERATOR, [CHANGE], "drain", address).returncode == 0
    stage.steelyard.wait_server("web4", address, "drain")
    assert cli(stage, OPERATOR, [CHANGE], "drain", "--undo", address).returncode == 0
    stage.steelyard.wait_server("web4", address, "up")


def test_error_names_the_missing_group(stage):
    done = cli(stage, STRANGER, [], "get", "status")
    assert done.returncode == 2
    assert f"to read, as a member of the group {READ}" in done.stderr
    assert f"to change, of the group {CHANGE}" in done.stderr


def test_other_users_reach_no_forwarder(stage):
    socket_path = stage.steelyard.forwarder_socket
    with pytest.raises(PermissionError):
        connect_as(stage, STRANGER, READ)
    done = as_user(STRANGER, [READ], STEELYARD, "upgrade", "--forwarder", socket_path)
    assert done.returncode == 2
    assert f"only root and members of the group {FORWARD} may connect" in done.stderr


def test_upgrade_needs_root(stage):
    """The agent's user and members of the socket's group may do everything else."""
    pid = stage.steelyard.forwarder.pid
    for user in (OPERATOR, pwd.getpwnam(FORWARD).pw_uid):
        with connect_as(stage, user) as one:
            assert one.ask(status=pb.StatusRequest()).status.pid == pid
            answer = one.ask(upgrade=pb.UpgradeRequest(binary="/bin/true"))
            assert answer.error.code == pb.CODE_DENIED
            assert "only root" in answer.error.text
    assert stage.steelyard.forwarder.alive()


def test_passed_descriptor_keeps_its_owners_rights(stage):
    """The rights are those of the process that connected."""
    with connect_as(stage, OPERATOR) as one:
        one.send(frame(request(upgrade=pb.UpgradeRequest(binary="/bin/true"))))
        assert one.error_code() == pb.CODE_DENIED


def is_served(one):
    try:
        one.send(frame(request()))
        return one.error_code() == 0
    except ConnectionError:
        return False


def test_users_have_shares_of_connections(stage):
    """One user has 8, all other users together 24; root and the agent's user have the rest."""
    agent = pwd.getpwnam(FORWARD).pw_uid
    with contextlib.ExitStack() as ends:

        def served(user):
            return is_served(ends.enter_context(connect_as(stage, user)))

        assert [served(OPERATOR) for _ in range(SHARE + 1)] == [True] * SHARE + [False]
        others = [served(READER + n // SHARE) for n in range(CONNECTIONS - SHARE)]
        assert sum(others) == CONNECTIONS - RESERVED - SHARE
        assert served(agent)
        assert is_served(ends.enter_context(Control(stage.steelyard.forwarder_socket)))
        assert stage.steelyard.in_sync()


def test_silent_incomplete_frame_is_closed(stage):
    """Or half of its length. Its connection is available again."""
    with (
        connect_as(stage, OPERATOR) as half,
        connect_as(stage, OPERATOR) as less,
        connect_as(stage, OPERATOR) as idle,
    ):
        half.send(frame(request())[:-1])
        less.send(struct.pack("!I", 10)[:2])
        for one in (half, less):
            one.socket.settimeout(60)
            assert one.error_code() in (pb.CODE_MALFORMED, pb.CODE_TOO_LARGE)
            assert one.ended()
        assert is_served(idle)  # silent, but not within a frame


def test_upgrade_keeps_the_group(stage):
    """Even if its options do not name the group."""
    steelyard = stage.steelyard
    options = steelyard.options
    steelyard.upgrade(group="")
    steelyard.options = options
    steelyard.wait_reconnected()
    status = steelyard.forwarder_socket.stat()
    assert (status.st_mode & 0o777, status.st_gid) == (0o660, gid(FORWARD))
    with connect_as(stage, OPERATOR) as one:
        assert is_served(one)


def test_stalled_readers_block_no_other(stage):
    """Some readers send half a request; others are served at once."""
    path = str(stage.steelyard.dir / "agent-read.sock")
    stalled = []
    head = "POST /steelyard.agent.v1.AgentService/GetStatus HTTP/1.1\r\nHost: a\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    try:
        for n in range(300):
            with becoming(STRANGER + n % 3, gid(READ)):
                one = socket.socket(socket.AF_UNIX)
                one.connect(path)
            stalled.append(one)
            with contextlib.suppress(BrokenPipeError):
                one.sendall(head.encode())
        assert stage.steelyard.in_sync()
        with connect_as(stage, OPERATOR) as direct:
            assert is_served(direct)
        done = cli(stage, STRANGER + 9, [READ], "get", "drops", "-o", "json")
        assert done.returncode == 0, done.stderr
    finally:
        for one in stalled:
            one.close()


TAKE_LOCKS = f"""
import fcntl, os, sys
os.setgid({STRANGER}), os.setuid({STRANGER})
for path in sys.argv[1:]:
    try:
        fcntl.flock(open(path), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except PermissionError:
        continue
    sys.exit(path)
"""


def test_other_users_cannot_lock_the_forwarders_files(stage):
    """Locking needs permission to open the file; a foreign lock would block the next start."""
    inode = stage.lab[stage.steelyard.host].ns.inode()
    locks = [str(path) for path in Path("/run/steelyard").glob(f"*-{inode}-*")]
    assert len(locks) > 3
    words = ["setpriv", "--clear-groups", sys.executable, "-c", TAKE_LOCKS, *locks]
    done = run(words, check=False)
    assert done.returncode == 0, done.stderr
    steelyard = stage.steelyard
    state = steelyard.dir / "state"
    state.chmod(0o755)
    steelyard.restart_forwarder()
    assert state.stat().st_mode & 0o777 == 0o711


# ---- what the forwarder may still do -------------------------------------------------------------


def thread_status(forwarder):
    """Returns {name: {field: value}} of each thread, from /proc; workers have distinct names."""
    found = {}
    for task in Path(f"/proc/{forwarder.pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        found[int(task.name)] = fields
    return found


def check_confined(forwarder):
    threads = thread_status(forwarder)
    assert all(one["Seccomp"] == "2" and one["NoNewPrivs"] == "1" for one in threads.values())
    main = threads.pop(forwarder.pid)
    assert main["Seccomp_filters"] == "1"
    assert int(main["CapEff"], 16) != 0
    workers = [one for one in threads.values() if one["Seccomp_filters"] == "2"]
    assert len(workers) == 1
    names = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    assert {int(one[name], 16) for one in workers for name in names} == {0}


def test_forwarder_has_its_filters_and_capabilities(stage):
    check_confined(stage.steelyard.forwarder)


def test_upgrades_add_no_filters(stage):
    """Executed programs inherit filters: they would accumulate, and run one after the other."""
    for _ in range(3):
        stage.steelyard.upgrade()
        check_confined(stage.steelyard.forwarder)
    stage.steelyard.wait_reconnected()


def test_upgrade_from_and_to_a_forwarder_without_filters(stage):
    """From an earlier version, and back."""
    steelyard = stage.steelyard
    steelyard.restart_forwarder()
    steelyard.upgrade(options=["--seccomp", "off"])
    filters = thread_status(steelyard.forwarder)[steelyard.forwarder.pid]["Seccomp_filters"]
    assert filters == "1"  # inherited; its workers have none of their own
    steelyard.upgrade(options=["--seccomp", "trap"])
    check_confined(steelyard.forwarder)
    steelyard.wait_reconnected()
