# SPDX-License-Identifier: Apache-2.0
"""Thousands of conversations continue while the nodes of a pair die, return and are upgraded.

`make demo DEMO=failover` runs it; with --keep everything stays up for inspection."""

import random
import signal
import socket
import statistics
import struct
import sys
import time

from tests.demo.perform import perform
from tests.demo.show import Show, say
from tests.lab import wait_until
from tests.lab.mode_table import ROWS, ModeHosts, config
from tests.lab.mode_traffic import KINDS, PROXIED, failures_of, plan_traffic, provide_content
from tests.lab.readiness import Reader
from tests.lab.steelyard import FORWARDER_NICE, Steelyard, local_addresses
from tests.lab.topology import FRONT
from tests.wire.keepalived import GATEWAY, Keepalived
from tests.wire.pair import BACKUP, MASTER, SYNC_PORT, start_nodes

PICTURE = """
                          ┌──[ node 1 ]──┐
   client ──── router ────┤  keepalived  ├────┬── s1  nginx and a DNS server
                          └──[ node 2 ]──┘    ├── s2
                                              └── s3

   {http} HTTP connections, {downloads} downloads and {udp} UDP flows use FNAT, in and across both
   families; half of the HTTP connections and downloads are of services that send the client's
   address by TOA or the PROXY protocol. A tenth of these numbers is added for NAT, DR and IPIP, and
   another tenth for SNAT, whose client is a server. Each sends a request every second, downloads
   trickle. None may ever be reset, closed, answered by another server or get a wrong byte.
"""
ADVERT_S = 0.2  # as shipped
PRIORITIES = {1: 100, 2: 99}
OWN_SHARE_MS = 100  # from keepalived's decision to the first packet: the median

SO_TIMESTAMPNS = 35
PACKET_OUTGOING = 4
TCP, UDP, VRRP, TUNNELS = 6, 17, 112, (4, 41)


def ms(seconds):
    return f"{1000 * seconds:.0f} ms"


def protocol(frame):
    """Returns the protocol that an IP packet of a frame carries, and its destination port."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        return frame[23], int.from_bytes(frame[36:38])
    return (frame[20], int.from_bytes(frame[56:58])) if kind == b"\x86\xdd" else (0, 0)


class Watch:
    """Notes when the network first receives from a node, by the kernel's clock: `advert`, an
    advertisement of VRRP; `packet`, one of TCP, UDP or a tunnel, which are of sessions. A context
    manager. Until it is the master, a node sends neither."""

    def __init__(self, lab, host):
        self.advert = self.packet = None
        with lab["switch"].ns.entered():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.bind((f"{host}-front", 3))

    def _note(self, one):
        frame, extra, _, address = one.recvmsg(128, 64)
        if address[2] == PACKET_OUTGOING:
            return
        ((_, _, stamp),) = extra
        seconds, ns = struct.unpack("qq", stamp)
        number, port = protocol(frame)
        if number == VRRP:
            self.advert = self.advert or seconds + ns / 1e9
        elif number in (TCP, *TUNNELS) or (number == UDP and port != SYNC_PORT):
            self.packet = self.packet or seconds + ns / 1e9

    def __enter__(self):
        self.reader = Reader([self.socket], self._note)
        return self

    def __exit__(self, *_):
        self.reader.close()
        self.socket.close()


class Member:
    """A node with all that runs on it."""

    def __init__(self, lab, node, advert_s):
        self.lab, self.node, self.steelyard = lab, node, node.steelyard
        self.keepalived = Keepalived(lab, node, PRIORITIES[node.number], advert_s)
        self.cable = f"{self.steelyard.host}-front"

    def __str__(self):
        return str(self.node.number)

    def start_keepalived(self):
        self.keepalived.start()
        self.keepalived.process.prefer(FORWARDER_NICE)

    def start_forwarder(self):
        self.steelyard.start_forwarder()
        self.steelyard.forwarder.prefer(FORWARDER_NICE)
        self.steelyard.wait_reconnected()

    def plug(self, state):
        self.lab["switch"].ns.ip(f"link set {self.cable} {state}")

    def is_master(self):
        return self.keepalived.state() == "MASTER" and self.node.role() == MASTER

    def is_backup(self):
        return self.keepalived.state() == "BACKUP" and self.node.role() == BACKUP


class Failover:
    NETWORK = {"arms": 1, "pair": True}
    OPTIONS = {
        "events": (20, "number of events"),
        "connections": (2000, "HTTP connections of FNAT; all other numbers follow"),
        "seed": (0, "repeats the events of an earlier run"),
    }

    def __init__(self, lab, events, connections, seed, advert_s=ADVERT_S):
        self.lab, self.show, self.events, self.advert_s = lab, Show(), events, advert_s
        self.seed = seed or random.randrange(1, 1 << 31)
        self.counts = connections, max(connections // 10, 2), max(connections // 2, 4)
        self.hosts = ModeHosts(lab, (GATEWAY[4], f"{GATEWAY[6]} dev eth0"), PROXIED)
        self.config = config(lab.network)
        self.traffic = plan_traffic(lab, self.config, self.counts)
        self.flows = sum(sum(traffic.counts.values()) for traffic in self.traffic)
        self.rows, self.own_shares = [], []
        self.steelyard = Steelyard(lab, self.config)

    def run(self):
        http, downloads, udp = self.counts
        say(PICTURE.format(http=http, downloads=downloads, udp=udp))
        self.start()
        self.survive_all()
        self.finish()
        self.account()

    def survive_all(self):
        kinds = [self.killed, self.unplugged, self.powered_off, self.restarted, self.upgraded]
        dice = random.Random(self.seed)
        plan = dice.sample(kinds, len(kinds)) + dice.choices(kinds, k=self.events)
        self.show.step(f"{self.events} events at random, the same with --seed {self.seed}")
        try:
            for event in plan[: self.events]:
                self.survive(event)
        finally:
            self.table()

    def start(self):
        self.show.step("Three servers, two nodes with keepalived, and a router start")
        self.hosts.start()
        provide_content(self.lab, self.traffic)
        for host in self.lab.servers():
            host.ns.count_resets(local_addresses(FRONT))
        self.lab["far"].ns.count_resets()
        standby = Steelyard(self.lab, self.config, host="standby")
        nodes = start_nodes(self.lab, self.steelyard, standby)
        self.members = [Member(self.lab, node, self.advert_s) for node in nodes.values()]
        self.master, self.other = self.members
        self.master.start_keepalived()
        wait_until(self.master.is_master, "node 1 is the master")
        self.other.start_keepalived()
        wait_until(self.other.is_backup, "node 2 is the backup")
        self.show.claim(True, "node 1 is the master, node 2 the backup")
        self.show.step(f"{self.flows} flows begin")
        self.reports = [traffic.start("-rate", 8 << 10) for traffic in self.traffic]
        self.claim_whole()
        self.wait_complete()
        shown = self.master.steelyard.cli(
            "get", "peers", "--forwarder", self.master.steelyard.forwarder_socket
        )
        self.show.command("steelyard get peers", shown)

    def failures(self):
        return failures_of(self.reports)

    def claim_whole(self, quiet=False):
        """Every flow is at its first server, and has an answer to its last request."""
        lost, corrupted = self.failures()
        text = f"all {self.flows} flows go on: none reset, none corrupted, each at its server"
        if lost or corrupted:
            examples = [line for report in self.reports for line in report["examples"]]
            text = "\n     ".join([f"{lost} lost, {corrupted} corrupted:", *examples])
        if lost or corrupted or not quiet:
            self.show.claim(not lost and not corrupted, text)

    def wait_complete(self):
        self.master.node.wait_replicated(self.flows)

    def step(self):
        for traffic in self.traffic:
            traffic.begin_step()
        self.reports = [traffic.end_step() for traffic in self.traffic]

    def survive(self, event):
        """Lets an event happen, waits for its end, and adds a row to the table."""
        before = self.master
        self.began = time.time()
        with Watch(self.lab, self.other.steelyard.host) as watch:
            complete = event(watch)
        self.step()
        row = [f"{len(self.rows) + 1} {event.__doc__.rstrip('.')}", str(before), str(self.master)]
        if self.master is before or not watch.packet:
            row += ["", "", ""]
        else:
            detected, first = watch.advert - self.began, watch.packet - self.began
            self.own_shares.append(first - detected)
            row += [ms(detected), ms(first), ms(first - detected)]
        stalls = [
            max(report["flows"][kind]["stall_ms"] for report in self.reports) for kind in KINDS
        ]
        row += [f"{stall:.0f} ms" for stall in stalls]
        row += [complete, *map(str, self.failures())]
        self.rows.append(row)
        say(f"     {row[0]}: {row[2]} serves; first packet {row[4] or '-'}; complete {complete}")
        self.claim_whole(quiet=True)

    def taken_over(self, watch):
        """Waits until the other node serves."""
        wait_until(self.other.is_master, "the other node is the master")
        wait_until(lambda: watch.packet and watch.advert, "it forwards packets")
        self.master, self.other = self.other, self.master

    def returned(self, began):
        """Waits until the pair is complete again; returns how long that took."""
        wait_until(self.other.is_backup, "the node that returned is the backup")
        self.wait_complete()
        return ms(time.time() - began)

    # ---- events ----------------------------------------------------------------------------------

    def killed(self, watch):
        """Forwarder killed, not started."""
        self.began = time.time()
        self.master.steelyard.kill_forwarder()
        self.taken_over(watch)
        back = time.time()
        self.other.start_forwarder()
        return self.returned(back)

    def unplugged(self, watch):
        """All links lost."""
        self.began = time.time()
        self.master.plug("down")
        self.taken_over(watch)
        back = time.time()
        self.other.plug("up")
        return self.returned(back)

    def powered_off(self, watch):
        """Power lost."""
        dead = self.master
        self.began = time.time()
        dead.plug("down")
        dead.keepalived.kill()
        dead.steelyard.agent.kill()
        dead.steelyard.kill_forwarder()
        self.taken_over(watch)
        dead.steelyard.cleanup()  # a host that starts has no sessions
        back = time.time()
        dead.plug("up")
        dead.steelyard.start_forwarder()
        dead.steelyard.start_agent()
        dead.steelyard.wait_in_sync()
        dead.start_keepalived()
        return self.returned(back)

    def restarted(self, _watch):
        """Forwarder killed, started."""
        self.began = time.time()
        self.master.steelyard.restart_forwarder(signal.SIGKILL)
        return self.stayed()

    def upgraded(self, _watch):
        """Upgrade."""
        self.began = time.time()
        self.master.steelyard.upgrade()
        return self.stayed()

    def stayed(self):
        """Waits until the pair is complete again. On a busy machine, keepalived may have found the
        node too slow: then the other one is the master."""
        self.master.steelyard.forwarder.prefer(FORWARDER_NICE)
        self.master.steelyard.wait_reconnected()
        self.master, self.other = wait_until(self.roles, "one node is the master")
        self.wait_complete()
        return ms(time.time() - self.began)

    def roles(self):
        """Returns the master and the backup; None while there are not one of each."""
        for master, other in (self.members, self.members[::-1]):
            if master.is_master() and other.is_backup():
                return master, other
        return None

    # ---- the end ---------------------------------------------------------------------------------

    def table(self):
        say()
        say("     From the event to keepalived's decision, and to the first packet by the other")
        say("     node; longest wait of each kind; time until the pair was complete again.")
        head = ["", "of", "master", "decided", "first packet", "after", *KINDS.values()]
        self.show.table([*head, "complete", "lost", "corrupted"], self.rows)

    def finish(self):
        self.show.step("The downloads go on at full speed, to their ends")
        self.reports = [traffic.finish() for traffic in self.traffic]
        self.claim_whole()

    def account(self):
        self.show.step("The accounting")
        for host in (self.lab["far"], *self.lab.servers()):
            resets = host.ns.resets()
            self.show.claim(not resets, f"{host} got {resets} TCP resets")
        if self.own_shares:
            share = 1000 * statistics.median(self.own_shares)
            self.show.claim(
                share <= OWN_SHARE_MS,
                f"first packet {share:.0f} ms after keepalived's decision (median; "
                f"longest {1000 * max(self.own_shares):.0f} ms)",
            )

    def stop(self):
        self.show.step("All of it stops")
        for member in self.members:
            member.keepalived.stop()
        for member in self.members:
            self.show.claim(member.steelyard.agent.stop() == 0, f"agent {member} ended cleanly")
            self.show.claim(
                member.steelyard.forwarder.stop() == 0, f"forwarder {member} ended cleanly"
            )
        self.hosts.close()

    def look_around(self):
        return {
            "as the client": f"{self.lab['far'].ns.enter} curl {ROWS[0].url}/",
            "the peers": f"steelyard get peers --forwarder {self.steelyard.forwarder_socket}",
        }


if __name__ == "__main__":
    sys.exit(perform(Failover, "failover", __doc__))
