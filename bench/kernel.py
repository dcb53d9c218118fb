# SPDX-License-Identifier: Apache-2.0
"""The kernel as a baseline: nftables DNAT between network namespaces, over veth.

    source   a0 ── a1 [router: nft dnat] b0 ── b1   sink

Frames of the generator enter the router as if a1 had received them, through steelyard-inject. This
takes the router's own core some ten nanoseconds each, so the result is the cost of the stack (a
packet socket at a0 takes longer to send a packet than the kernel takes to forward it). Their UDP
checksums are zero, so connection tracking has none to verify. The sink's MAC is not their
destination: the sink only counts them, and each must arrive.
"""

import contextlib
import json
import subprocess
from pathlib import Path

from bench import machine, testbed
from tests.lab.wait import wait_until

INJECT = machine.PROGRAMS / "generator/steelyard-inject"
PACKETS = 200_000  # per run
BUCKETS = Path("/sys/module/nf_conntrack/parameters/hashsize")
MAX_ENTRIES = Path("/proc/sys/net/netfilter/nf_conntrack_max")
CONNTRACK_BYTES = 400  # per entry, including its bucket
FLOW_S = 300  # that an idle flow stays: longer than the runs


@contextlib.contextmanager
def conntrack(flows):
    """Sizes the kernel's tables for this many flows, and restores them afterwards."""
    before = {file: file.read_text() for file in (BUCKETS, MAX_ENTRIES) if file.exists()}
    try:
        for file, value in before.items():
            file.write_text(f"{max(int(value), 2 * flows)}\n")
        yield
    finally:
        for file, value in before.items():
            file.write_text(value)


def ruleset(plan):
    at = plan["4"]
    target = f"{at['servers']}:{plan['server']}"
    return f"""table ip bench {{
    chain prerouting {{
        type nat hook prerouting priority dstnat
        ip daddr {at["vip"]} udp dport {plan["known"]} dnat to {target}
    }}
}}
"""


def build(place, plan):
    """Creates the three connected namespaces; returns router and sink."""
    source, router, sink = (place.namespace(name) for name in ("source", "router", "sink"))
    source.ip(f"link add a0 type veth peer name a1 netns {router.name}")
    sink.ip(f"link add b1 type veth peer name b0 netns {router.name}")
    router.ip(f"link set a1 address {plan['forwarder_mac']}")
    for ns, name in ((source, "a0"), (router, "a1"), (router, "b0"), (sink, "b1")):
        ns.ip(f"link set {name} up")
    router.ip("address add 100.127.255.1/10 dev a1")
    router.ip("address add 10.1.255.1/16 dev b0")
    router.ip(f"neigh add {plan['4']['servers']} lladdr 02:00:00:00:00:ff dev b0 nud permanent")
    router.sysctl("ipv4.ip_forward", 1)
    router.run(["nft", "-f", "-"], stdin=ruleset(plan))
    router.sysctl("netfilter.nf_conntrack_udp_timeout", FLOW_S)
    return router, sink


def arrived(sink):
    (link,) = json.loads(sink.ip("-j -s link show dev b1"))
    return link["stats64"]["rx"]["packets"]


def inject(place, router, sink, packets, *options):
    """Makes the router forward this many packets; returns the seconds that it took."""
    before = arrived(sink)
    command = [INJECT, "--interface", "a1", "--packets", packets, *options]
    command = ["taskset", "-c", place.far, *router.command(command)]
    with subprocess.Popen(
        machine.first(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            machine.prefer(child.pid)
            output, errors = child.communicate(timeout=testbed.ANSWER_S)
        except BaseException:
            child.kill()  # its namespace is about to be removed
            raise
    if child.returncode:
        raise machine.Failed(errors)
    wait_until(lambda: arrived(sink) >= before + packets, "all packets are forwarded")
    return json.loads(output)["seconds"]


def rates(flows, runs):
    """Mpps with this many flows, which the kernel knows already; one value per run."""
    if not machine.memory_suffices(flows * CONNTRACK_BYTES):
        print(f"   nftables with {flows:,} flows is left out: its memory is not free")
        return
    with conntrack(flows), testbed.Testbed() as place:
        router, sink = build(place, place.plan())
        inject(place, router, sink, flows, "--flows", flows, "--in-turn")
        for _ in range(runs):
            yield PACKETS / 1e6 / inject(place, router, sink, PACKETS, "--flows", flows)
