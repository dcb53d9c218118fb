# SPDX-License-Identifier: Apache-2.0
"""libsteelyard-tcp on DPDK devices instead of kernel interfaces (examples/echo.c): memif, without
any kernel, and a TAP with the kernel's TCP at its other end."""

import hashlib
import random
import socket
import threading

import pytest

from tests.lab import Lab
from tests.lab.load import Load, errors, memif
from tests.lab.steelyard import BUILD, SANITIZED, memory_options

pytestmark = pytest.mark.both_builds
ECHO = BUILD / "examples/steelyard-echo"
PORT = 7007
MAC = "02:00:00:00:00:0"
OWN = {4: "10.8.1.2", 6: "fd08::2"}
PEER = {4: "10.8.1.1", 6: "fd08::1"}
LENGTH = {4: 24, 6: 64}
DEADLINE_S = 300


@pytest.fixture
def lab():
    with Lab(arms=1, servers=1) as made:
        yield made


def serve(lab, host, threads, port, route, neighbour, addresses):
    argv = [ECHO, "-i", port, "-p", PORT, "-t", threads]
    for letter, words in (("-r", route), ("-N", neighbour), ("-a", addresses)):
        argv += [word for one in words for word in (letter, one)]
    argv += ["-H"] if "--no-huge" in memory_options(lab) else []
    return lab.start(host, "steelyard-echo", argv, SANITIZED)


@pytest.mark.parametrize("threads", (1, 2))
def test_memif_echoes_the_generator(lab, threads):
    """The generator is memif's server, which must not lose its client under traffic."""
    theirs = memif(lab, "server", MAC + "2", "10.8.0.1", MAC + "1")
    clients = Load(
        lab,
        "client",
        **theirs,
        source="10.9.0.0/24",
        to=f"10.8.0.1:{PORT}",
        protocol="echo",
        timeout="60s",
        quiet=True,
        workers=threads,
        connections=100,
        each=3,
        requests=3000,
    )
    clients.process.wait_for("port net_memif0")
    mine = memif(lab, "client", MAC + "1", "10.8.0.2", MAC + "2", "10.9.0.0/24")
    server = serve(
        lab, "s1", threads, mine["port"], mine["route"], [mine["neighbour"]], ["10.8.0.1"]
    )
    results = clients.finish()
    assert server.stop() == 0, server.describe()
    assert not errors(results)
    assert results["answered"] == 3000


def test_tap_echoes_the_kernel(lab):
    """A megabyte through the kernel's TCP and back, in both families."""
    port, tap, client = "net_tap0", "sytap9", lab["client"]
    server = serve(
        lab,
        "client",
        1,
        f"{port},backend=ethdev,mac={MAC}3,dev={port};iface={tap}",
        [f"{PEER[4]}/32,port={port}", f"{PEER[6]}/128,port={port}"],
        [f"{PEER[family]},port={port},mac={MAC}4" for family in (4, 6)],
        OWN.values(),
    )
    server.wait_for("^ready$")
    client.ns.ip(f"link set {tap} address {MAC}4")
    for family in (4, 6):
        # The stack does not answer neighbour solicitations.
        client.ns.ip(f"neigh replace {OWN[family]} lladdr {MAC}3 dev {tap} nud permanent")
        nodad = " nodad" if family == 6 else ""
        client.ns.ip(f"address add {PEER[family]}/{LENGTH[family]} dev {tap}{nodad}")
        assert echoed(client, family, 1_000_000)
    assert server.stop() == 0, server.describe()


def echoed(host, family, length):
    """Returns whether the bytes that were sent come back unchanged."""
    data = random.Random(length).randbytes(length)
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with host.ns.socket(kind, socket.SOCK_STREAM) as one:
        one.settimeout(DEADLINE_S)
        one.connect((OWN[family], PORT))
        sender = threading.Thread(target=lambda: (one.sendall(data), one.shutdown(socket.SHUT_WR)))
        sender.start()
        came = hashlib.sha256()
        while part := one.recv(65536):
            came.update(part)
        sender.join()
    return came.digest() == hashlib.sha256(data).digest()
