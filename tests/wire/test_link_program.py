# SPDX-License-Identifier: Apache-2.0
"""The link emulator as a program: commands, options, the cables of hosts, and its end."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.lab import reap, wait_until
from tests.lab.lab import ROOT
from tests.lab.link import LINK, Link, predict
from tests.lab.process import CommandFailed
from tests.lab.steelyard import SANITIZED
from tests.wire.link_stage import rtts


def test_realtime_runs_before_other_programs(link_lab):
    with Link(link_lab, "client", "far", options=["--realtime"]) as link:
        assert os.sched_getscheduler(link.process.pid) == os.SCHED_FIFO
        assert rtts(link_lab, link.address("b"), 1)


def test_invalid_commands_change_nothing(link):
    """Each error message names the mistake."""
    before = link.stats("ab")["params"]
    for line, complaint in (
        ("set ab loss 2", "loss needs a share"),
        ("set ab delay 5ms loss 200%", "loss needs a share"),
        ("set sideways delay 5ms", "ab, ba or both"),
        ("dance", "the commands are"),
    ):
        with pytest.raises(CommandFailed, match=complaint):
            link.command(line)
    assert link.stats("ab")["params"] == before


def test_hosts_cable_is_restored(link_lab):
    """A host's cable is replaced and restored, also after the program was killed."""
    router = "10.0.0.2"
    with Link(link_lab, "client", delay_ms=20) as link:
        assert min(rtts(link_lab, router, 3)) >= 40
        link.process.kill()
        lost = link_lab["client"].ns.run(["ping", "-c1", "-W1", router], check=False)
        assert lost.returncode
        link.control.close()
        link.start_program()
        assert min(rtts(link_lab, router, 3)) >= 40
        link.process.kill()
    assert rtts(link_lab, router, 3)
    check_cable(link_lab, link)


def check_cable(lab, link):
    """The cable is where it was before the link, and nothing else remains."""
    assert link.name not in lab.network.hosts
    assert not link.ns.path.exists()
    (cable,) = json.loads(lab["switch"].ns.run(["ip", "-j", "link", "show", "client-eth0"]))
    assert cable["master"] == "br-front"
    assert lab["switch"].ns.ip(f"link show dev {link.name}", check=False).returncode


class NotMoved(Link):
    """The host's cable stays in place."""

    def _splice(self):
        self.bridge = "br-front"
        raise CommandFailed("File exists")


class NameTaken(Link):
    """The new cable cannot be created after the host's was removed."""

    def _splice(self):
        self.ns.ip("link add end-b type bridge")
        super()._splice()


@pytest.mark.parametrize("kind", (NotMoved, NameTaken))
def test_failed_start_restores_the_cable(link_lab, kind):
    """If the start fails halfway, the original error is reported, and the first half undone."""
    link = kind(link_lab, "client")
    with pytest.raises(CommandFailed, match="File exists"), link:
        pass
    check_cable(link_lab, link)
    assert rtts(link_lab, "10.0.0.2", 1)


ABANDONED = """
import os, signal
from tests.lab import Lab
from tests.lab.link import Link
lab = Lab(arms=1, servers=0).__enter__()
link = Link(lab, "client", delay_ms=1).start()
print(lab.id, link.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_owner_ends_the_program():
    """The program ends with its owner, and the next lab removes the rest."""
    child = subprocess.run(
        [sys.executable, "-c", ABANDONED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    lab_id, pid = child.stdout.split()
    wait_until(lambda: not running(pid), "the link has ended")
    reap.reap_dead()
    assert not list(reap.NETNS.glob(f"{lab_id}-*"))
    assert not (reap.LABS / lab_id).exists()


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_command_line_errors_exit():
    """The help names every parameter, and invalid arguments end the program."""
    told = subprocess.run([LINK, "--help"], capture_output=True, text=True, check=True).stdout
    names = predict(1)["ab"]["params"]
    assert all(re.search(rf"^  {name} ", told, re.M) for name in names)
    for words in ([], ["--a", "lo"], ["--a", "none0", "--b", "none1"], ["--predict", "x"]):
        done = subprocess.run([LINK, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "steelyard-link: " in done.stderr


def test_commands_by_standard_input(link_lab):
    """One command per line; end of file ends the program."""
    with Link(link_lab, "client", "far") as link:
        link.process.stop()
        argv = link.ns.command([LINK, "--a", "end-a", "--b", "end-b", "--stdin"])
        done = subprocess.run(
            argv,
            input="set ab delay 1ms\nstats\nset ab delay 1\n",
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **SANITIZED},
        )
        said = done.stdout.splitlines()
        assert said[0] == "ok"
        assert json.loads(said[1])["ab"]["params"]["delay"] == 1_000_000
        assert said[2].startswith("error: delay needs a time")
        assert "ba" in json.loads(said[3])
