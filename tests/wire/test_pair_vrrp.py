# SPDX-License-Identifier: Apache-2.0
"""Debian's keepalived decides which node of a pair serves, by the shipped configuration."""

import shlex
import signal

from tests.lab import wait_until
from tests.lab.lab import ROOT
from tests.lab.steelyard import STEELYARD
from tests.wire.conversations import Conversations
from tests.wire.pair import BACKUP, MASTER, Pair

SHIPPED = ROOT / "deploy/keepalived"
# `steelyard` as installed, for a node of the lab: its sockets, and its forwarder to release.
INSTALLED = """#!/bin/sh
case $1 in
release) exec {release} ;;
health) exec {steelyard} "$@" --socket {agent} --timeout 10s ;;
esac
exec {steelyard} "$@"
"""


class Keepalived:
    """keepalived at a node."""

    def __init__(self, pair, node, priority):
        self.lab, self.node = pair.lab, node
        self.steelyard = node.steelyard
        self.program = self.steelyard.dir / "installed"
        self.program.write_text(
            INSTALLED.format(
                steelyard=STEELYARD,
                agent=self.steelyard.agent_socket,
                release=shlex.join(map(str, self.steelyard.forwarder_argv("--release"))),
            )
        )
        self.program.chmod(0o755)
        notify = f"{SHIPPED}/notify {self.steelyard.dir}"
        text = (SHIPPED / "keepalived.conf").read_text()
        for shipped, here in {
            "/usr/local/bin/steelyard": self.program,
            "/usr/local/share/steelyard/keepalived/notify": notify,
            "interface eth0": "interface front",
            "priority 100 ": f"priority {priority} ",
            "priority 100\n": f"priority {priority}\n",
            "10.0.0.5/32": "10.0.0.250/32 dev front",
            "timeout 4": "timeout 11",
            "advert_int 0.2": "advert_int 2",  # a host of tests may stall for as long
            "    enable_script_security\n": "",  # the lab's directory may be anyone's
        }.items():
            assert shipped in text, shipped
            text = text.replace(shipped, str(here))
        self.file = self.steelyard.dir / "keepalived.conf"
        self.file.write_text(text)

    def start(self):
        pids = ["-p", self.steelyard.dir / "keepalived.pid", "-r", self.steelyard.dir / "vrrp.pid"]
        argv = ["keepalived", "-n", "-l", "-P", "-f", self.file, *pids]
        name = f"keepalived-{self.steelyard.host}"
        env = {"STEELYARD": str(self.program)}
        self.process = self.lab.start(self.steelyard.host, name, argv, env)

    def stop(self):
        self.process.stop(signal.SIGTERM)


def test_keepalived_moves_the_connections():
    with Pair() as pair:
        first, second = pair.nodes.values()
        daemons = {node: Keepalived(pair, node, 101 - node.number) for node in (first, second)}
        daemons[first].start()
        wait_until(lambda: first.role() == MASTER, "the only node with keepalived is the master")
        daemons[second].start()
        daemons[second].process.wait_for("Syncing instances to BACKUP")
        with Conversations(pair, resend_s=3) as talk:
            talk.check_servers()  # UDP: the clients' second datagrams
            first.wait_replicated(len(talk))
            socket = first.steelyard.forwarder_socket
            (shown,) = first.steelyard.get("peers", "--forwarder", socket)
            assert shown["state"] == "alive" and shown["present"] == shown["offered"] >= len(talk)

            first.steelyard.kill_forwarder()  # and nothing starts it again
            wait_until(lambda: second.role() == MASTER, "the backup becomes the master")
            talk.check_servers()

            first.steelyard.start_forwarder()
            assert first.role() == BACKUP, "the addresses were released for the other node"
            second.wait_replicated(len(talk))
            daemons[second].stop()
            wait_until(lambda: second.role() == BACKUP, "a node without keepalived is a backup")
            wait_until(lambda: first.role() == MASTER, "the first node is the master again")
            talk.check_servers()
