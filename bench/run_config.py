# SPDX-License-Identifier: Apache-2.0
"""What a large configuration costs the control plane: applying all of it, changing one server of
it, and a scrape of its counters, in a private lab with one worker and no traffic.

`apply` is `steelyard apply FILE` by an agent whose forwarder has no service. `drain` is `steelyard
drain` of one server, until the forwarder has it. `edit` is `steelyard apply FILE` again, with
another weight of one server. Then the agent's /metrics are read: of one service by `?service=`, and
of all.
"""

import os
import time
from itertools import count

from bench import machine, picture
from tests.lab import Lab, Server, Service
from tests.lab.config import Config
from tests.lab.steelyard import Steelyard, local_addresses

TITLE = "a large configuration: applying it, changing one server of it, scraping it"
MINUTES = 3
SERVERS = 3  # per service
PORTS = 10  # services per VIP
METRICS_PORT = 9109
MEMORY = 1 << 30  # mostly of the agent, and the forwarder


def rows(quick):
    yield from cell(20_000, changes=5 if quick else 20)


def smoke():
    yield from cell(100, changes=1)


def plot(made, path):
    picture.bars(path, "config: what an operator waits for", made, "services", ["metric"])


def configuration(lab, services):
    config = Config(local_addresses(lab.network.back_net))
    config.metrics = f"{lab['forwarder'].v4}:{METRICS_PORT}"
    for i in range(services):
        vip = i // PORTS
        servers = [
            Server(f"10.{128 + at // 62500}.{at // 250 % 250}.{at % 250 + 1}", 8080, weight=1 + n)
            for n, at in enumerate(range(SERVERS * i, SERVERS * (i + 1)))
        ]
        address = f"10.{64 + vip // 62500}.{vip // 250 % 250}.{vip % 250 + 1}"
        config.services.append(
            Service(f"service-{i}", address, 8000 + i % PORTS, scheduler="wrr", servers=servers)
        )
    return config


def cell(services, changes):
    if not machine.memory_suffices(MEMORY):
        print(f"   {services:,} services: left out, {machine.lacking(MEMORY)}")
        return
    machine.prefer(os.getpid())
    with Lab() as lab:
        steelyard = Steelyard(lab, Config(local_addresses(lab.network.back_net)), huge=False)
        steelyard.start()
        for process in (steelyard.forwarder, steelyard.agent):
            machine.prefer(process.pid)
        steelyard.config = configuration(lab, services)
        file = lab.dir / "large.yaml"
        file.write_text(steelyard.config.text())
        yield record(services, "apply", timed(apply, steelyard, file))
        weights = count(100)
        for at in range(changes):
            name = f"service-{at * services // changes}"
            server = steelyard.config[name].servers[0]
            yield record(services, "drain", timed(drain, steelyard, name, server))
            if at < 3:
                server.weight = next(weights)
                file.write_text(steelyard.config.text())
                yield record(services, "edit", timed(apply, steelyard, file))
            for metric, words in (("scrape one", f"?service={name}"), ("scrape", "")):
                if at < 3:
                    yield from scraped(lab, services, metric, words)


def timed(act, *words):
    start = time.monotonic()
    act(*words)
    return time.monotonic() - start


def apply(steelyard, file):
    steelyard.cli("--timeout", "120s", "apply", file)


def drain(steelyard, name, server):
    steelyard.cli("--timeout", "120s", "drain", f"{server.address}@{name}")


def scraped(lab, services, metric, words):
    where = f"http://{lab['forwarder'].v4}:{METRICS_PORT}/metrics{words}"
    start = time.monotonic()
    text = lab["forwarder"].ns.run(["curl", "-sS", "--fail", where])
    took = time.monotonic() - start
    yield record(services, metric, took, {"bytes": len(text)})


def record(services, metric, value, evidence=None):
    run = {"bench": "config", "params": {"services": services}, "metric": metric, "unit": "s"}
    return run | {"value": value} | ({"evidence": evidence} if evidence else {})
