# SPDX-License-Identifier: Apache-2.0
"""The SYN defence under DR and IPIP, always on: kernels' TCP beside forged SYNs."""

import contextlib
import socket

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, http_get, wrk
from tests.lab.flood import answers_to_forged, flooding, provide_internet
from tests.lab.mode_table import ROWS, VIP_ON_SERVERS
from tests.lab.topology import FRONT, v4, v6
from tests.lab.wait import within_tries
from tests.wire.conftest import check_accounting
from tests.wire.mode_stage import ModeStage

# The resets that validate clients are dropped after use; no-session: see each test.
DROPS = pytest.mark.drops("syn-proof")
# The defence does not depend on the tunnel's family.
ASKED = [row for row in ROWS if row.mode in VIP_ON_SERVERS and (row.client, row.server) != (4, 6)]
rows = pytest.mark.parametrize("row", ASKED, ids=str)
CREDITS = 255
NO_SERVICE = 4444


class ChallengeStage(ModeStage):
    def start(self):
        super().start()
        provide_internet(self.lab)
        for service in self.default.services:
            if service.protocol == "tcp" and service.mode in VIP_ON_SERVERS:
                service.spread["syn_defence"] = "always"
        self.restore()
        self.steelyard.wait_in_sync()
        self.steelyard.wait_all_up()

    @property
    def far(self):
        return self.lab["far"]

    def forget_clients(self):
        """Restarts the forwarder: a new process knows no client."""
        self.steelyard.kill_forwarder()
        self.steelyard.start_forwarder()
        self.steelyard.wait_reconnected()

    def proofs(self):
        return self.accounting.dropped().get("syn-proof", 0)

    def get(self, row, host=None):
        return http_get(host or self.far, row.vip, row.ports[0]).decode().strip()


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def challenge_stage(request):
    with ChallengeStage(arms=1, workers=request.param, queues=request.param) as stage:
        yield stage


@pytest.fixture
def challenged(challenge_stage, request):
    yield from check_accounting(challenge_stage, request)


@contextlib.contextmanager
def waiting(host, row):
    """Opens a connection without an answering server: its second SYN shows that a second has
    passed."""
    family = socket.AF_INET6 if row.client == 6 else socket.AF_INET
    with host.ns.entered():
        one = socket.socket(family, socket.SOCK_STREAM)
    with one:
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            one.connect((row.vip, NO_SERVICE))
        yield


def is_syn(packet, port):
    return TCP in packet and packet[TCP].dport == port and packet[TCP].flags == "S"


@pytest.mark.drops("syn-proof", "no-service")
@rows
def test_new_client_waits_for_one_exchange_only(challenged, row):
    """SYN, ACK, reset and repeated SYN happen within another connection's first retransmission
    timeout. Tries again if the machine stood still for that long."""
    within_tries(3, lambda: is_one_exchange(challenged, row), "four segments in time")
    challenged.get(row)  # validated now: no further challenge
    assert challenged.proofs() == 1


def is_one_exchange(challenged, row):
    challenged.forget_clients()
    wire, port = challenged.lab.capture("far"), row.ports[0]
    with waiting(challenged.far, row):
        assert challenged.get(row) in challenged.hosts.names()
        wait_until(
            lambda: len(wire.packets(lambda p: is_syn(p, NO_SERVICE))) > 1, "the timer runs out"
        )
    packets = wire.packets(lambda p: TCP in p and {p[TCP].sport, p[TCP].dport} & {port, NO_SERVICE})
    late = [n for n, p in enumerate(packets) if is_syn(p, NO_SERVICE)][1]
    wire.close()
    segments = [p[TCP] for p in packets[:late] if NO_SERVICE not in (p[TCP].sport, p[TCP].dport)]
    if [str(s.flags) for s in segments[:5]] != ["S", "A", "R", "S", "SA"]:
        return False
    first, ask, proof, again, answer = segments[:5]
    assert proof.seq == ask.ack and (again.seq, again.sport) == (first.seq, first.sport)
    assert answer.ack == first.seq + 1
    assert challenged.proofs() == 1
    return True


@DROPS
@rows
def test_every_server_answers_validated_clients(challenged, row):
    assert {challenged.get(row) for _ in range(30)} == challenged.hosts.names()


@pytest.mark.drops("syn-proof", "no-session")
@rows
def test_many_connections_of_one_address_succeed(challenged, row):
    """More connections of one address than one validation covers: it is challenged again, and none
    fails. wrk's end resets the connections under way: once for each segment that still arrives."""
    challenged.forget_clients()
    load = wrk(challenged.lab, row.url + "/", 3 * CREDITS, keep_alive=False, host="far")
    assert not load.failed, load
    # Connections that start before the client is validated are challenged one by one.
    assert 3 <= challenged.proofs() <= 4 * 16


@DROPS
@rows
def test_forged_syns_create_no_session(challenged, row):
    """They are answered without state, and clients are served meanwhile."""
    challenged.forget_clients()
    before = answers_to_forged(challenged.lab)
    with flooding(challenged.lab, "syn", row.vip, str(row.ports[0]), rate=2000) as flood:
        wait_until(lambda: answers_to_forged(challenged.lab) > before, "SYNs are answered")
        with HttpConnection(challenged.far, row.vip, row.ports[0]) as one:
            for _ in range(20):
                assert challenged.get(row) in challenged.hosts.names()
                assert one.get() in challenged.hosts.names()
        # Counts the client's alone, including those of earlier tests.
        sessions = challenged.steelyard.sessions("--service", f"web-{row}")
        assert {session["client"] for session in sessions} == {challenged.far.address(row.client)}
        assert len(sessions) >= 21
    assert flood["sent"]


# icmp-unhandled: the router redirects servers, by their VIP, to its neighbour.
@pytest.mark.drops("syn-proof", "icmp-unhandled")
@rows
def test_connections_survive_a_kill_and_an_upgrade(challenged, row):
    """Open connections continue, and new ones are challenged again. These come from another host,
    because an overloaded forwarder trusts clients with an established connection."""
    with HttpConnection(challenged.far, row.vip, row.ports[0]) as one:
        server = one.get()
        challenged.forget_clients()
        assert one.get() == server
        assert challenged.proofs() == 0
        assert challenged.get(row, challenged.client) in challenged.hosts.names()
        # More than one if the client retransmits its SYN before the answer.
        wait_until(lambda: challenged.proofs() >= 1, "the client has shown its address")
        challenged.steelyard.upgrade()
        assert one.get() == server
        assert challenged.get(row, challenged.client) in challenged.hosts.names()
    challenged.steelyard.wait_reconnected()


@DROPS
@rows
def test_clients_of_before_the_defence_are_not_challenged(challenged, row):
    challenged.forget_clients()
    service = challenged.config[f"web-{row}"]
    service.spread["syn_defence"] = "off"
    challenged.apply()
    challenged.steelyard.wait_in_sync()
    challenged.get(row)
    service.spread["syn_defence"] = "always"
    challenged.apply()
    challenged.steelyard.wait_in_sync()
    for _ in range(10):
        challenged.get(row)
    assert challenged.proofs() == 0


@pytest.mark.drops("no-session")
@rows
def test_reset_with_wrong_number_validates_no_client(challenged, row):
    """It is dropped like any packet without a session."""
    wire = challenged.lab.capture("client")
    mac, own = challenged.lab["forwarder"].ns.mac("front"), challenged.client.ns.mac("eth0")
    client = (v4 if row.client == 4 else v6)(FRONT, 99)
    ip = (IP if row.client == 4 else IPv6)(src=client, dst=row.vip)
    port = row.ports[0]
    for n in range(10):
        reset = TCP(sport=5000, dport=port, flags="R", seq=n * 0x19999999)
        wire.send(Ether(src=own, dst=mac) / ip / reset)
    wait_until(lambda: challenged.accounting.dropped().get("no-session") == 10, "all were dropped")
    wire.send(Ether(src=own, dst=mac) / ip / TCP(sport=5000, dport=port, flags="S", seq=7))
    ask = wire.wait_for(
        lambda p: TCP in p and p[TCP].sport == port and p[TCP].dport == 5000, "it is asked"
    )
    assert ask[TCP].flags == "A"
    sessions = challenged.steelyard.sessions("--service", f"web-{row}")
    assert client not in {session["client"] for session in sessions}
