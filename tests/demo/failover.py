# SPDX-License-Identifier: Apache-2.0
"""Thousands of conversations continue while nodes die, return and are upgraded: first those of a
pair, then of three nodes behind ECMP.

`make demo DEMO=failover` runs it; with --keep everything stays up for inspection."""

import signal
import socket
import statistics
import struct
import sys
import time

from tests.demo.perform import perform
from tests.demo.show import say
from tests.demo.spread import Spread
from tests.demo.survival import Survival, ms
from tests.lab import wait_until
from tests.lab.mode_table import ROWS, ModeHosts, config
from tests.lab.mode_traffic import PROXIED, plan_traffic, provide_content
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


class Failover(Survival):
    NETWORK = {"arms": 1, "pair": True}
    OPTIONS = {"events": (20, "number of events of the pair"), **Survival.OPTIONS}
    columns = ("of", "master", "decided", "first packet", "after", "complete")
    legend = (
        "From the event to keepalived's decision, and to the first packet by the other",
        "node; time until the pair was complete again; longest wait of each kind.",
    )

    def __init__(self, lab, events, connections, seed, advert_s=ADVERT_S):
        super().__init__(lab, connections, seed)
        self.events, self.advert_s = events, advert_s
        self.hosts = ModeHosts(lab, (GATEWAY[4], f"{GATEWAY[6]} dev eth0"), PROXIED)
        self.config = config(lab.network)
        self.traffic = plan_traffic(lab, self.config, self.counts)
        self.own_shares = []
        self.steelyard = Steelyard(lab, self.config)

    def run(self):
        http, downloads, udp = self.counts
        say(PICTURE.format(http=http, downloads=downloads, udp=udp))
        self.start()
        self.survive_all()
        self.finish()
        self.account()

    def plan(self, dice):
        kinds = [self.killed, self.unplugged, self.powered_off, self.restarted, self.upgraded]
        plan = dice.sample(kinds, len(kinds)) + dice.choices(kinds, k=self.events)
        return plan[: self.events]

    def start(self):
        self.show.step("Three servers, two nodes with keepalived, and a router start")
        self.hosts.start()
        provide_content(self.lab, self.traffic)
        self.count_resets(local_addresses(FRONT))
        standby = Steelyard(self.lab, self.config, host="standby")
        nodes = start_nodes(self.lab, self.steelyard, standby)
        self.members = [Member(self.lab, node, self.advert_s) for node in nodes.values()]
        self.master, self.other = self.members
        self.master.start_keepalived()
        wait_until(self.master.is_master, "node 1 is the master")
        self.other.start_keepalived()
        wait_until(self.other.is_backup, "node 2 is the backup")
        self.show.claim(True, "node 1 is the master, node 2 the backup")
        self.begin_flows()
        self.wait_complete()
        shown = self.master.steelyard.cli(
            "get", "peers", "--forwarder", self.master.steelyard.forwarder_socket
        )
        self.show.command("steelyard get peers", shown)

    def wait_complete(self):
        self.master.node.wait_replicated(self.flows)

    def happen(self, event):
        before = self.master
        self.began = time.time()
        with Watch(self.lab, self.other.steelyard.host) as watch:
            complete = event(watch)
        times = ["", "", ""]
        if self.master is not before and watch.packet:
            detected, first = watch.advert - self.began, watch.packet - self.began
            self.own_shares.append(first - detected)
            times = [ms(detected), ms(first), ms(first - detected)]
        return [str(before), str(self.master), *times, complete]

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

    def account(self):
        self.show.step("The accounting")
        self.claim_no_resets()
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
            self.claim_ended(member, member.steelyard)
        self.hosts.close()

    def look_around(self):
        return {
            "as the client": f"{self.lab['far'].ns.enter} curl {ROWS[0].url}/",
            "the peers": f"steelyard get peers --forwarder {self.steelyard.forwarder_socket}",
        }


if __name__ == "__main__":
    sys.exit(perform((Failover, Spread), "failover", __doc__))
