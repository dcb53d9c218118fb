# SPDX-License-Identifier: Apache-2.0
"""Unmodified servers by `steelyard run` and as they are, and the generator that asks them.

The network and the cores are those of bench/stack_bed.py: a pair of veth for each server. One
process serves; with `steelyard run` its stack is in it.
"""

from bench import machine
from bench.stack_bed import StackBed
from tests.lab.lab import ROOT

STEELYARD = ROOT / "build/bin/steelyard"
MEMORY, SOURCES = 192, 8  # MB of packets; the generator's addresses
PAGE, VALUE = 612, 64  # bytes
SIDES = ("stack", "kernel")
PROGRAMS = ("nginx", "redis")
PROTOCOL = {"nginx": "http", "redis": "redis"}
PORT = {"nginx": 80, "redis": 6379}

NGINX = """\
worker_processes 1;
worker_rlimit_nofile 65536;
daemon off;
user root;
pid {dir}/pid;
error_log stderr error;
events {{ worker_connections 20000; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    server {{
        listen {address}:80 backlog=8192;
        root {dir};
    }}
}}
"""
REDIS = """\
bind {address}
port 6379
protected-mode no
save ""
maxclients 20000
tcp-backlog 8192
dir {dir}
"""


class ProgramBed(StackBed):
    sides = SIDES
    arms = tuple((program, side) for program in PROGRAMS for side in SIDES)

    def start_all(self):
        for arm in self.arms:
            self.start_program(*arm)
        # A client on the servers' host comes by Linux's own TCP, also where a stack listens.
        patient = ["--retry", 60, "--retry-connrefused", "--retry-delay", 1]
        for side in SIDES:
            url = f"http://{self.address('nginx', side)}/"
            page = self.server.run(["curl", "-sS", "--fail", *patient, url])
            address, text = self.address("redis", side), "x" * VALUE
            said = self.server.run(["redis-cli", "-h", address, "set", "key", text])
            if len(page) != PAGE or said.strip() != "OK":
                raise machine.Failed(f"{side}: {len(page)} bytes of a page, {said}")

    def address(self, program, side):
        return f"10.66.{self.arms.index((program, side))}.2"

    def start_program(self, program, side):
        folder = self.dir / f"{program}-{side}"
        folder.mkdir()
        (folder / "index.html").write_text("x" * PAGE)
        words = {"dir": folder, "address": self.address(program, side)}
        config = folder / "conf"
        config.write_text({"nginx": NGINX, "redis": REDIS}[program].format(**words))
        argv = {"nginx": ["nginx", "-c", config], "redis": ["redis-server", config]}[program]
        if side == "stack":
            interface = f"s{self.arms.index((program, side))}"
            options = ["--interface", interface, "--memory", MEMORY, "--log", "info"]
            argv = [STEELYARD, "run", *options, "--", *argv]
        ready = {"nginx": "", "redis": "Ready to accept connections"}[program]
        log = self.dir / f"{program}-{side}.log"
        argv = ["taskset", "-c", self.far, *argv]
        self.begin(f"{program}-{side}", argv, log, "is worker 0 of 1" if side == "stack" else ready)

    def ask(self, program, side, **options):
        """What the generator measures of a server."""
        number = self.arms.index((program, side))
        server = f"{self.address(program, side)}:{PORT[program]}"
        return self.generate(number, server, PROTOCOL[program], SOURCES, **options)
