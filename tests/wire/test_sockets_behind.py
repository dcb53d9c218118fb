# SPDX-License-Identifier: Apache-2.0
"""A program on libsteelyard-tcp as a real server behind a forwarder: FNAT with TOA.

client ── VIP: forwarder ── s1: steelyard-echo on eth0, with addresses that s1 does not have
"""

import socket

import pytest

from tests.lab import Config, Lab, Server, Service, wait_until
from tests.lab.steelyard import BUILD, SANITIZED, VIP, Steelyard, local_addresses, memory_options
from tests.lab.topology import v4, v6

PORT, FRONT_PORT = 7107, 7108


@pytest.fixture(scope="module")
def lab():
    with Lab(arms=2, servers=1) as lab:
        net = lab.network.back_net
        address = {4: v4(net, 60), 6: v6(net, 60)}
        config = Config(local_addresses(net))
        for family in (4, 6):
            servers = [Server(address[family], PORT)]
            spread = {"client_address": "toa"}
            name = f"echo{family}"
            config.services.append(
                Service(name, VIP[family], FRONT_PORT, spread=spread, servers=servers)
            )
        argv = [BUILD / "examples/steelyard-echo", "-i", "eth0", "-T", "-v", "-p", PORT]
        argv += [word for one in address.values() for word in ("-a", one)]
        argv += ["-H"] if "--no-huge" in memory_options(lab) else []
        lab.echo = lab.start("s1", "steelyard-echo", argv, SANITIZED)
        lab.echo.wait_for("^ready$")
        Steelyard(lab, config).start()
        yield lab


@pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
def test_server_sees_the_client_by_toa(lab, family):
    client = lab["client"]
    with client.ns.socket(socket.AF_INET if family == 4 else socket.AF_INET6) as one:
        one.settimeout(60)
        one.connect((VIP[family], FRONT_PORT))
        one.sendall(b"who am I?")
        assert one.recv(64) == b"who am I?"
        address, port = one.getsockname()[:2]
    seen = f"client {'::ffff:' if family == 4 else ''}{address} {port}"
    wait_until(lambda: seen in lab.echo.output(), f'the server says "{seen}"')
