# SPDX-License-Identifier: Apache-2.0
"""Floods: packets of steelyard-attack that arrive at the forwarder beside those of clients."""

import contextlib
import json
import re
import time

from tests.lab.process import CommandFailed
from tests.lab.steelyard import BUILD
from tests.lab.topology import FRONT, v4, v6
from tests.lab.wait import wait_until

ATTACK = BUILD / "bench/generator/steelyard-attack"
# Clients, servers and their kernel share the flood's core: the flood gets more than each of them.
FLOOD_NICE = -9
LEARNED_S = 13  # from a forwarder's start until it knows the usual traffic
# Sources of forged packets, and destinations of their answers.
ANYBODY = {4: "64.0.0.0/3", 6: "2400::/8"}


def wait_for_usual(steelyard):
    """A forwarder reports attacks once it knows the usual traffic."""
    started = steelyard.api.call("GetStatus").forwarder.status.started_unix_s
    wait_until(lambda: time.time() > started + LEARNED_S, "the forwarder has its baseline")


def provide_internet(lab):
    """Routes the answers to forged sources out of the front, where they are dropped."""
    forwarder, switch = lab["forwarder"], lab["switch"]
    front = lab.network.ports[0]
    for family, via in ((4, v4(FRONT, 2)), (6, v6(FRONT, 2))):  # the router's
        forwarder.ns.ip(f"-{family} route replace {ANYBODY[family]} via {via} dev {front}")
    _end_of(switch, "forwarder-front")


def provide_internet_of(lab, server):
    """The same for a server that is flooded itself; its kernel then polls its interface."""
    ns, net = lab[server].ns, lab.network.back_net
    for family, via in ((4, v4(net, 1)), (6, v6(net, 1))):
        ns.ip(f"-{family} route replace {ANYBODY[family]} via {via} dev eth0")
    ns.ip(f"route replace {v4(FRONT, 0)}/24 via {v4(net, 1)} dev eth0")
    ns.run(["ethtool", "-K", "eth0", "gro", "on"])
    _end_of(lab["switch"], f"{server}-eth0")


def _table(cable):
    return f"internet_{cable.replace('-', '_')}"


def _end_of(switch, cable):
    """Counts and drops packets to forged sources on this cable."""
    rules = [
        f"{'ip6' if family == 6 else 'ip'} daddr {prefix} counter name answers drop"
        for family, prefix in ANYBODY.items()
    ]
    hook = f'type filter hook ingress device "{cable}" priority 0'
    chain = "\n".join([hook, *rules])
    table = f"table netdev {_table(cable)}"
    text = f"{table} {{\ncounter answers {{ }}\nchain in {{\n{chain}\n}}\n}}\n"
    switch.ns.run(["nft", "-f", "-"], stdin=text)


def answers_to_forged(lab, cable="forwarder-front"):
    """Returns the number of packets that were sent to forged sources."""
    argv = ["nft", "-j", "list", "counter", "netdev", _table(cable), "answers"]
    text = lab["switch"].ns.run(argv)
    return next(
        one["counter"]["packets"] for one in json.loads(text)["nftables"] if "counter" in one
    )


def received(lab):
    """Returns (packets that the forwarder's first interface passed to its worker, packets lost
    because the worker's queue was full), of all senders."""
    front = lab.network.ports[0]
    counts = lab["forwarder"].ns.statistics(front)
    return tuple(
        sum(n for name, n in counts.items() if re.fullmatch(rf"rx_queue_\d+_{wanted}", name))
        for wanted in ("xdp_redirect", "drops")
    )


def start_flood(
    lab, kind, to, port="80", rate=0, seconds=0, prefix="", options=(), cable="forwarder-front"
):
    """Starts a flood; rate 0: as fast as its core can. finish_flood() ends it."""
    host, interface = cable.split("-")
    mac = lab[host].ns.mac(interface)
    to = to if isinstance(to, str) else ",".join(to)
    argv = [ATTACK, "--interface", cable, "--mac", mac, "--kind", kind]
    argv += ["--to", to, "--port", port, "--from", prefix or ANYBODY[6 if ":" in to else 4]]
    argv += ["--rate", rate] if rate else []
    argv += ["--seconds", seconds] if seconds else []
    return lab.start("switch", f"attack-{len(lab.processes)}", [*argv, *options])


def finish_flood(process, wait=False):
    """Ends a flood, or waits for its end; returns {"sent": packets, "seconds": …}."""
    status = process.wait(120) if wait else process.stop()
    if status:
        raise CommandFailed(process.describe())
    return json.loads(process.output().splitlines()[-1])


@contextlib.contextmanager
def flooding(lab, *words, **options):
    """Floods within the block; yields a dictionary that is filled with the result."""
    process, result = start_flood(lab, *words, **options), {}
    try:
        yield result
    finally:
        result |= finish_flood(process) if process.alive() else {}
