# SPDX-License-Identifier: Apache-2.0
"""Fragments behind ECMP: routers hash fragments without ports, so they arrive at other nodes than
their session's packets; some routers hash first fragments with ports, and the rest without."""

import os
import random

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.mode_table import OUTWARD, ROWS, VIP_ON_SERVERS
from tests.lab.servers import DatagramEcho
from tests.wire.cluster import Cluster
from tests.wire.test_fragments import ask, client_socket
from tests.wire.test_fragments_outward import frames_of

PORT, REMOTE = 9431, 9432
TURNS = 4
rows = pytest.mark.parametrize("row", ROWS, ids=str)
# A server's first answer under NAT may reach another node before that has the session.
beginning = pytest.mark.parametrize("row", [row for row in ROWS if row.mode != "nat"], ids=str)
fnat = pytest.mark.parametrize("row", ROWS[:2], ids=str)
outward = pytest.mark.parametrize("row", OUTWARD, ids=str)


def own(one):
    return one.getsockname()[:2]


def begin(one, target):
    """Begins a session that another node keeps too: once its client has sent a second datagram."""
    for data in (b"begin", b"both ways"):
        assert ask(one, target, data) == data
    one.settimeout(10)  # the datagrams that follow are sent once


class CutCluster(Cluster):
    """With a UDP echo on s1 in every mode, and one on `far`. The tests' datagrams have ids of their
    own."""

    def __init__(self):
        super().__init__(workers=(2, 1, 1))
        self.echoes, self.id, self.dice = [], 0, random.Random(1)

    def _config(self, number):
        made = super()._config(number)
        for row in ROWS:
            servers = [Server(self.lab["s1"].address(row.server), PORT)]
            name, spread = f"cut-{row}", {"sync": "all"}
            made.services.append(
                Service(name, row.vip, PORT, "udp", "rr", row.mode, spread, servers=servers)
            )
        return made

    def start(self, *numbers):
        server, far = self.lab["s1"], self.lab["far"]
        for family in (4, 6):
            self.echoes.append(DatagramEcho(server, PORT, family))
            self.echoes.append(DatagramEcho(far, REMOTE, family))
        for row in ROWS:
            if row.mode in VIP_ON_SERVERS:
                self.echoes.append(DatagramEcho(server, PORT, row.client, row.vip))
        super().start(*numbers)

    def __exit__(self, *error):
        for echo in self.echoes:
            echo.close()
        super().__exit__(*error)

    def scatter(self, source, target, size):
        """Sends a datagram whose fragments arrive at different nodes, in any order. Returns its
        data."""
        data, router = os.urandom(size), self.lab["router"]
        self.id += 1
        frames = frames_of(router, "00:00:00:00:00:00", source, target, data, self.id)
        living = [*self.living()]
        at = self.dice.sample(living, 2) + self.dice.choices(living, k=len(frames) - 2)
        self.dice.shuffle(frames)
        wire = self.lab.capture("router")
        for number, frame in zip(at, frames, strict=True):
            mac = self.lab[self.lab.network.node_name(number)].ns.mac("front")
            wire.send(bytes.fromhex(mac.replace(":", "")) + frame[6:])
        self.lab.close_captures()
        return data

    def session(self, one):
        """Returns the session of a client's socket, and the node that serves it."""
        client, port = own(one)

        def found():
            return [
                (one, node)
                for node in self.living().values()
                for one in node.steelyard.sessions()
                if (one["client"], one["client_port"]) == (client, port) and one["state"] != "away"
            ]

        ((session, node),) = wait_until(found, "a node serves the session")
        self.wait_replicated(1)
        return session, node


@pytest.fixture(scope="module")
def cut():
    with CutCluster() as cluster:
        cluster.start(1, 2, 3)
        yield cluster
        cluster.check_drops(("nat-stray", "too-big"))


@rows
def test_scattered_fragments_reach_their_session(cut, row):
    with client_socket(cut.lab["far"], row.client) as one:
        begin(one, (row.vip, PORT))
        for turn in range(TURNS):
            data = cut.scatter(own(one), (row.vip, PORT), 4000 + turn)
            assert one.recv(65535) == data


@beginning
def test_scattered_fragments_begin_a_session(cut, row):
    for turn in range(TURNS):
        with client_socket(cut.lab["far"], row.client) as one:
            one.settimeout(10)
            data = cut.scatter(own(one), (row.vip, PORT), 4000 + turn)
            assert one.recv(65535) == data


@fnat
def test_scattered_answers_of_servers_reach_their_session(cut, row):
    with client_socket(cut.lab["far"], row.client) as one:
        begin(one, (row.vip, PORT))
        session, _ = cut.session(one)
        for turn in range(TURNS):
            source = cut.lab["s1"].address(row.server), PORT
            data = cut.scatter(source, (session["local"], session["local_port"]), 4000 + turn)
            assert one.recv(65535) == data


@outward
def test_scattered_fragments_pass_snat(cut, row):
    """To a remote, as its echoes show, and back."""
    inside, remote = cut.lab["s1"], (cut.lab["far"].address(row.client), REMOTE)
    with client_socket(inside, row.client) as one:
        begin(one, remote)
        session, _ = cut.session(one)
        for turn in range(TURNS):
            data = cut.scatter(own(one), remote, 4000 + turn)
            assert one.recv(65535) == data
            data = cut.scatter(remote, (session["local"], session["local_port"]), 4000 + turn)
            assert one.recv(65535) == data


def test_large_datagrams_while_flows_are_spread_anew(cut):
    """Fragmented by kernels; the router hashes their addresses."""
    remote = {family: (cut.lab["far"].address(family), REMOTE) for family in (4, 6)}
    for _ in range(2):
        for row in (*ROWS, *OUTWARD):
            if row in OUTWARD:
                host, peer = cut.lab["s2"], remote[row.client]
            else:
                host, peer = cut.lab["far"], (row.vip, PORT)
            with client_socket(host, row.client) as one:
                for size in (2000, 20_000):
                    data = os.urandom(size)
                    assert ask(one, peer, data) == data, f"{row}, {size} bytes"
        cut.lab.network.spread_anew(cut.dice)


def test_scattered_fragments_after_their_node_has_died(cut):
    """The last test: the node stays dead."""
    with client_socket(cut.lab["far"], 4) as one, client_socket(cut.lab["far"], 6) as two:
        talks = {one: (ROWS[0].vip, PORT), two: (ROWS[1].vip, PORT)}
        for client, vip in talks.items():
            begin(client, vip)
        _, node = cut.session(one)
        cut.die(node.number)
        cut.wait_joined()
        for turn in range(TURNS):
            for client, vip in talks.items():
                data = cut.scatter(own(client), vip, 4000 + turn)
                assert client.recv(65535) == data
