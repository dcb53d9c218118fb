# SPDX-License-Identifier: Apache-2.0
"""The class of a service (`dscp`): packets to servers carry it in every mode, and a hook of a
program on the user-space stack reads it."""

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6

from tests.lab import Config, Lab, Server, Service, wait_until
from tests.lab.clients import dns_txt
from tests.lab.hooks import hook, hook_list, stack_name
from tests.lab.mode_table import ROWS, ModeHosts
from tests.lab.mode_table import config as modes_config
from tests.lab.run import start_run
from tests.lab.steelyard import VIP, Steelyard, local_addresses
from tests.lab.topology import BACK, FRONT

EF = 46


@pytest.fixture(scope="module")
def modes():
    with Lab(arms=1, servers=2) as lab:
        hosts = ModeHosts(lab)
        hosts.start()
        made = modes_config(lab.network)
        for service in made.services:
            service.spread["dscp"] = "ef"
        steelyard = Steelyard(lab, made)
        steelyard.start()
        steelyard.wait_all_up()
        yield hosts
        hosts.close()


def classes(packet):
    """Returns the classes of all IP headers: of the outer one, and of a tunnelled packet's."""
    found = []
    while packet:
        if isinstance(packet, IP):
            found.append(packet.tos >> 2)
        elif isinstance(packet, IPv6):
            found.append(packet.tc >> 2)
        packet = packet.payload
    return found


@pytest.mark.parametrize("protocol", ("tcp", "udp"))
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_packets_to_servers_carry_the_class(modes, row, protocol):
    """Every packet of a connection, and every query."""
    lab = modes.lab
    captures = [lab.capture(host.name) for host in lab.servers()]
    forwarder = lab["forwarder"].ns.mac("front")
    if protocol == "tcp":
        modes.curl(row.url)
    else:
        dns_txt(lab["far"], row.vip, row.ports[1])
    sources = {lab["far"].address(row.client), *local_addresses(FRONT)}
    layer = IP if row.server == 4 else IPv6

    def to_server(packet):
        """Returns false for neighbour solicitations."""
        return (
            packet.src == forwarder
            and layer in packet
            and (TCP in packet or UDP in packet)
            and packet[layer].src in sources
        )

    def seen():
        packets = [p for one in captures for p in one.packets(to_server, outgoing=False)]
        return [value for packet in packets for value in classes(packet[layer])]

    wait_until(seen, "a packet comes from the forwarder")
    assert set(seen()) == {EF}


def test_hook_reads_the_class():
    """One server has two services; requests of the one with a class are urgent."""
    with Lab(arms=2, servers=1) as lab:
        server = lab["s1"]
        name = stack_name("class")
        argv = ["redis-server", "--port", 8000, "--bind", server.v4, "--protected-mode", "no"]
        options = ["--name", name, "--hook", "dscp"]
        process = start_run(
            lab, "redis", [*argv, "--save", "", "--dir", lab.dir], *options,
            host="s1", interface="eth0",
        )  # fmt: skip
        process.wait_for("is worker 0 of 1")
        config = Config(local_addresses(BACK))
        for port, spread in ((6379, {"dscp": "ef"}), (6380, {})):
            servers = [Server(server.v4, 8000)]
            config.services.append(
                Service(f"redis-{port}", VIP[4], port, spread=spread, servers=servers)
            )
        Steelyard(lab, config).start()
        before = hook_list(name)[0]["dscp"]["levels"]
        cli = ["redis-cli", "-h", VIP[4], "-p"]
        # The plain one first: a connection's last packets may arrive after its answer.
        assert lab["client"].ns.run([*cli, 6380, "set", "key", "value"]).strip() == "OK"
        plain = hook_list(name)[0]["dscp"]["levels"]
        assert plain[0] == before[0]
        assert plain[4] > before[4]
        assert lab["client"].ns.run([*cli, 6379, "get", "key"]).strip() == "value"
        assert hook_list(name)[0]["dscp"]["levels"][0] > plain[0]
        hook(name, "rm", "dscp")
