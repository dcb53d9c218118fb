# SPDX-License-Identifier: Apache-2.0
"""The six scenarios of application-defined priorities (examples/priority), each with its C hook,
with the ready eBPF hook, and without: the order in which simultaneously waiting requests are
served.

Others' requests always arrive first, urgent ones after them."""

import socket
import struct
from collections import Counter

import pytest
from scapy.layers.inet import TCP
from scapy.packet import Raw

from tests.lab import Lab, wait_until
from tests.lab.clients import receive_exactly
from tests.lab.hooks import hook, hook_list, stack_name, stopped
from tests.lab.link import Link
from tests.lab.steelyard import BUILD, SANITIZED, memory_options
from tests.lab.topology import FRONT, v4

PORT = 7010
ADDRESS = v4(FRONT, 100)
URGENT, OTHERS = 3, 5
READY = BUILD / "dataplane/hook/ready"
SORTED = ["urgent"] * URGENT + ["others"] * OTHERS
hooks = pytest.mark.parametrize("how", ("C", "eBPF", "none"))


@pytest.fixture(scope="module")
def lab():
    with Lab(arms=1, servers=0) as lab:
        yield lab


@pytest.fixture
def start(lab):
    """Starts a scenario's server, which ends with the test."""
    started = []

    def begin(name, how, *params):
        argv = [BUILD / f"examples/steelyard-priority-{name}", "-i", "front", "-a", ADDRESS]
        argv += ["-p", PORT, "-s", stack_name(f"{name}-{how}")]
        argv += ["-H"] if "--no-huge" in memory_options(lab) else []
        if how == "eBPF":
            argv += ["-e", READY / f"{name}.bpf.o"]
            argv += [word for param in params for word in ("-P", param)]
        elif how == "none":
            argv += ["-n"]
        process = lab.start("forwarder", f"priority-{name}", argv, SANITIZED)
        process.wait_for("^ready$")
        started.append(process)
        return process

    yield begin
    for process in started:
        assert process.stop() == 0, process.describe()


def request(label, size=1):
    """Returns a request of so many bytes after its length; the label is the first of them."""
    return struct.pack("!IB", size, label) + bytes(size - 1)


class Client:
    def __init__(self, lab, kind, host="client"):
        self.kind, self.host = kind, lab[host]
        self.one = self.host.ns.socket()
        self.one.settimeout(60)
        self.one.connect((ADDRESS, PORT))

    def number(self):
        (number,) = struct.unpack("!I", receive_exactly(self.one, 4))
        return number

    def ask(self, data):
        """The client acknowledges the answer at once: a stopped server would otherwise measure a
        long path."""
        self.one.sendall(data)
        number = self.number()
        self.one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return number


def served(lab, process, clients, requests, settle=lambda: None):
    """Returns the kinds of clients in the order served; all requests arrived before the first was
    served. settle waits until nothing is in flight."""
    settle()
    with stopped(process.pid, lab["forwarder"]) as send:
        for kind in ("others", "urgent"):
            for client in clients:
                if client.kind == kind:
                    send(client.one, requests[kind])
            settle()
    order = sorted((client.number(), client.kind) for client in clients)
    for client in clients:
        client.one.close()
    return [kind for _, kind in order]


def everybody(lab, **hosts):
    kinds = ["others"] * OTHERS + ["urgent"] * URGENT
    return [Client(lab, kind, hosts.get(kind, "client")) for kind in kinds]


def check(order, how):
    """Without a hook, requests are served in the order in which epoll reported them."""
    if how == "none":
        assert sorted(order) == sorted(SORTED)
    else:
        assert order == SORTED


@hooks
def test_1_short_requests_are_served_first(lab, start, how):
    process = start("length", how)
    requests = {"others": request(0, 1300), "urgent": request(0, 20)}
    check(served(lab, process, everybody(lab), requests), how)


@hooks
def test_2_labelled_requests_are_served_first(lab, start, how):
    process = start("label", how, "0=4")
    requests = {"others": request(6), "urgent": request(1)}
    check(served(lab, process, everybody(lab), requests), how)


@hooks
def test_3_clients_on_the_better_link_are_served_first(lab, start, how):
    process = start("link", how)
    with Link(lab, "far", delay_ms=200) as link:
        clients = everybody(lab, others="far")
        for client in clients:
            client.ask(request(0))
            client.ask(request(0))
        requests = {"others": request(0), "urgent": request(0)}
        check(served(lab, process, clients, requests, link.settle), how)


def make_link_lossy(link, clients):
    """Each client gets an answer that the server has sent three times: enough for a bad link."""
    at_link = link.lab.capture(link.name, "end-b")
    ports = {client.one.getsockname()[1] for client in clients}
    link.set("ba", loss=1)
    for client in clients:
        client.one.sendall(request(0))

    def sent_again():
        answers = at_link.packets(lambda packet: TCP in packet and Raw in packet, outgoing=False)
        times = Counter(packet[TCP].dport for packet in answers)
        return all(times[port] >= 3 for port in ports)

    wait_until(sent_again, "the server has sent each answer three times")
    link.lab.close_captures()
    link.set("ba", loss=0)
    for client in clients:
        client.number()
        client.one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


@hooks
def test_3_clients_with_fewer_losses_are_served_first(lab, start, how):
    """The links have the same delay. The eBPF hook uses no RTT."""
    process = start("link", how, f"0={1 << 31}")
    with Link(lab, "far") as link:
        clients = everybody(lab, others="far")
        make_link_lossy(link, [client for client in clients if client.kind == "others"])
        requests = {"others": request(0), "urgent": request(0)}
        check(served(lab, process, clients, requests, link.settle), how)


@hooks
def test_4_connections_with_fewer_bytes_are_served_first(lab, start, how):
    process = start("bytes", how)
    clients = everybody(lab)
    for client in clients:
        if client.kind == "others":
            for _ in range(2):
                client.ask(request(0, 40000))
    requests = {"others": request(0), "urgent": request(0)}
    check(served(lab, process, clients, requests), how)


@hooks
def test_5_label_of_the_first_packet_covers_its_request(lab, start, how):
    """The label is in the first packet alone; the next request has another one."""
    process = start("requests", how)
    clients = everybody(lab)
    for client in clients:
        client.ask(request(6 if client.kind == "urgent" else 1, 5000))
    requests = {"others": request(6, 5000), "urgent": request(1, 5000)}
    check(served(lab, process, clients, requests), how)


@hooks
def test_5_requests_larger_than_the_buffer_keep_their_label(lab, start, how):
    """They arrive in parts, as does what follows on their connection. A half request that ends
    leaves others alone."""
    start("requests", how)
    first, second, third = (Client(lab, "others") for _ in range(3))
    for number, client in enumerate((first, second)):
        assert client.ask(request(6, 300000)) == number
    third.one.sendall(request(1, 300000)[:3])
    third.one.shutdown(socket.SHUT_WR)
    assert third.one.recv(1) == b""
    first.one.sendall(request(1, 200000) + request(6, 1) + request(1, 70000))
    assert [first.number() for _ in range(3)] == [2, 3, 4]
    assert second.ask(request(1)) == 5
    for client in (first, second, third):
        client.one.close()


@hooks
def test_6_short_service_times_are_served_first(lab, start, how):
    """The server measures the service time of type 1."""
    process = start("service_time", how, "0=4", "1=1000")
    teacher = Client(lab, "teacher")
    for label in (1, 2, 1, 2):
        teacher.ask(request(label))
    teacher.one.close()
    requests = {"others": request(1), "urgent": request(2)}
    check(served(lab, process, everybody(lab), requests), how)


def test_library_hook_is_controlled_while_it_runs(lab, start):
    """The application's hook is listed, replaced, and its parameters are set."""
    process = start("label", "C")
    name = stack_name("label-C")
    known, stacks = hook_list(name)
    assert stacks == 1
    assert known["label"]["native"]
    assert "swap it" in hook(name, "load", "label", "label", check=False)
    assert "swapped in 1 stack" in hook(name, "swap", "label", "label", "--param", "0=4")
    requests = {"others": request(6), "urgent": request(1)}
    assert served(lab, process, everybody(lab), requests) == SORTED
    known, _ = hook_list(name)
    assert not known["label"]["native"]
    assert known["label"]["levels"][1] >= URGENT
    places = ("--listen", f"{ADDRESS}:{PORT}", "--listen", f":{PORT}")
    told = hook(name, "load", "few", "bytes", *places, check=False)
    assert f"no listener at {ADDRESS}:{PORT} yet" in told  # it listens at all addresses
    assert f"no listener at :{PORT} yet" not in told
    client = Client(lab, "others")
    client.ask(request(0))
    client.one.close()
    assert hook_list(name)[0]["few"]["calls"] == 1
    hook(name, "rm", "label")
    check(served(lab, process, everybody(lab), requests), "none")
    wait_until(lambda: hook_list(name)[0].keys() == {"few"}, "the other one stays")
