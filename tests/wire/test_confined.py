# SPDX-License-Identifier: Apache-2.0
"""The agent without root: as a user, with the directories and capabilities of its unit."""

import grp
import re
import signal
from pathlib import Path

import pytest

from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.lab.steelyard import STEELYARD
from tests.wire.conftest import check_accounting
from tests.wire.test_direct import DIRECT, DirectStage

USER = 60005
GROUP, READ = (grp.getgrnam(name).gr_gid for name in ("daemon", "games"))


class ConfinedStage(DirectStage):
    capabilities = ()

    def begin(self):
        self.steelyard.options.group = str(GROUP)
        self.steelyard.agent_options = ["--group", str(GROUP), "--read-group", str(READ)]
        self.steelyard.confine_agent(USER, GROUP, read_group=READ, capabilities=self.capabilities)
        super().begin()


@pytest.fixture(scope="module")
def confined_stage():
    with ConfinedStage(arms=1) as stage:
        yield stage


@pytest.fixture
def confined(confined_stage, request):
    yield from check_accounting(confined_stage, request)


def fields_of(path):
    return dict(line.split(":\t", 1) for line in path.read_text().splitlines() if ":\t" in line)


def status_of(process):
    return fields_of(Path(f"/proc/{process.pid}/status"))


def test_agent_has_no_root_rights(confined):
    status = status_of(confined.steelyard.agent)
    assert status["Uid"].split() == [str(USER)] * 4
    assert status["NoNewPrivs"] == "1"
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}


def test_agent_memory_is_unreadable_to_its_user(confined):
    """No core dump, and no tracing by its own user: root owns such a process's files in /proc."""
    agent = confined.steelyard.agent
    assert status_of(agent)["Uid"].split()[0] == str(USER)
    assert Path(f"/proc/{agent.pid}/environ").stat().st_uid == 0


def test_every_thread_has_the_filter(confined):
    """Including threads that it starts later, for checks, files and requests."""
    steelyard = confined.steelyard
    steelyard.agent.send(signal.SIGHUP)
    steelyard.apply()
    steelyard.wait_all_up()

    def filters():
        tasks = Path(f"/proc/{steelyard.agent.pid}/task").iterdir()
        return [fields_of(task / "status") for task in tasks]

    threads = filters()
    assert len(threads) > 1
    assert {(one["Seccomp"], one["NoNewPrivs"]) for one in threads} == {("2", "1")}
    assert {one["Seccomp_filters"] for one in threads} == {"1"}


def test_agent_runs_without_the_filter(confined):
    steelyard = confined.steelyard
    before = steelyard.agent_options
    steelyard.agent.stop()
    steelyard.agent_options = [*before, "--seccomp", "off"]
    try:
        steelyard.start_agent()
        steelyard.wait_in_sync()
        assert status_of(steelyard.agent)["Seccomp"] == "0"
    finally:
        steelyard.agent.stop()
        steelyard.agent_options = before
        steelyard.start_agent()


def test_sockets_have_their_groups(confined):
    place = confined.steelyard.agent_socket.parent
    for name, group in (("agent.sock", GROUP), ("agent-read.sock", READ)):
        info = (place / name).stat()
        assert (info.st_mode & 0o777, info.st_uid, info.st_gid) == (0o660, USER, group)


def test_agent_applies_and_drains(confined):
    steelyard = confined.steelyard
    steelyard.config.services[0].servers[0].weight = 7
    steelyard.apply()
    assert steelyard.file.read_text() == steelyard.config.text()
    address = steelyard.config.services[0].servers[0].address
    steelyard.cli("drain", address)
    steelyard.wait_server("web4", address, "drain")
    steelyard.agent.stop()
    steelyard.start_agent()
    steelyard.wait_in_sync()
    steelyard.wait_server("web4", address, "drain")  # its state was saved
    steelyard.cli("drain", "--undo", address)


def test_file_of_root_is_not_replaced(confined):
    """The error names the remedy, and nothing has changed."""
    steelyard = confined.steelyard
    before = steelyard.file.read_text()
    steelyard.file.unlink()
    steelyard.file.write_text(before)
    try:
        done = steelyard.cli("apply", "-", stdin=before + "# new\n", check=False)
        assert done.returncode == 2
        assert f"chown steelyard {steelyard.file}" in done.stderr
        assert steelyard.file.read_text() == before
    finally:
        steelyard.file.chmod(0o644)
        run(["chown", f"{USER}:{GROUP}", steelyard.file])


def test_servers_stay_up_without_the_right_to_mark(confined):
    """They are checked on their own addresses; the status and each server report it."""
    warnings = confined.steelyard.get("status")["warnings"]
    assert any("not on the VIP" in one and "CAP_NET_RAW" in one for one in warnings), warnings
    info = confined.steelyard.api.call("ListServices", name="direct-web4").services[0].servers[0]
    assert info.health.up
    assert "SO_MARK" in info.health.fallback
    assert DIRECT[4] not in info.health.target
    confined.steelyard.agent.wait_for(r"not on the VIP.*CAP_NET_RAW")


def test_checks_use_the_vip_with_the_right_to_mark(confined):
    steelyard = confined.steelyard
    words = steelyard.agent_user
    steelyard.agent.stop()
    steelyard.agent_user = steelyard.user_words(USER, GROUP, READ, ["net_raw"])
    try:
        steelyard.start_agent()
        steelyard.wait_in_sync()
        steelyard.wait_all_up()
        health = (
            steelyard.api.call("ListServices", name="direct-web4").services[0].servers[0].health
        )
        assert (health.up, health.fallback) == (True, "")
        assert DIRECT[4] in health.target
    finally:
        steelyard.agent.stop()
        steelyard.agent_user = words
        steelyard.start_agent()


def test_agent_reconnects_after_an_upgrade(confined):
    confined.steelyard.upgrade()
    confined.steelyard.wait_reconnected()


def test_agent_inherits_state_from_an_agent_as_root(confined, tmp_path):
    """An earlier agent.json is one directory above."""
    steelyard = confined.steelyard
    address = steelyard.config.services[0].servers[0].address
    steelyard.cli("drain", address)
    steelyard.agent.stop()
    own = steelyard.dir / "agent-state" / "agent.json"
    top = steelyard.dir / "top"
    (top / "agent").mkdir(parents=True)
    (top / "agent.json").write_text(own.read_text())
    run(["chown", f"{USER}:{GROUP}", top / "agent"])
    before = steelyard.agent_options
    steelyard.agent_options = [*before, "--state", top / "agent"]
    try:
        steelyard.start_agent()
        steelyard.wait_in_sync()
        steelyard.wait_server("web4", address, "drain")
        steelyard.cli("drain", "--undo", address)
    finally:
        steelyard.agent.stop()
        steelyard.agent_options = before
        own.unlink()
        steelyard.start_agent()


# ---- what is installed ---------------------------------------------------------------------------


def prepared(root):
    """Makes a root directory as an earlier version left it."""
    for directory in ("etc/steelyard", "etc/default", "var/lib/steelyard"):
        (root / directory).mkdir(parents=True)
    for name in ("passwd", "group", "shadow", "gshadow", "login.defs"):
        lines = Path("/etc", name).read_text().splitlines(keepends=True)
        (root / "etc" / name).write_text("".join(x for x in lines if "steelyard" not in x))
    (root / "etc/steelyard/forwarder.env").write_text('FORWARDER_OPTS="--port eth7"\n')
    (root / "etc/steelyard/steelyard.yaml").write_text("version: 1\nservices:\n  - mode: dr\n")
    (root / "var/lib/steelyard/agent.json").write_text("{}")


def test_setup_makes_users_and_moves_files(tmp_path):
    prepared(tmp_path)
    for _ in range(2):  # the second run changes nothing
        run([ROOT / "deploy/steelyard-setup"], env={"ROOT": str(tmp_path)})
    etc = tmp_path / "etc"
    user = re.search(r"^steelyard:[^:]*:(\d+):(\d+):", (etc / "passwd").read_text(), re.M)
    assert user
    assert re.search(r"^steelyard-read:[^:]*:\d+:steelyard$", (etc / "group").read_text(), re.M)
    # The agent's user does not own the signing key.
    controller = re.search(
        r"^steelyard-controller:[^:]*:(\d+):(\d+):", (etc / "passwd").read_text(), re.M
    )
    assert controller and controller[1] != user[1] and controller[2] != user[2]
    unit = (ROOT / "deploy/steelyard-controller.service").read_text()
    assert "\nUser=steelyard-controller\nGroup=steelyard-controller\n" in unit

    def rights(path):
        info = (tmp_path / path).stat()
        return info.st_mode & 0o7777, info.st_uid, info.st_gid

    uid, gid = int(user[1]), int(user[2])
    assert rights("etc/steelyard") == (0o1770, 0, gid)
    assert rights("etc/steelyard/steelyard.yaml")[1:] == (uid, gid)
    assert rights("var/lib/steelyard") == (0o711, 0, 0)
    assert rights("var/lib/steelyard/agent") == (0o700, uid, gid)
    assert rights("etc/default/steelyard-forwarder") == (0o644, 0, 0)
    assert "eth7" in (etc / "default/steelyard-forwarder").read_text()
    assert not (etc / "steelyard/forwarder.env").exists()
    marks = etc / "systemd/system/steelyard-agent.service.d/marks.conf"
    assert "AmbientCapabilities=CAP_NET_RAW" in marks.read_text()


def test_units_are_valid(tmp_path):
    """With programs and files where the units expect them."""
    for program in ("agent", "controller", "forwarder"):
        name = f"steelyard-{program}.service"
        text = (ROOT / "deploy" / name).read_text()
        text = re.sub(r"/usr/local/s?bin/\S+", "/bin/true", text)
        (tmp_path / name).write_text(text)
        done = run(["systemd-analyze", "verify", tmp_path / name], check=False)
        mine = [line for line in done.stderr.splitlines() if "steelyard" in line]
        assert not mine, done.stderr


def test_check_needs_no_group(tmp_path):
    """A user without any group may check its own file."""
    file = tmp_path / "steelyard.yaml"
    file.write_text((ROOT / "deploy/steelyard.yaml").read_text())
    words = ["setpriv", "--reuid", "60003", "--regid", "60003", "--clear-groups", "--"]
    tmp_path.chmod(0o755)
    done = run([*words, STEELYARD, "check", "-"], stdin=file.read_text(), check=False)
    assert done.returncode == 0, done.stderr
