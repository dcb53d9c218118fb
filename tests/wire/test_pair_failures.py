# SPDX-License-Identifier: Apache-2.0
"""A pair with keepalived under every failure; and packets of servers whose gateway is not, or no
longer, the master."""

import pytest

from tests.demo.failover import Failover
from tests.lab import Lab, wait_until
from tests.lab.clients import HttpConnection, connect
from tests.lab.mode_table import ROWS, ModeHosts, config
from tests.lab.steelyard import SERVER_WEB, WEB, Steelyard
from tests.lab.topology import FRONT, v4, v6
from tests.wire.pair import BACKUP, MASTER, start_nodes

NAT = {row.client: row for row in ROWS if row.mode == "nat"}
families = pytest.mark.parametrize("family", (4, 6))


def test_no_failure_loses_a_connection():
    """The small form of `make demo DEMO=failover`: each event once. The hosts may stall for longer
    than the shipped interval between advertisements."""
    with Lab(**Failover.NETWORK) as lab:
        demo = Failover(lab, events=5, connections=24, seed=1, advert_s=1)
        demo.start()
        demo.survive_all()
        demo.finish()
        demo.stop()


class Nodes:
    """Two nodes that are the gateways of servers, without keepalived. A context manager."""

    def __init__(self):
        self.lab = Lab(arms=1, pair=True)

    def __enter__(self):
        lab = self.lab.__enter__()
        try:
            self.hosts = ModeHosts(lab)
            self.hosts.start()
            made = config(lab.network)
            forwarders = [Steelyard(lab, made, host=host) for host in ("forwarder", "standby")]
            self.first, self.second = start_nodes(lab, *forwarders).values()
            self.first.set_role(MASTER)
        except BaseException:
            lab.close()
            raise
        return self

    def __exit__(self, *error):
        self.hosts.close()
        self.lab.__exit__(*error)

    def send_through(self, number):
        """Makes a host the gateway of all servers: 1 of node 1, 3 of node 2."""
        for host in self.lab.servers():
            host.ns.ip(f"route replace default via {v4(FRONT, number)}")
            host.ns.ip(f"-6 route replace default via {v6(FRONT, number)}")

    def resets(self):
        return sum(self.lab[name].ns.resets() for name in ("far", "s1", "s2", "s3"))


@pytest.fixture
def nodes():
    with Nodes() as running:
        for name in ("far", "s1", "s2", "s3"):
            running.lab[name].ns.count_resets()
        yield running


@families
def test_a_backup_translates_what_servers_send(nodes, family):
    """A switch or a server may know the new master's MAC address a moment late or early. The
    backup's kernel routes for these servers, and must not route packets of sessions untranslated:
    the other end would answer with a reset."""
    far, server = nodes.lab["far"], nodes.lab["s1"]
    with (
        HttpConnection(far, NAT[family].vip, WEB) as inward,
        HttpConnection(server, far.address(family), SERVER_WEB) as outward,
    ):
        name = inward.get()
        assert outward.get() == "far"
        nodes.first.wait_replicated(2)
        nodes.send_through(3)
        for _ in range(3):
            assert inward.get() == name
            assert outward.get() == "far"
        with pytest.raises(TimeoutError):
            connect(server, far.address(family), SERVER_WEB, timeout_s=2)
        drops = nodes.second.steelyard.drops()
        assert drops["backup"] >= 1
        assert outward.get() == "far"
    assert not nodes.resets()


@families
def test_a_released_node_routes_nothing_untranslated(nodes, family):
    """The forwarder is dead and its addresses are released, but servers still send there."""
    far, server = nodes.lab["far"], nodes.lab["s1"]
    with (
        HttpConnection(far, NAT[family].vip, WEB) as inward,
        HttpConnection(server, far.address(family), SERVER_WEB) as outward,
    ):
        name = inward.get()
        assert outward.get() == "far"
        nodes.first.wait_replicated(2)
        nodes.first.steelyard.kill_forwarder()
        released = nodes.first.steelyard.release()
        assert NAT[family].vip in released
        nodes.second.set_role(MASTER)
        before = server.ns.counters()["TcpRetransSegs"]
        outward.socket.sendall(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n")
        wait_until(
            lambda: server.ns.counters()["TcpRetransSegs"] > before,
            "the dead node has not answered the request",
        )
        nodes.send_through(3)
        assert outward.receive() == "far"
        assert inward.get() == name
        assert outward.get() == "far"
        assert not nodes.resets()
        nodes.first.steelyard.start_forwarder()
        assert nodes.first.role() == BACKUP
        nodes.second.wait_replicated(2)
