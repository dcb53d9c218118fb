# SPDX-License-Identifier: Apache-2.0
"""Debian's keepalived at a node of a pair, with the shipped configuration and notify script."""

import contextlib
import os
import shlex
import signal

from tests.lab import wait_until
from tests.lab.lab import ROOT
from tests.lab.steelyard import STEELYARD

SHIPPED = ROOT / "deploy/keepalived"
GATEWAY = {4: "10.0.0.250", 6: "fe80::51"}  # the addresses that keepalived moves
# `steelyard` as installed, for a node of the lab: its sockets, and its forwarder to release.
INSTALLED = """#!/bin/sh
case $1 in
release) exec {release} ;;
health) exec {steelyard} "$@" --socket {agent} --timeout 10s ;;
role) test "$2" != --check || exec {steelyard} "$@" --forwarder {forwarder} --timeout 10s ;;
esac
exec {steelyard} "$@"
"""
# keepalived does not report its state otherwise.
NOTIFY = """#!/bin/sh
echo "$3" >>{states}
exec {notify} {directory} "$@"
"""


class Keepalived:
    """keepalived at a node. Its hosts may stall for longer than the shipped interval between
    advertisements, so tests have a longer one."""

    def __init__(self, lab, node, priority, advert_s=2, preempt=False):
        self.lab, self.node = lab, node
        self.steelyard = node.steelyard
        self.process = None
        self.program = self.steelyard.dir / "installed"
        self.program.write_text(
            INSTALLED.format(
                steelyard=STEELYARD,
                agent=self.steelyard.agent_socket,
                forwarder=self.steelyard.forwarder_socket,
                release=shlex.join(map(str, self.steelyard.forwarder_argv("--release"))),
            )
        )
        self.program.chmod(0o755)
        self.states = self.steelyard.dir / "vrrp-states"
        notify = self.steelyard.dir / "notify"
        notify.write_text(
            NOTIFY.format(
                states=self.states, notify=SHIPPED / "notify", directory=self.steelyard.dir
            )
        )
        notify.chmod(0o755)
        text = (SHIPPED / "keepalived.conf").read_text()
        for shipped, here in {
            "/usr/local/bin/steelyard": self.program,
            "/usr/local/share/steelyard/keepalived/notify": notify,
            "interface eth0": "interface front",
            "priority 100 ": f"priority {priority} ",
            "priority 100\n": f"priority {priority}\n",
            "10.0.0.5/32": f"{GATEWAY[4]}/32 dev front",
            "timeout 4": "timeout 11",
            "advert_int 0.2": f"advert_int {advert_s}",
            "    enable_script_security\n": "",  # the lab's directory may be anyone's
        }.items():
            assert shipped in text, shipped
            text = text.replace(shipped, str(here))
        if preempt:
            text = text.replace("    nopreempt ", "    # nopreempt ").replace("    nopreempt\n", "")
        self.file = self.steelyard.dir / "keepalived.conf"
        self.file.write_text(text)

    def start(self):
        self.states.write_text("")
        pids = ["-p", self.steelyard.dir / "keepalived.pid", "-r", self.steelyard.dir / "vrrp.pid"]
        argv = ["keepalived", "-n", "-l", "-P", "-f", self.file, *pids]
        name = f"keepalived-{self.steelyard.host}"
        env = {"STEELYARD": str(self.program)}
        self.process = self.lab.start(self.steelyard.host, name, argv, env)
        self.process.wait_for("Startup complete")

    def state(self):
        """Returns its state: "MASTER", "BACKUP", "FAULT", or "" before it has one."""
        states = self.states.read_text().split()
        return states[-1] if states else ""

    def stop(self):
        self.process.stop(signal.SIGTERM)

    def kill(self):
        """Kills it without its last advertisement: its child would send that when it ends alone."""
        child = int((self.steelyard.dir / "vrrp.pid").read_text())
        self.process.send(signal.SIGSTOP)  # or it would start another child
        os.kill(child, signal.SIGKILL)
        self.process.kill()
        os.waitpid(child, 0)  # adopted; the next keepalived would find it running


@contextlib.contextmanager
def elected(pair, preempt=False):
    """Starts keepalived at both nodes; the first one is elected. Yields both by node."""
    first, second = pair.nodes.values()
    daemons = {
        node: Keepalived(pair.lab, node, 101 - node.number, preempt=preempt)
        for node in (first, second)
    }
    daemons[first].start()
    wait_until(lambda: daemons[first].state() == "MASTER", "the first node is elected")
    daemons[second].start()
    daemons[second].process.wait_for("Syncing instances to BACKUP")
    yield daemons
    for daemon in daemons.values():
        if daemon.process.alive():
            daemon.stop()
