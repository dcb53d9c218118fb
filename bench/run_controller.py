# SPDX-License-Identifier: Apache-2.0
"""How fast a controller brings changes to many forwarders, and what that costs it.

bench/fleet has the controller with its own etcd in one process, and the agents in another: they
join by tokens and speak the real protocol over mutual TLS, but have no forwarders. A change is
another weight of one server in the file of all forwarders: `steelyard apply FILE --forwarder '*'`,
once a second. It `reaches all` when the last agent has it. What an agent does then, benchmark
`config` measures.
"""

import json
import os
import subprocess

from bench import machine, picture

TITLE = "a controller with 100 forwarders of 10 000 services each"
MINUTES = 4
PROGRAM = machine.ROOT / "build/bin/fleet"
MEMORY = 3 * machine.GB


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   controller: left out, {machine.lacking(MEMORY)}")
        return
    yield from fleet(forwarders=100, services=10_000, changes=20 if quick else 100)


def smoke():
    yield from fleet(forwarders=3, services=20, changes=2, every="10ms")


def plot(made, path):
    waits = [row for row in made if row["unit"] == "s"]
    picture.bars(path, "controller: what a change takes", waits, "forwarders", ["metric"])


def fleet(forwarders, services, changes, every="1s"):
    machine.prefer(os.getpid())
    command = [PROGRAM, "-forwarders", forwarders, "-services", services]
    command += ["-changes", changes, "-every", every]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise machine.Failed(done.stderr.strip().splitlines()[-1])
    for line in done.stdout.splitlines():
        yield json.loads(line)
