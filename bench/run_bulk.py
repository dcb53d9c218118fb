# SPDX-License-Identifier: Apache-2.0
"""Bulk traffic through kernel interfaces: one TCP connection, and datagrams at a fixed rate.

Sender, forwarder and receiver are namespaces of tests/lab on veth, without segmentation offload,
and share all processors, as on a small host. Each arm has a lab of its own, since an XDP program
on an interface slows down what else uses it:

    fnat               the forwarder, one worker, TOA and PROXY off
    fnat, NAPI thread  the same, with the kernel's receive work for its interfaces in threads
    nftables           DNAT and masquerading in the forwarder's namespace, the baseline

iperf3 sends and counts. A datagram that does not arrive was nearly always dropped by the
receiver's full socket buffer: see `forwarder` in the evidence for the forwarder's share.
"""

import contextlib
import json

from bench import machine
from tests.lab import Config, Lab, Server, Service
from tests.lab.servers import wait_listening
from tests.lab.steelyard import VIP, Steelyard, local_addresses

TITLE = "bulk traffic through kernel interfaces (veth), with nftables beside it"
MINUTES = 3
PORT = 5201
DATAGRAM = 1448  # bytes: fills an Ethernet frame
MBITS = (100, 400)  # of datagrams
MEMORY = 1 << 30  # of both forwarders, senders and receivers
THREADED = "mount -t sysfs sysfs /sys && for i in {}; do echo 1 > /sys/class/net/$i/threaded; done"
RULES = """table ip bulk {{
    chain before {{
        type nat hook prerouting priority dstnat
        ip daddr {vip} dnat to {server}
    }}
    chain after {{
        type nat hook postrouting priority srcnat
        oifname back masquerade
    }}
}}
"""


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   bulk traffic: left out, {machine.lacking(MEMORY)}")
        return
    yield from measure(rounds=3 if quick else 7, seconds=3, threads=(False, True))


def smoke():
    yield from measure(rounds=1, seconds=1, threads=(False,))


def receive(lab):
    lab.start("s1", "iperf3", ["iperf3", "--server", "--port", PORT])
    wait_listening(lab["s1"].ns, PORT)
    return lab


def nftables(lab):
    ns = lab["forwarder"].ns
    ns.ip(f"address add {VIP[4]}/24 dev front")
    ns.sysctl("ipv4.ip_forward", 1)
    ns.run(["nft", "-f", "-"], stdin=RULES.format(vip=VIP[4], server=lab["s1"].v4))
    return receive(lab)


def fnat(lab, thread):
    config = Config(local_addresses(lab.network.back_net))
    for protocol in ("tcp", "udp"):
        servers = [Server(lab["s1"].v4, PORT)]
        config.services.append(
            Service(protocol, VIP[4], PORT, protocol, health={"type": "none"}, servers=servers)
        )
    lab.steelyard = Steelyard(lab, config).start()
    if thread:
        # /sys shows the interfaces of the namespace that it was mounted in.
        script = THREADED.format(" ".join(lab.network.ports))
        lab["forwarder"].ns.run(["unshare", "--mount", "sh", "-c", script])
    return receive(lab)


def send(lab, seconds, *options):
    command = ["iperf3", "--client", VIP[4], "--port", PORT, "--time", seconds, "--json", *options]
    return json.loads(lab["client"].ns.run(command))["end"]


def throughput(lab, seconds):
    """Gbit/s of one TCP connection, as received."""
    return send(lab, seconds)["sum_received"]["bits_per_second"] / 1e9


def loss(lab, seconds, mbits):
    """Percent of the datagrams that did not arrive."""
    options = ("--udp", "--bitrate", f"{mbits}M", "--length", DATAGRAM)
    return send(lab, seconds, *options)["sum"]["lost_percent"]


def dropped(lab):
    """Packets that the forwarder dropped, or did not take from its interfaces in time."""
    drops = sum(drop["packets"] for drop in lab.steelyard.get("drops"))
    return drops + sum(port["rx_missed"] for port in lab.steelyard.get("ports"))


def measure(rounds, seconds, threads):
    with contextlib.ExitStack() as labs:
        base = nftables(labs.enter_context(Lab(servers=1)))
        arms = {thread: fnat(labs.enter_context(Lab(servers=1)), thread) for thread in threads}
        for _ in range(rounds):
            for thread, lab in arms.items():
                yield from one(base, lab, "thread" if thread else "softirq", seconds)


def one(base, lab, napi, seconds):
    value, beside = throughput(lab, seconds), throughput(base, seconds)
    made = {"bench": "bulk", "params": {"protocol": "tcp", "napi": napi}}
    yield made | {
        "metric": "throughput",
        "unit": "Gbit/s",
        "value": value,
        "baseline": {"name": "nftables", "value": beside},
    }
    for mbits in MBITS:
        before = dropped(lab)
        value = loss(lab, seconds, mbits)
        evidence = {"forwarder": dropped(lab) - before, "nftables": loss(base, seconds, mbits)}
        yield {
            "bench": "bulk",
            "params": {"protocol": "udp", "napi": napi, "mbits": mbits},
            "metric": "lost",
            "unit": "%",
            "value": value,
            "evidence": evidence,
        }
