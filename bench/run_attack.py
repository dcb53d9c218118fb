# SPDX-License-Identifier: Apache-2.0
"""What floods leave to clients: requests at a fixed pace beside SYNs from forged sources, and how
many of the SYNs are answered; against Linux itself, whose SYN cookies answer every SYN.

A lab of network namespaces on veth (tests/lab). The forwarder has FNAT services; Linux is one of
their servers, which gets requests and flood directly, with `tcp_syncookies` 2. Both get the flood
by steelyard-attack into the receive queue of their cable. The flood, the clients and the servers
share the cores with the one measured, so rates of two machines cannot be compared.
"""

import time

from bench import machine, picture, report
from tests.lab import Lab
from tests.lab.flood import (
    answers_to_forged,
    finish_flood,
    provide_internet,
    provide_internet_of,
    start_flood,
)
from tests.lab.servers import start_nginx
from tests.lab.steelyard import SERVER_WEB, VIP, WEB, Steelyard, web_and_dns
from tests.lab.traffic import paced

TITLE = "requests that succeed beside a SYN flood, and SYNs answered, against Linux' SYN cookies"
MINUTES = 5
MEMORY = 1 << 30
RATES = (0, 20_000, 100_000, 500_000)  # packets/s of the flood
PACE, LENGTH_S = 100, 5
RECOVERY_S = 60


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   floods: left out, {machine.lacking(MEMORY)}")
        return
    yield from measure(RATES[1::2] if quick else RATES, 1 if quick else 2, LENGTH_S)


def smoke():
    yield from measure((2000,), 1, 1)


def testbed(lab):
    for host in lab.servers():
        start_nginx(lab, host.name)
    steelyard = Steelyard(lab, web_and_dns(lab.network, checked=False), sessions=0)
    steelyard.start()
    provide_internet(lab)
    provide_internet_of(lab, "s1")
    lab["s1"].ns.sysctl("ipv4.tcp_syncookies", 2)
    lab["client"].ns.ip(f"route replace {lab['s1'].v4} via {lab['forwarder'].v4}")
    lab["forwarder"].ns.sysctl("ipv4.ip_forward", 1)
    return steelyard


def beside_flood(lab, rate, length_s, cable, to, port):
    """(share of requests answered in %, p99 in ms, SYNs answered in a second, SYNs sent in one)"""
    flood = start_flood(lab, "syn", to, port, rate, cable=cable) if rate else None
    before, began = answers_to_forged(lab, cable), time.monotonic()
    served = paced(lab, PACE, length_s, targets=[f"{to}:{port}"])
    answered = (answers_to_forged(lab, cable) - before) / (time.monotonic() - began)
    sent = finish_flood(flood) if flood else {"sent": 0, "seconds": 1}
    share = 100 * served["answered"] / served["planned"]
    return share, served["p99_ms"], answered, sent["sent"] / sent["seconds"]


def recover(lab):
    end = time.monotonic() + RECOVERY_S
    while time.monotonic() < end:
        one = paced(lab, PACE, 1)
        if one["answered"] == one["planned"]:
            return


def measure(rates, runs, length_s):
    with Lab() as lab:
        testbed(lab)
        for rate in rates:
            for _ in range(runs):
                ours = beside_flood(lab, rate, length_s, "forwarder-front", VIP[4], WEB)
                linux = beside_flood(lab, rate, length_s, "s1-eth0", lab["s1"].v4, SERVER_WEB)
                yield from compare(rate, ours, linux)
                recover(lab)


def compare(rate, ours, linux):
    names = (("succeed", "%"), ("p99", "ms"), ("answered", "SYN/s"))
    for (metric, unit), mine, theirs in zip(names, ours, linux, strict=False):
        if metric == "answered" and rate == 0:
            continue
        made = {"bench": "attack", "params": {"flood": rate}, "metric": metric, "unit": unit}
        made |= {"value": mine, "evidence": {"sent": ours[3], "linux": theirs}}
        if mine > 0 and theirs > 0:
            made["baseline"] = {"name": "Linux, SYN cookies", "value": theirs}
        yield made


def plot(made, path):
    title = "attack: requests that succeed beside a SYN flood"
    picture.lines(path, title, report.select(made, "succeed"), "flood")
