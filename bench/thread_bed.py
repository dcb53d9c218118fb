# SPDX-License-Identifier: Apache-2.0
"""Servers with several threads, by `steelyard run` and as they are, and a client on Linux's sockets
(bench/threads.c).

    client c0 ══ t0 [stack]      a pair of veth for each side
           c1 ══ t1 [kernel]

One server runs at a time. Neither it nor the client is bound to a core, as users find them.
"""

import json
import shutil
import socket

from bench import machine
from bench.bed import Bed, Pair
from bench.program_bed import STEELYARD
from tests.lab import wait_until
from tests.lab.process import Process

CLIENT = machine.PROGRAMS / "steelyard-threads"
SIDES = ("stack", "kernel")
PORT, MEMORY, START_S = 7100, 192, 60
# By name in the rows: the program, Debian's package, and the client's protocol.
SERVERS = {
    "a thread per connection": (None, None, "echo"),
    "memcached -t 4": ("memcached", "memcached", "memcached"),
    "MariaDB": ("mariadbd", "mariadb-server-core", "mysql"),
}


def missing(name):
    """Returns the missing package of a server that must be left out, else None."""
    program, package, _ = SERVERS[name]
    return package if program and not shutil.which(program) else None


class ThreadBed(Bed):
    def __init__(self):
        super().__init__("threads")

    def build(self):
        self.client, self.server = self.namespaces("client", "server")
        for number in range(len(SIDES)):
            names = (f"c{number}", f"t{number}")
            Pair(self.client, self.server, names, f"10.67.{number}")

    def argv(self, name, side, folder):
        address = self.address(side)
        return {
            "a thread per connection": [CLIENT, "--serve", PORT],
            "memcached -t 4": ["memcached", "-u", "root", "-t", 4, "-l", address, "-p", PORT],
            "MariaDB": [
                *("mariadbd", "--no-defaults", "--user=root", f"--datadir={folder}"),
                *(f"--socket={folder}/socket", f"--pid-file={folder}/pid", "--skip-grant-tables"),
                *("--skip-innodb", "--default-storage-engine=Aria", "--skip-name-resolve"),
                *("--skip-networking=0", f"--bind-address={address}", f"--port={PORT}"),
            ],
        }[name]

    def address(self, side):
        return f"10.67.{SIDES.index(side)}.2"

    def accepts(self, side):
        with self.server.socket(socket.AF_INET) as one:
            return one.connect_ex((self.address(side), PORT)) == 0

    def serve(self, name, side):
        folder = self.dir / f"{SERVERS[name][2]}-{side}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        argv = self.argv(name, side, folder)
        if side == "stack":
            options = ["--interface", f"t{SIDES.index(side)}", "--memory", MEMORY, "--log", "info"]
            argv = [STEELYARD, "run", *options, "--", *argv]
        log = self.dir / f"{SERVERS[name][2]}-{side}.log"
        process = Process(name, self.server.command(argv), log)
        self.open.callback(process.stop)
        # Connections from the server's own host use Linux's TCP, also if a stack listens.
        wait_until(lambda: self.accepts(side), f"{name} listens", START_S)
        self.await_start(process, "is worker 0 of 1" if side == "stack" else None)
        return process

    def ask(self, name, side, loads):
        """Returns the client's measurements for each load: (connections, idle ones, seconds)."""
        process = self.serve(name, side)
        try:
            return [self.measure(name, side, *load) for load in loads]
        finally:
            process.stop()

    def measure(self, name, side, connections, idle, seconds):
        argv = [CLIENT, "--ask", f"{self.address(side)}:{PORT}", "--protocol", SERVERS[name][2]]
        argv += ["--connections", connections, "--idle", idle, "--seconds", seconds]
        process = Process("steelyard-threads", self.client.command(argv), self.dir / "client.log")
        machine.prefer(process.pid)
        if process.wait(deadline_s=60):
            raise machine.Failed(process.describe())
        output = process.output()
        return json.loads(output[output.rindex("{") :])
