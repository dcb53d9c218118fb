# SPDX-License-Identifier: Apache-2.0
"""steelyard-load against the kernel's TCP, and against its own server: its counters match the other
end's."""

import contextlib
import re
import socket
import struct
import time
from pathlib import Path

import pytest

from tests.lab import Lab, wait_until
from tests.lab.load import LOAD, Load, endpoint, errors, memif, sources
from tests.lab.loss import lose
from tests.lab.process import run
from tests.lab.servers import EchoServer, nginx_log, start_nginx, wait_listening
from tests.lab.topology import FRONT

pytestmark = pytest.mark.both_builds
WEB, ECHO, RAW = 8080, 9007, 7000
OWN = {4: "10.0.0.50", 6: "fd00::50"}  # its server's address
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


@pytest.fixture(scope="module")
def lab():
    """One network: `client` and `s1`, a web server and a kernel echo."""
    with Lab(arms=1, servers=1) as made:
        start_nginx(made, "s1", WEB)
        echoes = [EchoServer(made["s1"], ECHO, family) for family in (4, 6)]
        yield made
        for echo in echoes:
            echo.close()


@pytest.fixture(autouse=True)
def programs(lab):
    """Stops what a failed test left running: one program has the interface's addresses."""
    first = len(lab.processes)
    yield
    for process in lab.processes[first:]:
        process.kill()


def load(lab, family, to, name="steelyard-load", **options):
    options = {"source": sources(family), "quiet": True, "timeout": "60s"} | options
    options = {name: value for name, value in options.items() if value is not False}
    return Load(lab, "client", name, to=to, **options)


def web(lab, family, **options):
    to = endpoint(lab["s1"].address(family), WEB)
    before = len(nginx_log(lab, "s1"))
    results = load(lab, family, to, protocol="http", **options).finish()
    answers = results["answered"] + results["errors"]["wrong"]
    # nginx logs after it has answered.
    wait_until(lambda: len(nginx_log(lab, "s1")) >= before + answers, "all answers are logged")
    return results, nginx_log(lab, "s1")[before:]


def test_load_starts_at_its_time(lab):
    """Connections are open before, and the first answer comes later."""
    begin = time.clock_gettime(time.CLOCK_MONOTONIC) + 3
    results, _ = web(lab, 4, connections=4, requests=8, at=f"{begin:.3f}s")
    assert results["answered"] == 8
    assert time.clock_gettime(time.CLOCK_MONOTONIC) >= begin


@families
def test_keep_alive_requests_are_all_logged(lab, family):
    """The server's log has every request, from each of the addresses."""
    results, logged = web(lab, family, connections=4, requests=6000, depth=2)
    assert not errors(results)
    assert results["answered"] == results["sent"] == len(logged) == 6000
    assert len({peer for peer, *_ in logged}) == 4
    assert results["connections"]["opened"] == len({line[:2] for line in logged}) == 4


@families
def test_short_connections_are_all_logged(lab, family):
    results, logged = web(lab, family, connections=8, requests=2000, each=1)
    assert not errors(results)
    assert results["answered"] == results["connections"]["opened"] == len(logged) == 2000


def test_announced_close_loses_no_request(lab):
    """A server closes a connection after a hundred requests, as it announces. (Pipelined requests
    are sent again: bench/load/tests/test_ends.c.)"""
    folder = lab.dir / "nginx-s1"
    text = (folder / "nginx.conf").read_text()
    text = re.sub(r"keepalive_requests \d+", "keepalive_requests 100", text)
    text = text.replace("nginx.pid", "second.pid").replace("access.log", "second.log")
    (folder / "second.conf").write_text(text.replace(str(WEB), str(WEB + 1)))
    argv = ["nginx", "-p", folder, "-c", folder / "second.conf"]
    second = lab.start("s1", "nginx-second", argv)
    wait_listening(lab["s1"].ns, WEB + 1)
    to = endpoint(lab["s1"].v4, WEB + 1)
    results = load(lab, 4, to, protocol="http", connections=4, requests=2000).finish()
    assert not errors(results)
    assert results["answered"] == 2000

    def logged():
        return len((folder / "second.log").read_text().splitlines())

    wait_until(lambda: logged() >= 2000, "all answers are logged")
    assert logged() == 2000
    # Each connection may end with a request that the server closes on
    assert 16 <= results["connections"]["reopened"] <= 20
    assert second.stop() == 0


def test_classes_have_their_shares_and_paths(lab):
    """An open loop of two classes: shares, paths and one histogram each; 404 is a wrong answer."""
    (lab.dir / "nginx-s1/files/page").write_text("x" * 5000)
    classes = ["page,share=3,path=/files/page", "none,share=1,path=/files/nothing"]
    options = {"rate": 2000, "arrivals": "even", "duration": "1s", "warmup": "0", "class": classes}
    results, logged = web(lab, 4, connections=20, **options)
    page, none = results["classes"]
    assert (page["name"], none["name"], none["answers"]) == ("page", "none", 0)
    paths = [path for *_, path in logged]
    assert page["answers"] == results["answered"] == paths.count("/files/page")
    assert results["errors"]["wrong"] == paths.count("/files/nothing")
    # Every due request is sent, however late the machine is.
    assert 1999 <= len(logged) <= 2001
    assert 1350 <= page["answers"] <= 1650
    assert results["bytes_in"] > 5000 * page["answers"] / 2
    assert page["latency_us"]["p50"] >= page["since_sent_us"]["p50"]


@families
def test_kernel_echo_is_validated(lab, family):
    options = {"class": "long,length=uniform:1:20k", "protocol": "echo", "connections": 10}
    to = endpoint(lab["s1"].address(family), ECHO)
    results = load(lab, family, to, depth=3, requests=2000, **options).finish()
    assert not errors(results)
    assert results["answered"] == 2000


@families
@pytest.mark.parametrize("workers", (1, 2))
def test_kernel_segments_large_frames(lab, family, workers):
    """The other end receives all bytes, and no frame above the MTU."""
    options = {"class": "all,length=uniform:1:100k", "protocol": "echo", "connections": 6}
    to = endpoint(lab["s1"].address(family), ECHO)
    capture = lab.capture("s1")
    options |= {"depth": 3, "requests": 300, "workers": workers}
    results = load(lab, family, to, **options).finish()
    lengths = [len(data) for outgoing, data in capture.frames if not outgoing]
    lab.close_captures()
    stack = results["stack"]
    assert not errors(results)
    assert results["answered"] == 300
    assert 1500 < max(lengths) <= 1500 + 14
    assert stack["tso_segments"] > 300
    assert stack["tso_pieces"] > 4 * stack["tso_segments"]
    assert results["bytes_out"] / stack["packets_out"] > 1500


@contextlib.contextmanager
def whole_segments(host):
    """Its veth accepts large segments unsegmented, like the other end on this machine."""
    host.ns.run(["ethtool", "-K", "eth0", "tx", "on", "tso", "on", "gso", "on"])
    try:
        yield
    finally:
        host.ns.run(["ethtool", "-K", "eth0", "tx", "off"])


@families
def test_large_segments_arrive_whole(lab, family):
    """A peer behind a veth without segmentation receives them as they are, with complete
    headers."""
    errors_of = {4: "IpInHdrErrors", 6: "Ip6InHdrErrors"}[family]
    options = {"class": "all,length=uniform:1:100k", "protocol": "echo", "connections": 6}
    to = endpoint(lab["s1"].address(family), ECHO)
    before = lab["s1"].ns.counters()[errors_of]
    with whole_segments(lab["client"]):
        capture = lab.capture("s1")
        results = load(lab, family, to, **options, depth=3, requests=300).finish()
        lengths = [len(data) for outgoing, data in capture.frames if not outgoing]
        lab.close_captures()
    stack = results["stack"]
    assert not errors(results)
    assert results["answered"] == 300
    assert lab["s1"].ns.counters()[errors_of] == before
    assert max(lengths) > 3 * 1500
    assert stack["tso_segments"] > 300
    assert stack["retransmitted"] < stack["tso_pieces"] / 50


def test_recreated_interface_still_segments(lab):
    """The interface is deleted and created again while large requests are in flight."""
    client = lab["client"]
    options = {"class": "all,length=100k", "protocol": "echo", "connections": 2, "quiet": False}
    options |= {"rate": 20, "arrivals": "even", "duration": "6s", "warmup": "0"}
    clients = load(lab, 4, endpoint(lab["s1"].v4, ECHO), **options)
    clients.process.wait_for("[1-9][0-9]* answers a second")
    client.ns.ip("link del eth0")
    lab.network.plug(client, "eth0", "front", FRONT, 10)
    results = clients.finish()
    assert not errors(results)
    assert results["answered"] == results["sent"] == 120
    # Large segments arrived before and after; the lost ones would be retransmitted in small ones.
    stack = results["stack"]
    assert stack["tso_pieces"] > 90 * 100_000 / 1500
    assert stack["retransmitted"] < stack["tso_pieces"] / 4


@families
@pytest.mark.parametrize("workers", (1, 2))
def test_own_server_counts_the_same(lab, family, workers):
    """Raw protocol: lengths, classes and service times; one worker or two on both sides."""
    to = endpoint(OWN[family], RAW)
    server = Load(lab, "s1", "steelyard-load-server", serve=to, workers=workers).wait_serving()
    classes = [
        "short,share=9,service=exp:5us,type=1",
        "long,length=uniform:32:9k,answer=pareto:1k:2:60k",
    ]
    options = {"class": classes, "connections": 100, "requests": 4000, "depth": 2, "each": 50}
    results = load(lab, family, to, workers=workers, **options).finish()
    seen = server.stop()["server"]
    assert not errors(results)
    assert results["answered"] == results["sent"] == seen["requests"] == 4000
    assert seen["bytes_in"] == results["bytes_out"]
    assert seen["bytes_out"] == results["bytes_in"]
    assert seen["accepted"] == results["connections"]["opened"] >= 4000 / 50
    assert seen["bad"] == seen["reset"] == 0
    assert seen["busy_ns"] > 3000 * 5000 / 2
    assert sum(one["answers"] for one in results["classes"]) == 4000


def test_server_answers_plain_sockets(lab):
    """A plain socket uses the documented format; an invalid request closes it."""
    server = Load(lab, "s1", "steelyard-load-server", serve=endpoint(OWN[4], RAW)).wait_serving()
    with lab["client"].ns.socket() as plain:
        plain.settimeout(60)
        plain.connect((OWN[4], RAW))
        plain.sendall(struct.pack(">HBBBBHIIQQ", 0x5359, 1, 1, 3, 0, 9, 32, 100, 7000, 77))
        answer = plain.recv(100, socket.MSG_WAITALL)
        head = struct.unpack(">HBBBBHIIQQ", answer[:32])
        assert head[:8] == (0x5359, 1, 2, 3, 0, 9, 100, 0)
        assert head[8] >= 7000
        assert head[9] == 77
        assert answer[32:] == bytes(i % 251 * 7 + 1 & 0xFF for i in range(68))
        plain.sendall(b"GET / HTTP/1.1\r\nHost: s1\r\n\r\n" + bytes(20))
        with pytest.raises(ConnectionResetError):
            plain.recv(1)
    seen = server.stop()["server"]
    assert (seen["requests"], seen["bad"]) == (1, 1)


def test_hundred_thousand_connections_stay_open(lab):
    """From 8 addresses, open on both sides; some of them send requests."""
    memory = {"memory": ["--no-huge", "--memory", "192"]}
    to = endpoint(OWN[4], RAW)
    server = Load(
        lab, "s1", "steelyard-load-server", serve=to, connections="100k", **memory
    ).wait_serving()
    options = {"connections": "100k", "active": 5000, "requests": 20_000, "reset": True}
    many = load(lab, 4, to, source=sources(4, 8), connecting=128, **memory, **options)
    results = many.finish()
    seen = server.stop()
    assert not errors(results)
    assert results["connections"]["held"] == results["connections"]["opened"] == 100_000
    assert seen["server"]["accepted"] == 100_000
    assert seen["server"]["requests"] == results["answered"] == 20_000
    # Memory for each connection, and the part that does not depend on their number.
    assert results["stack"]["bytes"] < 700 * 130_000 + (40 << 20)


def test_memif_without_a_kernel_interface(lab):
    """Clients wait for the link. They are memif's server, which must not lose its client under
    traffic."""
    macs = "02:00:00:00:00:01", "02:00:00:00:00:02"
    mine = memif(lab, "server", macs[1], "10.8.0.1", macs[0])
    options = {"source": "10.9.0.0/24", "to": "10.8.0.1:7000", "timeout": "60s", "quiet": True}
    options |= {"connections": 300, "each": 3, "requests": 3000}
    clients = Load(lab, "client", **mine, **options)
    clients.process.wait_for("port net_memif0")
    theirs = memif(lab, "client", macs[0], "10.8.0.2", macs[1], "10.9.0.0/24")
    server = Load(lab, "s1", "steelyard-load-server", serve="10.8.0.1:7000", **theirs)
    results = clients.finish()
    seen = server.stop()["server"]
    assert not errors(results)
    assert results["answered"] == seen["requests"] == 3000
    assert seen["accepted"] == results["connections"]["opened"] >= 1000


def echo_over_tap(lab, family, tap, loss=0, **options):
    """Runs kernel echoes at a TAP's other end, which drops `loss` of a thousand segments. Returns
    the results and the lengths of the received frames."""
    mac, prefix = "02:00:00:00:00:03", (24 if family == 4 else 64)
    own, peer = ("10.8.1.2", "10.8.1.1") if family == 4 else ("fd08::2", "fd08::1")
    port, client = "net_tap0", lab["client"]
    with EchoServer(client, ECHO + 1, family, address="0.0.0.0" if family == 4 else "::"):
        clients = Load(
            lab,
            "client",
            port=f"{port},backend=ethdev,mac={mac},dev={port};iface={tap}",
            route=f"{peer}/{32 if family == 4 else 128},port={port}",
            neighbour=f"{peer},port={port},mac={mac[:-1]}4",
            source=own,
            to=endpoint(peer, ECHO + 1),
            protocol="echo",
            connections=4,
            timeout="60s",
            quiet=True,
            **options,
        )
        clients.process.wait_for(f"port {port}: .*, MTU 1500, checksums, TSO")
        capture = lab.capture("client", tap)
        if loss:
            lose(lab, "client", loss, tap)
        client.ns.ip(f"link set {tap} address {mac[:-1]}4")
        # The stack does not answer neighbour solicitations.
        client.ns.ip(f"neigh replace {own} lladdr {mac} dev {tap} nud permanent")
        # DPDK has set it up: traffic starts with the address.
        client.ns.ip(f"address add {peer}/{prefix} dev {tap}" + (" nodad" if family == 6 else ""))
        results = clients.finish()
    lengths = [len(data) for outgoing, data in capture.frames if not outgoing]
    lab.close_captures()
    assert not errors(results)
    return results, lengths


def test_tap_checksums_are_valid(lab):
    """A TAP computes checksums for sent segments and reports those of received ones; the kernel at
    its other end rejects no checksum."""
    results, _ = echo_over_tap(lab, 4, "sytap0", class_="all,length=1400", requests=1000)
    assert results["answered"] == 1000
    assert results["stack"]["offloaded"] > 1000
    assert results["stack"]["malformed"] == results["stack"]["bad_checksums"] == 0, results["stack"]


@families
@pytest.mark.parametrize("loss", (0, 10), ids=("sound", "losing"))
def test_tap_segments_large_frames(lab, family, loss):
    """DPDK's TAP segments IPv4 in software; the stack segments IPv6 itself. The kernel receives all
    bytes, and no frame above its MTU, also if segments are lost."""
    options = {"class_": "all,length=uniform:1:100k", "requests": 300, "depth": 3}
    results, lengths = echo_over_tap(lab, family, "sytap1", loss, **options)
    stack = results["stack"]
    assert results["answered"] == 300
    assert not loss or stack["retransmitted"] > 10
    assert 1000 < max(lengths) <= 1500 + 14
    if family == 4:
        assert stack["tso_segments"] > 300
        assert stack["tso_pieces"] > 4 * stack["tso_segments"]
        # Each packet of the stack is one frame, except large ones.
        sent = stack["packets_out"] - stack["tso_segments"] + stack["tso_pieces"]
        assert len(lengths) <= sent + 100  # plus what the kernel sends itself
        assert results["bytes_out"] / stack["packets_out"] > 1500
    else:
        assert stack["tso_segments"] == stack["tso_pieces"] == 0


@pytest.mark.parametrize("each", (0, 1), ids=("keep-alive", "short"))
def test_refused_connections_are_reported(lab, each):
    to = endpoint(lab["s1"].v4, 9)
    tool = load(lab, 4, to, name="refused", requests=1, each=each)
    assert tool.process.wait() == 1
    assert tool.said("no connection to the server could be opened: Connection refused")


def test_second_program_on_an_interface_is_refused(lab):
    """One program has an interface's addresses."""
    server = Load(lab, "s1", "steelyard-load-server", serve=endpoint(OWN[4], RAW)).wait_serving()
    second = Load(lab, "s1", "second-load", serve=endpoint(OWN[4], RAW + 1))
    assert second.process.wait() == 1
    assert second.said(rf"is in use by another .* \(process {server.process.pid}\)")
    server.stop()


def kept(ns):
    """Returns kernel state of the program's address: routes, filters, programs."""
    return (
        ns.ip("route show table local proto static"),
        re.findall(r"table .*steelyard.*", ns.run(["nft", "list", "tables"])),
        "prog/xdp" in ns.ip("link show eth0"),
        [str(path) for path in Path("/sys/fs/bpf").glob(f"*/{ns.inode()}-*")],
    )


def test_end_leaves_no_kernel_state(lab):
    """After kill -9, the next program takes over what is left."""
    ns, to = lab["s1"].ns, endpoint(OWN[4], RAW)
    before = kept(ns)
    server = Load(lab, "s1", "steelyard-load-server", serve=to).wait_serving()
    during = kept(ns)
    assert during != before
    assert during[2]
    server.process.kill()
    assert kept(ns) == during
    again = Load(lab, "s1", "steelyard-load-server", serve=to).wait_serving()
    results = load(lab, 4, to, connections=10, requests=100).finish()
    assert not errors(results)
    assert again.stop()["server"]["requests"] == 100
    assert kept(ns) == before


def test_no_dpdk_folder_is_left(lab):
    """Without huge pages DPDK creates one. Other tests run the program at the same time."""
    server = Load(
        lab,
        "s1",
        "steelyard-load-server",
        memory=["--no-huge", "--memory", 384],
        serve=endpoint(OWN[4], RAW),
    ).wait_serving()
    server.stop()
    assert not Path(f"/run/dpdk/load-{server.process.pid}").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "--port is missing"),
        (["--port", "eth0"], "--to is missing"),
        (["--port", "eth0", "--to", "10.0.0.1:80"], "--source is missing"),
        (["--port", "eth0", "--to", "10.0.0.1"], "must be ADDRESS:PORT"),
        (["--port", "eth0", "--to", "fd00::1:80"], "as in 10.0.0.1:80 or"),
        (["--port", "eth0", "--to", "10.0.0.1:80", "--source", "fd00::1"], "one family"),
        (["--port", "eth0", "--to", "10.0.0.1:80", "--source", "10.0.0.9-10.0.0.2"], "ends before"),
        (["--port", "eth0", "--serve", "10.0.0.1:80", "--source", "10.0.0.2"], "neither --to nor"),
        (["--rate", "-1"], '--rate: "-1" is not a number'),
        (["--think", "5"], "not a time"),
        (["--class", "x,length=normal:5:6"], "const, uniform, exp, bimodal, pareto and file"),
        (["--depth", "65"], "from 1 to 64"),
        (["--duration"], "missing value"),
        (["--header", "x"], "NAME: VALUE"),
        (["word"], "not an option"),
    ],
)
def test_errors_name_the_option(options, complaint):
    done = run([LOAD, *options], check=False)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert done.stderr.startswith("steelyard-load: ")


def test_help_and_version_are_printed():
    text = run([LOAD, "--help"])
    assert "--connections" in text
    assert max(map(len, text.splitlines())) <= 90
    assert run([LOAD, "--version"]).startswith("steelyard-load ")
