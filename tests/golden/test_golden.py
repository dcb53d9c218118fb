# SPDX-License-Identifier: Apache-2.0
"""Exact frames in, exact frames out, through the real forwarder on two TAP ports of DPDK.

The *.golden files have conversations in hexadecimal: frames that enter a port, and that must leave.
The local port, and of SNAT's TCP the pool's, which the forwarder chooses, is written as 1234 there.
The test reads the real one from the first frame that leaves; only it and its checksum may differ.
The same applies to a tunnel packet's IPv4 id, written as 4242, its IPv6 flow label, abcde, and the
id of an IPv4 packet that was an IPv6 one.
Addresses and MACs are those of the constants below.
"""

from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Ether

from tests.lab import Lab, wait_until
from tests.lab.api import forwarder as pb
from tests.lab.steelyard import FORWARDER, memory_options
from tests.wire.control import Control

pytestmark = pytest.mark.both_builds
GOLDEN = sorted(Path(__file__).parent.glob("*.golden"))
WRITTEN_PORT, WRITTEN_ID, WRITTEN_LABEL = 0x1234, 0x4242, 0xABCDE
EXACT = ("snat-udp", "snat-echo")  # the pool's port is derived from the inside host's and from this
SLOT_KEY = "0123456789abcdef" * 2
TUNNELS = (4, 41)  # the protocol number that a tunnel packet carries
SERVER_PORTS = (8080, 5353, 443)  # 443: of a remote, for SNAT

PORTS = {"front": ("net_tap0", "02:00:00:00:f0:01"), "back": ("net_tap1", "02:00:00:00:b0:01")}
CLIENT_MAC, SERVER_MAC = "02:00:00:00:0c:01", "02:00:00:00:5e:01"
INSIDE_MAC = "02:00:00:00:1d:01"
ROUTES = [
    ("front", "192.0.2.0/24", "10.0.0.2"),
    ("front", "2001:db8::/64", "fd00::2"),
    ("back", "10.1.0.0/24", None),
    ("back", "fd00:1::/64", None),
]
NEIGHBOURS = [
    ("front", "10.0.0.2", CLIENT_MAC),
    ("front", "fd00::2", CLIENT_MAC),
    ("back", "10.1.0.11", SERVER_MAC),
    ("back", "fd00:1::11", SERVER_MAC),
    ("back", "10.1.0.21", INSIDE_MAC),
    ("back", "fd00:1::21", INSIDE_MAC),
]
VIP = {4: bytes([10, 0, 0, 80]), 6: bytes.fromhex("fd00" + "00" * 13 + "80")}
LOCAL = {4: bytes([10, 1, 0, 200]), 6: bytes.fromhex("fd000001" + "00" * 10 + "0200")}
SERVER = {4: bytes([10, 1, 0, 11]), 6: bytes.fromhex("fd000001" + "00" * 10 + "0011")}
INSIDE = {4: bytes([10, 1, 0, 21]), 6: bytes.fromhex("fd000001" + "00" * 10 + "0021")}
POOL = {4: bytes([10, 0, 0, 90]), 6: bytes.fromhex("fd00" + "00" * 13 + "90")}


FNAT, DR, NAT, IPIP = pb.MODE_FNAT, pb.MODE_DR, pb.MODE_NAT, pb.MODE_IPIP
SERVICES = (
    # protocol, port, mode, server's port; whether the server has the other family
    (6, 80, FNAT, 8080, False),
    (17, 53, FNAT, 5353, False),
    (6, 81, DR, 81, False),
    (17, 54, DR, 54, False),
    (6, 82, NAT, 8082, False),
    (17, 55, NAT, 5355, False),
    (6, 83, IPIP, 83, False),
    (17, 56, IPIP, 56, False),
    (6, 84, IPIP, 84, True),
    (17, 57, IPIP, 57, True),
    (6, 85, FNAT, 8080, True),
    (17, 58, FNAT, 5353, True),
)


def configuration():
    """One transaction: local addresses, services of one server each, and an SNAT rule."""
    changes, rule = [], pb.Snat(name="golden")
    for family in (4, 6):
        changes.append(pb.Change(put_local_address=pb.LocalAddress(address=LOCAL[family])))
        for protocol, port, mode, server_port, other in SERVICES:
            key = pb.ServiceKey(protocol=protocol, vip=VIP[family], port=port)
            service = pb.Service(key=key, name="golden", mode=mode, scheduler=pb.SCHEDULER_RR)
            server = pb.Server(
                address=SERVER[10 - family if other else family],
                port=server_port,
                weight=1,
                state=pb.SERVER_STATE_UP,
            )
            changes.append(pb.Change(put_service=service))
            changes.append(pb.Change(put_server=pb.Change.ServerOf(service=key, server=server)))
        rule.inside.add(address=INSIDE[family], length=8 * len(INSIDE[family]))
        rule.pool.append(POOL[family])
    changes.append(pb.Change(put_snat=rule))
    return pb.ApplyRequest(changes=changes, commit=True)


def read_golden(path):
    """Returns [(direction, port, label, frame)]."""
    steps = []
    for line in path.read_text().splitlines():
        if line.startswith(("in ", "out ")):
            direction, port, label = line.split(None, 2)
            steps.append([direction, port, label, ""])
        elif line.startswith("    "):
            steps[-1][3] += line.strip()
    return [(direction, port, label, bytes.fromhex(text)) for direction, port, label, text in steps]


class Bench:
    """The forwarder between two TAP interfaces, and the frames on them."""

    def __init__(self, lab, workers):
        ns = lab["forwarder"].ns
        socket, options = lab.dir / "golden.sock", []
        for name, (device, mac) in PORTS.items():
            options += ["--port", f"{device},backend=ethdev,mac={mac},dev={device};iface={name}tap"]
        for name, prefix, via in ROUTES:
            hop = f",via={via}" if via else ""
            options += ["--route", f"{prefix},port={PORTS[name][0]}{hop}"]
        for name, address, mac in NEIGHBOURS:
            options += ["--neighbour", f"{address},port={PORTS[name][0]},mac={mac}"]
        options += memory_options(lab)
        # The kernel's own frames would disturb.
        ns.sysctl("ipv6.conf.default.disable_ipv6", 1)
        argv = [FORWARDER, "--instance", lab.id, "--socket", socket, "--state", lab.dir / "state"]
        key = lab.dir / "slot-key"
        key.write_text(SLOT_KEY + "\n")
        argv += ["--workers", workers, "--sessions", 65536, "--slot-key", key, *options]
        self.forwarder = lab.start("forwarder", "steelyard-forwarder", argv)
        self.forwarder.wait_for(r"\bready\b")
        with Control(socket) as control:
            answer = control.ask(apply=configuration())
            assert not answer.HasField("error"), answer.error.text
        self.wire = {name: lab.capture("forwarder", f"{name}tap") for name in PORTS}
        self.seen = {name: 0 for name in PORTS}

    def enter(self, port, data):
        self.wire[port].send(data)

    def leave(self, port):
        """Returns the next frame that leaves a port."""

        def received():
            frames = [data for sent, data in list(self.wire[port].frames) if not sent]
            return frames[self.seen[port] :]

        data = wait_until(received, f"a frame leaves {port}")[0]
        self.seen[port] += 1
        return data


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def bench(request):
    with Lab(servers=0) as lab:
        yield Bench(lab, request.param)


def transport(packet):
    return packet[TCP] if TCP in packet else packet[UDP]


def with_local_port(data, old, new):
    """Returns the frame with the server side's port replaced and checksums recomputed."""
    packet = Ether(data)
    if not (TCP in packet or UDP in packet):
        return data
    part = transport(packet)
    for side, other in (("sport", "dport"), ("dport", "sport")):
        if getattr(part, side) == old and getattr(part, other) in SERVER_PORTS:
            setattr(part, side, new)
            if part.chksum:
                del part.chksum
    return bytes(packet)


def with_written_tunnel(data):
    """Returns a tunnel packet's frame with the id or flow label of golden files."""
    packet = Ether(data)
    outer = packet.payload
    if isinstance(outer, IP) and outer.proto in TUNNELS:
        outer.id = WRITTEN_ID
        del outer.chksum
    elif isinstance(outer, IPv6) and outer.nh in TUNNELS:
        outer.fl = WRITTEN_LABEL
    return bytes(packet)


def with_written_id(data):
    """Returns a frame translated from IPv6 with the id of golden files."""
    packet = Ether(data)
    packet[IP].id = WRITTEN_ID
    del packet[IP].chksum
    return bytes(packet)


def assert_checksums(data):
    """Every checksum of the frame equals scapy's."""
    packet = Ether(data)
    for layer in (IP, TCP, UDP, ICMP):
        if layer in packet and packet[layer].chksum:
            del packet[layer].chksum
    for layer in (ICMPv6EchoRequest, ICMPv6EchoReply):
        if layer in packet:
            del packet[layer].cksum
    assert bytes(packet) == data


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_frames_leave_as_written(bench, path):
    local_port, side = None, "front" if path.stem.startswith("snat-tcp") else "back"
    for direction, port, label, golden in read_golden(path):
        if direction == "in":
            bench.enter(port, with_local_port(golden, WRITTEN_PORT, local_port or WRITTEN_PORT))
            continue
        data = bench.leave(port)
        assert_checksums(data)
        if port == side and local_port is None and not path.stem.startswith(EXACT):
            local_port = transport(Ether(data)).sport
        if local_port is not None:
            data = with_local_port(data, local_port, WRITTEN_PORT)
        data = with_written_tunnel(data)
        if "6to4" in path.stem and port == "back":
            data = with_written_id(data)
        difference = f"{label}:\n{Ether(data)!r}\ninstead of\n{Ether(golden)!r}"
        assert data.hex() == golden.hex(), difference


def test_golden_files_are_valid():
    """Their frames have valid checksums and the families that they claim."""
    for path in GOLDEN:
        packets = [Ether(data) for _, _, _, data in read_golden(path)]
        for packet in packets:
            assert_checksums(packet.original)
        families = {
            name for name, layer in (("4", IP), ("6", IPv6)) if any(layer in p for p in packets)
        }
        assert families == set(path.stem) & {"4", "6"}, path.name
