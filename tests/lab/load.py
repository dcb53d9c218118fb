# SPDX-License-Identifier: Apache-2.0
"""steelyard-load as clients or as a server in a lab (docs/load.md)."""

import json
import re

from tests.lab.steelyard import BUILD, SANITIZED, memory_options
from tests.lab.wait import DEADLINE_S

LOAD = BUILD / "bench/load/steelyard-load"


def sources(family, count=4):
    """Returns unused addresses of the front network."""
    return f"10.0.0.100-10.0.0.{99 + count}" if family == 4 else f"fd00::100-fd00::{0xFF + count:x}"


def endpoint(address, port):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Load:
    """A run of the program; `options` are its own, without dashes: each=1, reset=True."""

    def __init__(self, lab, host, name="steelyard-load", port="eth0", memory=(), **options):
        self.file = lab.dir / f"{name}.json"
        argv = [LOAD, "--port", port, "--json", self.file, "--log", "info"]
        argv += memory or memory_options(lab)
        for option, value in options.items():
            for one in value if isinstance(value, list) else [value]:
                argv.append("--" + option.strip("_").replace("_", "-"))
                argv += [] if one is True else [one]
        self.process = lab.start(host, name, argv, env=dict(SANITIZED))

    def wait_serving(self):
        self.process.wait_for("^serving with")
        return self

    def finish(self, deadline_s=DEADLINE_S):
        """Returns its results once it has ended by itself."""
        status = self.process.wait(deadline_s)
        assert status == 0, self.process.describe()
        return self.results()

    def stop(self):
        status = self.process.stop()
        assert status == 0, self.process.describe()
        return self.results()

    def results(self):
        return json.loads(self.file.read_text())

    def said(self, pattern):
        return re.search(pattern, self.process.output())


def errors(results):
    """Returns the errors by cause."""
    found = {name: count for name, count in results["errors"].items() if count}
    failed = results["connections"]["failed"] + results["connections"]["lost"]
    return found | ({"connections": failed} if failed else {})


def memif(lab, role, mac, peer, peer_mac, prefix=None):
    """Returns options of one end of a memif, which has no kernel to resolve neighbours. prefix: of
    further addresses at the other end."""
    port, link = "net_memif0", lab.dir / "memif.sock"
    device = f"{port};role={role};socket={link};socket-abstract=no"
    return {
        "port": f"{port},backend=ethdev,mac={mac},dev={device}",
        "route": [
            f"{peer}/32,port={port}",
            *([f"{prefix},port={port},via={peer}"] if prefix else []),
        ],
        "neighbour": f"{peer},port={port},mac={peer_mac}",
    }
