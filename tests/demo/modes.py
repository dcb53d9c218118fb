# SPDX-License-Identifier: Apache-2.0
"""Every mode × family × protocol, with one worker and with two: real clients, real servers.

`make demo DEMO=modes` runs it; with --keep everything stays up for inspection."""

import sys

from tests.demo.perform import perform
from tests.demo.show import Show, say
from tests.lab import Expired
from tests.lab.mode_table import PROTOCOLS, TABLE, ModeHosts, config
from tests.lab.steelyard import Steelyard

PICTURE = """
    client ── router ──┬── [ steelyard ]     one interface
                       ├── s1  nginx, a DNS server, the end of tunnels
                       ├── s2
                       └── s3

   One forwarder has a VIP for each row of the table, and the same three servers behind all of
   them. A cell of TCP is curl, a file of 1 MB by its hash, 300 short connections by wrk, and the
   address that the server saw; of UDP 31 questions to name servers; of ICMP ping to the VIP. SNAT's
   rows are what the servers ask of the client's host.
"""
WORKERS = (1, 2)
GOOD, BAD = "✓", "✗"


class Modes:
    NETWORK = {"arms": 1}

    def __init__(self, lab):
        self.lab, self.show = lab, Show()
        self.hosts = ModeHosts(lab)
        self.steelyard = Steelyard(lab, config(lab.network))
        self.cells = {}

    def run(self):
        say(PICTURE)
        self.show.step("Three servers, a forwarder with one worker and its agent start")
        self.hosts.start()
        self.steelyard.start()
        self.steelyard.wait_all_up()
        for workers in WORKERS:
            if workers != self.steelyard.options.workers:
                self.show.step(f"The forwarder is replaced by one with {workers} workers")
                self.steelyard.upgrade(workers=workers)
                self.steelyard.wait_reconnected()
            self.show.step(f"Every cell with {workers} worker{'s' if workers > 1 else ''}")
            for row in TABLE:
                say(f"     {row!s:<10} {'; '.join(self.cell(row, p, workers) for p in PROTOCOLS)}")
        self.show.step("The table")
        columns = [(n, protocol) for n in WORKERS for protocol in PROTOCOLS]
        rows = [[str(row), *(self.cells[row, *column] for column in columns)] for row in TABLE]
        self.show.table(["", *(f"{protocol} {n}w" for n, protocol in columns)], rows)
        failed = sum(cell == BAD for cell in self.cells.values())
        self.show.claim(not failed, f"{len(self.cells) - failed} of {len(self.cells)} cells passed")
        drops = self.steelyard.drops()
        self.show.claim(not drops, f"dropped: {drops or 'no packet'}")

    def cell(self, row, protocol, workers):
        """Tries one cell, whatever the result of others; returns its result."""
        try:
            seen = self.hosts.check(row, protocol)
        except (AssertionError, OSError, Expired) as error:
            self.cells[row, workers, protocol] = BAD
            return f"{BAD} {protocol}: {error}"
        self.cells[row, workers, protocol] = GOOD
        return seen

    def stop(self):
        self.show.stop(self.steelyard)
        self.hosts.close()

    def look_around(self):
        return {
            f"as a client of {row}": f"{self.lab['far'].ns.enter} curl {row.url}/"
            for row in TABLE[:3]
        }


if __name__ == "__main__":
    sys.exit(perform(Modes, "modes", __doc__))
