# SPDX-License-Identifier: Apache-2.0
"""IP fragments of segments to a program on the user-space stack; all other fragments belong to
Linux (docs/design/0061)."""

import socket

import pytest
from scapy.layers.inet import IP, TCP, fragment
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    PadN,
    fragment6,
)
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.lab.hooks import stack_name
from tests.lab.run import kernel_connections, nginx_text
from tests.lab.stacks import listed
from tests.wire.running import V4, V6, families, site, start

SERVER = """\
    large_client_header_buffers 4 8k;
    server {{
        listen 8002;
        listen [::]:8002;
        location / {{ return 200 "$http_x_end"; }}
    }}
"""
# Hosts that the lab's kernels do not have: the server's packets to them are only captured.
GUEST = {4: "10.0.0.77", 6: "fd00::77"}
SEQ = 1000


class Guest:
    """A scapy peer with a connection to the server."""

    def __init__(self, stack, capture, family, port, to=8002):
        self.capture, self.family, self.port, self.to = capture, family, port, to
        ether = Ether(src=stack["client"].ns.mac("eth0"), dst=stack["forwarder"].ns.mac("front"))
        ip = IP if family == 4 else IPv6
        self.head = ether / ip(src=GUEST[family], dst=(V4, V6)[family == 6])
        self.id = port * 8
        self.seq, self.ack = SEQ, 0
        self.send(self.segment("S"))
        answer = capture.wait_for(self.got("SA"), "SYN, ACK", outgoing=False)
        self.ack = answer[TCP].seq + 1
        self.seq += 1
        self.send(self.segment("A"))

    def got(self, flags):
        return lambda one: TCP in one and one[TCP].dport == self.port and one[TCP].flags == flags

    def segment(self, flags, data=b"", extensions=None):
        numbers = {"seq": self.seq, "ack": self.ack}
        tcp = TCP(sport=self.port, dport=self.to, flags=flags, window=65535, **numbers)
        head = self.head / extensions if extensions else self.head
        return Ether(bytes(head.copy() / tcp / data))

    def send(self, *packets):
        for packet in packets:
            self.capture.send(packet)

    def request(self, size=1200):
        """Sends a request; its last byte determines the answer."""
        head = b"GET / HTTP/1.1\r\nHost: x\r\nX-Pad: "
        end = b"\r\nX-End: whole\r\n\r\n"
        return head + b"p" * (size - len(head) - len(end)) + end

    def parts(self, packet, size=400):
        """Returns the packet's fragments."""
        self.id += 1
        if self.family == 4:
            packet[IP].id = self.id
            return [Ether(bytes(one)) for one in fragment(packet, size)]
        ether, ip = packet.copy(), packet[IPv6].copy()
        ether.remove_payload()
        inside, ip.payload = ip.payload, Raw()
        whole = IPv6(src=ip.src, dst=ip.dst) / IPv6ExtHdrFragment(id=self.id) / inside
        return [Ether(bytes(ether / one)) for one in fragment6(whole, size + 100)]

    def ask_again(self):
        """Sends the data of a dropped datagram again, in one segment."""
        self.send(self.segment("PA", self.request()))
        self.answered()

    def answered(self):
        def is_it(one):
            return self.got("PA")(one) and b"whole" in bytes(one[TCP].payload)

        self.capture.wait_for(is_it, "the answer", outgoing=False)


@pytest.fixture
def guests(stack):
    """Yields a function that makes guests. The server has neighbour entries for them."""
    host, mac = stack["forwarder"].ns, stack["client"].ns.mac("eth0")
    for address in GUEST.values():
        host.ip(f"neigh replace {address} dev front lladdr {mac} nud permanent")
    capture = stack.capture("client")
    yield lambda family, port, **to: Guest(stack, capture, family, port, **to)
    for address in GUEST.values():
        host.ip(f"neigh del {address} dev front")


def serve(stack, workers):
    name = stack_name("fragments")
    folder = site(stack, "fragments", nginx_text(SERVER, workers=workers))
    start(stack, "nginx", ["nginx", "-c", folder / "conf"], 8002, "--name", name, workers=workers)
    return lambda counter: listed(name)["counts"][counter]


@families
@pytest.mark.parametrize("workers", (1, 2), ids=("one", "two"))
def test_fragments_in_any_order_are_reassembled(stack, guests, family, workers):
    """By any queues and workers. The first fragment arrives first, the others in any order."""
    count = serve(stack, workers)
    before = kernel_connections(stack["forwarder"])
    for turn in range(4 * workers):
        guest = guests(family, 7000 + turn)
        first, *others = guest.parts(guest.segment("PA", guest.request()))
        assert len(others) >= 2
        guest.send(first, *(others if turn % 2 else reversed(others)))
        guest.answered()
    assert count("reassembled") == 4 * workers
    assert kernel_connections(stack["forwarder"]) == before


@families
def test_overlapping_fragments_drop_their_datagram(stack, guests, family):
    """The whole datagram is dropped (RFC 5722); a duplicate fragment is harmless (RFC 8200 4.5)."""
    count = serve(stack, 1)
    guest = guests(family, 7100)
    parts = guest.parts(guest.segment("PA", guest.request()))
    shifted = parts[1].copy()
    if family == 4:
        shifted[IP].frag -= 1
        del shifted[IP].chksum
    else:
        shifted[IPv6ExtHdrFragment].offset -= 1
    guest.send(parts[0], shifted, *parts[1:])
    guest.ask_again()
    assert count("reassembled") == 0
    assert count("fragments_overlap") == len(parts)
    guest = guests(family, 7101)
    parts = guest.parts(guest.segment("PA", guest.request()))
    guest.send(parts[0], parts[0], *parts[1:])
    guest.answered()
    assert (count("reassembled"), count("fragments_duplicate")) == (1, 1)


@families
def test_incomplete_datagrams_are_evicted(stack, guests, family):
    """Those of a source that has more incomplete datagrams than its share."""
    count = serve(stack, 1)
    guest = guests(family, 7200)
    for _ in range(20):
        guest.send(guest.parts(guest.segment("PA", guest.request()))[0])
    guest.send(*guest.parts(guest.segment("PA", guest.request())))
    guest.answered()
    assert count("fragments_evicted") == 20 + 1 - 8
    assert count("reassembled") == 1


EXTENSIONS = {
    "destination options": IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]),
    "hop-by-hop options": IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)]),
    "a fragment of all": IPv6ExtHdrFragment(id=7),  # RFC 6946
}


@pytest.mark.parametrize("before", EXTENSIONS)
def test_extension_headers_are_skipped(stack, guests, before):
    serve(stack, 1)
    guest = guests(6, 7300)
    guest.send(guest.segment("PA", guest.request(), EXTENSIONS[before]))
    guest.answered()


@families
def test_fragments_for_linux_reach_linux(stack, guests, family):
    """UDP datagrams, and segments to a port that the program does not serve."""
    count = serve(stack, 1)
    host, address = stack["forwarder"].ns, (V4, V6)[family == 6]
    kind = (socket.AF_INET, socket.AF_INET6)[family == 6]
    with host.socket(kind, socket.SOCK_DGRAM) as udp, host.socket(kind) as tcp:
        udp.bind((address, 8009))
        udp.settimeout(60)
        with stack["client"].ns.socket(kind, socket.SOCK_DGRAM) as client:
            client.sendto(b"u" * 4000, (address, 8009))
        assert udp.recv(5000) == b"u" * 4000
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind((address, 8009))
        tcp.listen()
        guest = guests(family, 7400, to=8009)
        with tcp.accept()[0] as one:
            one.settimeout(60)
            guest.send(*guest.parts(guest.segment("PA", guest.request())))
            assert one.recv(5000, socket.MSG_PEEK) == guest.request()
    assert count("fragments") == 0


def test_segments_fragmented_by_a_router_arrive(stack):
    """A client that leaves DF off, behind a path of 800 bytes, sends a large request."""
    count = serve(stack, 1)
    router, far = stack["router"].ns, stack["far"]
    before = kernel_connections(stack["forwarder"])
    words = router.ip(f"route get {V4}").split()
    dev = words[words.index("dev") + 1]
    router.ip(f"route add {V4}/32 dev {dev} mtu lock 800")
    try:
        with far.ns.socket(socket.AF_INET) as one:
            one.settimeout(60)
            one.setsockopt(socket.IPPROTO_IP, 10, 0)  # IP_MTU_DISCOVER, IP_PMTUDISC_DONT
            one.connect((V4, 8002))
            pad = b"p" * 5000
            one.sendall(b"GET / HTTP/1.0\r\nX-Pad: " + pad + b"\r\nX-End: whole\r\n\r\n")
            answer = b""
            while part := one.recv(4096):
                answer += part
    finally:
        router.ip(f"route del {V4}/32 dev {dev}")
    assert answer.endswith(b"whole")
    assert count("reassembled") >= 3
    assert kernel_connections(stack["forwarder"]) == before
