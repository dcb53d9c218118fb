# SPDX-License-Identifier: Apache-2.0
"""What an attack costs, and what it leaves to clients.

- What a worker takes to answer a SYN from a forged source, by a cookie or a challenge, without a
  device; against Linux' SYN cookies on one core.
- What an access list adds to a SYN that is answered by a cookie, and to one that creates a session,
  by the entries of the set that its rule names; against nftables' sets. Also of lists that name
  ports, so that rte_acl decides.
- Requests at a fixed pace beside SYNs from forged sources, and how many of the SYNs are answered;
  against Linux itself, whose SYN cookies answer every SYN. A lab of network namespaces on veth
  (tests/lab). The forwarder has FNAT services; Linux is one of their servers, which gets requests
  and flood directly, with `tcp_syncookies` 2. Both get the flood by steelyard-attack into the
  receive queue of their cable. The flood, the clients and the servers share the cores with the one
  measured, so rates of two machines cannot be compared.
"""

import itertools
import time

from bench import kernel_attack, machine, picture, report
from tests.lab import Lab
from tests.lab.flood import (
    FLOOD_NICE,
    answers_to_forged,
    finish_flood,
    provide_internet,
    provide_internet_of,
    start_flood,
)
from tests.lab.servers import start_nginx
from tests.lab.steelyard import (
    AGENT_NICE,
    FORWARDER_NICE,
    SERVER_WEB,
    VIP,
    WEB,
    Steelyard,
    web_and_dns,
)
from tests.lab.traffic import paced

TITLE = "SYN cookies and access lists on one core, and requests that succeed beside a SYN flood"
MINUTES = 10
MEMORY = 1 << 30
RATES = (0, 20_000, 100_000, 500_000)  # packets/s of the flood
PACE, LENGTH_S = 100, 5
RECOVERY_S = 60
MODES = (("fnat", "4"), ("fnat", "6"), ("dr", "4"), ("dr", "6"))
ENTRIES = (0, 1, 1000, 1_000_000)  # 0: a list whose rule names an empty set
# Lists of so many rules with ports, the last of which names a set of so many entries.
PORTS = ((1, 1000), (1, 1_000_000), (1001, 1), (1001, 1_000_000))
NFT_MAX = 1_000_000  # entries: nftables takes a second for 30 000 of them, and 1 kB of each


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   attack: left out, {machine.lacking(MEMORY)}")
        return
    yield from cookies(1 if quick else 5)
    yield from lists(ENTRIES, 1 if quick else 3, 1000 if quick else NFT_MAX)
    yield from lists_with_ports(1 if quick else 3)
    if quick:
        yield from floods(("always",), RATES[1::2], 1, LENGTH_S)
    else:
        yield from floods(("always", "off"), RATES, 2, LENGTH_S)


def smoke():
    yield from program("fnat", "4", 0, runs=1)
    yield from program("fnat", "4", 1000, runs=1)
    yield from program("fnat", "4", 1000, runs=1, create=True)
    yield from program("fnat", "6", 1000, runs=1, create=True, rules=1001)
    with kernel_attack.Victim(machine.cpus()[-1]) as victim:
        for family in (4, 6):
            victim.set_cost(family, 10, 1)
            if not victim.cookies(family):
                raise machine.Failed("Linux answered no SYN by a cookie")
    yield from floods(("always",), (2000,), 1, 1)


# ---- without a device ----------------------------------------------------------------------------


def program(mode, family, entries=None, runs=200, create=False, rules=0):
    """One process of steelyard-cookies; yields its lines. entries: of a list's set; None: without a
    list. rules: so many, with ports."""
    yield from machine.run_program(
        "steelyard-cookies",
        *("--mode", mode, "--family", family, "--entries", entries or 0, "--runs", runs),
        *(["--empty-list"] if entries == 0 else []),
        *(["--create"] if create else []),
        *(["--ports", "--rules", rules - 1] if rules else []),
        cpus=machine.cpus()[-1:],
    )


def against(run, name, value):
    """The run with the baseline beside it, if they can be compared."""
    if run["value"] > 0 and value > 0:
        run["baseline"] = {"name": name, "value": value}
    return run


def cookies(runs):
    with kernel_attack.Victim(machine.cpus()[-1]) as victim:
        for mode, family in MODES:
            for _ in range(runs):
                for run in program(mode, family):
                    if run["metric"] == "answers" and mode == "fnat":
                        against(run, "Linux, SYN cookies", victim.cookies(int(family)))
                    yield run


def lists(entries, runs, most):
    """most: entries of nftables' sets."""
    with kernel_attack.Victim(machine.cpus()[-1]) as victim:
        for family in ("4", "6"):
            for count in entries:
                compared = 0 < count <= most  # without entries, nftables has no rule either
                theirs = victim.set_cost(int(family), count, runs) if compared else []
                for n, create in itertools.product(range(runs), (False, True)):
                    for run in program("fnat", family, count, runs=1000, create=create):
                        yield against(run, "nftables, set", theirs[n]) if theirs else run


def lists_with_ports(runs):
    for family, (rules, entries) in itertools.product(("4", "6"), PORTS):
        for _ in range(runs):
            yield from program("fnat", family, entries, runs=1000, create=True, rules=rules)


# ---- on veth -------------------------------------------------------------------------------------


def testbed(lab, defence):
    for host in lab.servers():
        start_nginx(lab, host.name)
    config = web_and_dns(lab.network, checked=False)
    for service in config.services:
        if service.protocol == "tcp":
            service.spread["syn_defence"] = defence
    steelyard = Steelyard(lab, config, sessions=0)
    steelyard.start_forwarder().prefer(FORWARDER_NICE)
    steelyard.start_agent().prefer(AGENT_NICE)
    steelyard.wait_in_sync()
    provide_internet(lab)
    provide_internet_of(lab, "s1")
    lab["s1"].ns.sysctl("ipv4.tcp_syncookies", 2)
    lab["client"].ns.ip(f"route replace {lab['s1'].v4} via {lab['forwarder'].v4}")
    lab["forwarder"].ns.sysctl("ipv4.ip_forward", 1)
    return steelyard


def beside_flood(lab, rate, length_s, cable, to, port):
    """(share of requests answered in %, p99 in ms, SYNs answered in a second, SYNs sent in one)"""
    flood = start_flood(lab, "syn", to, port, rate, cable=cable) if rate else None
    if flood:
        flood.prefer(FLOOD_NICE)
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


def floods(defences, rates, runs, length_s):
    for defence in defences:
        with Lab() as lab:
            testbed(lab, defence)
            for rate in rates:
                for _ in range(runs):
                    ours = beside_flood(lab, rate, length_s, "forwarder-front", VIP[4], WEB)
                    linux = beside_flood(lab, rate, length_s, "s1-eth0", lab["s1"].v4, SERVER_WEB)
                    yield from compare(defence, rate, ours, linux)
                    recover(lab)


def compare(defence, rate, ours, linux):
    names = (("succeed", "%"), ("p99", "ms"), ("answered", "SYN/s"))
    for (metric, unit), mine, theirs in zip(names, ours, linux, strict=False):
        if metric == "answered" and rate == 0:
            continue
        made = {"bench": "attack", "params": {"defence": defence, "flood": rate}}
        made |= {"metric": metric, "unit": unit, "value": mine}
        made["evidence"] = {"sent": ours[3], "linux": theirs, "linux_sent": linux[3]}
        yield against(made, "Linux, SYN cookies", theirs)


def plot(made, path):
    title = "attack: requests that succeed beside a SYN flood, by syn_defence"
    picture.lines(path, title, report.select(made, "succeed"), "flood", ["defence"])
    answers = report.select(made, "answers")
    title = "attack: SYNs answered on one core, without a device"
    picture.bars(path.with_stem("attack-answers"), title, answers, "mode", ["family"])
    asked = report.select(made, "asking a list")
    title = "attack: what an access list adds to a new session, by entries of its set"
    picture.bars(path.with_stem("attack-lists"), title, asked, "entries", ["answer", "family"])
