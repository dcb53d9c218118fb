# SPDX-License-Identifier: Apache-2.0
"""Datagrams that exceed their path's MTU, from senders that permit fragmentation."""

import copy
import os
import socket

import pytest

from tests.lab import Server, Service
from tests.lab.clients import connect, receive_exactly
from tests.lab.servers import DatagramEcho, EchoServer
from tests.lab.topology import FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.test_fragments import PORT, VIPS, PastStage, ThroughStage, client_socket

NARROW = 1400
# module socket has no names for these
MTU_DISCOVER = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
PMTUDISC_OMIT = 5  # DF is off, and ICMP errors are ignored (ip(7))
CROSSED = {4: v4(FRONT, 88), 6: v6(FRONT, 88)}  # servers of the other family
ASKED, STREAM = 9431, 9432
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


def omit_discovery(one, family):
    one.setsockopt(*MTU_DISCOVER[family], PMTUDISC_OMIT)


class AnswerServer(DatagramEcho):
    """A UDP server that answers with as many bytes as requested, like name servers."""

    def __init__(self, host, port, family):
        super().__init__(host, port, family)
        omit_discovery(self.socket, family)

    def answer(self, data):
        return data * (int(data) // len(data) + 1)


class OversizeStage(ThroughStage):
    """The clients' network has a smaller MTU than the servers' network; answers have any size."""

    def start(self):
        for host, interface in (("forwarder", "front"), ("client", "eth0")):
            self.lab[host].ns.ip(f"link set {interface} mtu {NARROW}")
        super().start()
        server = self.lab["s1"]
        for family in (4, 6):
            other = 10 - family
            self.echo[f"answers{family}"] = AnswerServer(server, ASKED, family)
            self.echo[f"stream{family}"] = EchoServer(server, STREAM, family)
            for mode in self.modes:
                target = Server(server.address(family), ASKED)
                vip = VIPS[mode][family]
                self.add(f"{mode}-answers{family}", vip, ASKED, "udp", target, mode)
            for port, protocol in ((ASKED, "udp"), (STREAM, "tcp")):
                target = Server(server.address(other), port)
                self.add(f"crossed-{protocol}{family}", CROSSED[family], port, protocol, target)
        self.apply()
        self.steelyard.wait_all_up()
        self.default = copy.deepcopy(self.config)

    def add(self, name, vip, port, protocol, server, mode="fnat"):
        self.config.services.append(Service(name, vip, port, protocol, mode=mode, servers=[server]))


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def oversize_stage(request):
    with OversizeStage(workers=request.param) as stage:
        yield stage


@pytest.fixture
def oversize(oversize_stage, request):
    yield from check_accounting(oversize_stage, request)


def check_answers(one, peer, sizes):
    """Each answer arrives at once: lost ones are not requested again."""
    one.settimeout(60)
    for size in sizes:
        question = b"%d" % size
        one.sendto(question, peer)
        answer = one.recv(65535)
        assert len(answer) > size
        assert answer == question * (len(answer) // len(question)), size


SIZES = (1200, 1372, 1373, 1440, 1460, 1472, 1473, 2000, 4000, 20_000)


def test_answers_are_fragmented_for_a_narrower_network(oversize):
    """Only IPv4: a router must not fragment an IPv6 answer."""
    for mode in oversize.modes:
        with client_socket(oversize.client, 4) as one:
            check_answers(one, (VIPS[mode][4], ASKED), SIZES)


@families
def test_answers_are_fragmented_for_the_other_family(oversize, family):
    """IPv4 servers' answers to IPv6 clients, and answers that IPv6 servers fragment themselves."""
    sizes = SIZES if family == 6 else (1000, 20_000)
    with client_socket(oversize.client, family) as one:
        check_answers(one, (CROSSED[family], ASKED), sizes)


def test_segments_without_df_are_fragmented(oversize):
    """A server without path MTU discovery, and a client of the other family."""
    server = oversize.lab["s1"].ns
    server.sysctl("ipv4.ip_no_pmtu_disc", 1)
    data = os.urandom(400_000)
    with connect(oversize.client, CROSSED[6], STREAM) as one:
        for at in range(0, len(data), 20_000):
            one.sendall(data[at : at + 20_000])
            assert receive_exactly(one, 20_000) == data[at : at + 20_000]
    server.sysctl("ipv4.ip_no_pmtu_disc", 0)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def upward_stage(request):
    with ThroughStage(workers=request.param, server_mtu=NARROW) as stage:
        yield stage


@pytest.fixture
def upward(upward_stage, request):
    yield from check_accounting(upward_stage, request)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def past_stage(request):
    with PastStage(arms=1, workers=request.param) as stage:
        yield stage


@pytest.fixture
def past(past_stage, request):
    yield from check_accounting(past_stage, request)


def check_questions(stage, sizes):
    for mode in stage.modes:
        with client_socket(stage.client, 4) as one:
            omit_discovery(one, 4)
            one.settimeout(60)
            for size in sizes:
                data = os.urandom(size)
                one.sendto(data, (VIPS[mode][4], PORT[mode]))
                assert one.recv(65535) == data, f"{size} bytes, {mode}"


def test_requests_are_fragmented_for_narrower_servers(upward):
    check_questions(upward, SIZES)


def test_requests_are_fragmented_into_a_tunnel(past):
    """The tunnel header leaves less than the network's MTU."""
    check_questions(past, SIZES)
