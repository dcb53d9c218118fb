# SPDX-License-Identifier: Apache-2.0
"""Unmodified servers on the user-space TCP stack behind a forwarder, beside those on Linux's TCP.

`make demo DEMO=stack` runs it; with --keep everything stays up for inspection. It reports rates
without judging them: its exit status says whether every byte and every request was right."""

import csv
import hashlib
import io
import os
import sys
from collections import defaultdict
from dataclasses import dataclass

from tests.demo.perform import perform
from tests.demo.show import Show, say
from tests.lab.clients import finish_wrk, start_wrk
from tests.lab.config import Config, Server, Service
from tests.lab.process import run
from tests.lab.run import kernel_connections, nginx_text, start_run
from tests.lab.servers import wait_listening
from tests.lab.steelyard import FORWARDER_NICE, VIP, Steelyard, local_addresses

PICTURE = """
                                                ┌── s1 nginx     s2 nginx
   curl, wrk ──────────▶ VIPs ──[ steelyard ]───┼── s3 lighttpd  s4 lighttpd
   redis-benchmark              forwarder,      └── s5 redis     s6 redis
                                agent             steelyard run   as they are

   The same programs with the same configuration: on the left on the user-space stack, on the right
   on Linux's TCP. FNAT tells servers their clients (TOA), which Linux's TCP ignores. Forwarder,
   clients and servers share this machine's cores, so the rates are not those of one server:
   `make bench BENCH=stack` measures these. All of it takes about a minute.
"""
ROUNDS, SECONDS, CONNECTIONS = 3, 2, 32
REDIS_REQUESTS = 10_000
FILE = 10_000_000
VALUE = 1_000_000
SIDES = ("stack", "kernel")
WORD = {"stack": "on the stack", "kernel": "on Linux's TCP"}
OPTIONS = ["--toa"]

NGINX = nginx_text("""\
    sendfile on;
    default_type text/plain;
    server {{
        listen 8000 backlog=4096;
        listen [::]:8000 backlog=4096;
        root {dir};
        location = /who {{ return 200 "$remote_addr"; }}
    }}
""")
LIGHTTPD = """\
server.document-root = "{dir}"
server.port = 8000
server.bind = "0.0.0.0"
server.max-keep-alive-requests = 0
$SERVER["socket"] == "[::]:8000" {{ }}
index-file.names = ( "index.html" )
mimetype.assign = ( "" => "text/plain" )
"""
REDIS = """\
port 8000
bind 0.0.0.0 ::
protected-mode no
save ""
dir {dir}
"""


@dataclass(frozen=True)
class Program:
    name: str
    hosts: dict  # by side
    port: int  # VIP port of the stack's server; the kernel's is the next one
    config: str
    command: tuple

    def front(self, side):
        return self.port + SIDES.index(side)


def program(name, first, port, config, *command):
    hosts = {side: f"s{first + n}" for n, side in enumerate(SIDES)}
    return Program(name, hosts, port, config, command)


NGINX_ONE = program("nginx", 1, 81, NGINX, "nginx", "-c")
LIGHTTPD_ONE = program("lighttpd", 3, 83, LIGHTTPD, "lighttpd", "-D", "-f")
REDIS_ONE = program("redis", 5, 6379, REDIS, "redis-server")
PROGRAMS = NGINX_ONE, LIGHTTPD_ONE, REDIS_ONE
WEB = NGINX_ONE, LIGHTTPD_ONE
BOTH = [(one, side) for one in PROGRAMS for side in SIDES]


def url(one, side, family, path="/"):
    host = VIP[4] if family == 4 else f"[{VIP[6]}]"
    return f"http://{host}:{one.front(side)}{path}"


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Stack:
    NETWORK = {"servers": 6}

    def __init__(self, lab):
        self.lab, self.show = lab, Show()
        self.client = lab["client"].ns
        config = Config(local_addresses(lab.network.back_net))
        for one, side in BOTH:
            for family in (4, 6):
                at = Server(lab[one.hosts[side]].address(family), 8000)
                toa = {"client_address": "toa"}
                name = f"{one.name}-{side}-{family}"
                service = Service(name, VIP[family], one.front(side), spread=toa, servers=[at])
                config.services.append(service)
        config.without_defence()  # short connections at full speed look like a SYN flood
        self.steelyard = Steelyard(lab, config)
        self.file, self.page = os.urandom(FILE), f"{'a page of 612 bytes ':0<611}\n"
        self.rates, self.failed = defaultdict(list), 0
        self.before = {}

    def run(self):
        say(PICTURE)
        self.start()
        self.contents()
        self.clients()
        self.load()
        self.account()

    def stop(self):
        self.show.stop(self.steelyard)

    def look_around(self):
        return {
            "as the client": f"{self.client.enter} curl {url(NGINX_ONE, 'stack', 4)}",
            "on Linux's TCP": f"{self.client.enter} curl {url(NGINX_ONE, 'kernel', 4)}",
        }

    # ---- the steps -------------------------------------------------------------------------------

    def start(self):
        self.show.step("Six servers, a forwarder with one worker and its agent start")
        for one, side in BOTH:
            self.serve(one, side)
        self.steelyard.start()
        self.steelyard.forwarder.prefer(FORWARDER_NICE)
        self.before = self.linux_connections()
        options = " ".join(OPTIONS)
        self.show.claim(True, f"s1, s3, s5: steelyard run --interface eth0 {options} -- nginx …")

    def serve(self, one, side):
        host = one.hosts[side]
        folder = self.lab.dir / f"{one.name}-{side}"
        folder.mkdir(mode=0o755)
        (folder / "index.html").write_text(self.page)
        (folder / "file").write_bytes(self.file)
        (folder / "conf").write_text(one.config.format(dir=folder))
        argv = [*one.command, folder / "conf"]
        if side == "stack":
            process = start_run(self.lab, host, argv, *OPTIONS, host=host, interface="eth0")
        else:
            process = self.lab.start(host, f"{one.name}-kernel", argv)
        wait_listening(self.lab[host].ns, 8000)
        if side == "stack":
            process.wait_for("is worker 0 of 1")

    def linux_connections(self):
        """Returns the connections that Linux's TCP on the stack's hosts has opened and accepted."""
        return {one.name: kernel_connections(self.lab[one.hosts["stack"]]) for one in PROGRAMS}

    def contents(self):
        self.show.step(f"Files of {FILE // 1_000_000} MB and values of {VALUE // 1_000_000} MB")
        for one in WEB:
            for side in SIDES:
                for family in (4, 6):
                    got = self.curl(url(one, side, family, "/file"))
                    same = digest(got) == digest(self.file)
                    where = f"{one.name} {WORD[side]}, IPv{family}"
                    self.show.claim(same, f"{where}: {len(got):,} bytes, and the right checksum")
        value = self.file[:VALUE].hex()
        for side in SIDES:
            for family in (4, 6):
                self.redis_cli(side, family, "-x", "set", "value", stdin=value)
                got = self.redis_cli(side, family, "get", "value").rstrip("\n")
                where = f"redis {WORD[side]}, IPv{family}"
                self.show.claim(digest(got.encode()) == digest(value.encode()), f"{where}: as set")

    def curl(self, address):
        copy = self.lab.dir / "copy"
        self.client.run(["curl", "-sS", "--fail", "--max-time", 100, "-o", copy, address])
        return copy.read_bytes()

    def redis_cli(self, side, family, *words, stdin=None):
        argv = ["redis-cli", "-h", VIP[family], "-p", REDIS_ONE.front(side), *words]
        return run(self.client.command(argv), stdin=stdin)

    def clients(self):
        self.show.step("Whom nginx sees: the stack reads the option that the forwarder puts in")
        for family in (4, 6):
            own = self.lab["client"].address(family)
            seen = {s: self.curl(url(NGINX_ONE, s, family, "/who")).decode() for s in SIDES}
            self.show.claim(seen["stack"] == own, f"on the stack: {seen['stack']}, the client")
            known = seen["kernel"] in self.steelyard.config.local_addresses
            self.show.claim(known, f"on Linux's TCP: {seen['kernel']}, the forwarder")

    def load(self):
        self.show.step(f"{ROUNDS} rounds of load, one server at a time, {CONNECTIONS} connections")
        for _ in range(ROUNDS):
            for one in WEB:
                for kind in ("keep-alive", "short"):
                    for side in SIDES:
                        self.ask_web(one, side, kind)
            for side in SIDES:
                self.ask_redis(side)
        self.show.table(
            ["wrk, redis-benchmark", *WORD.values(), "ratio", "failed"], list(self.rows())
        )
        self.show.claim(self.failed == 0, f"{self.failed} requests failed")

    def ask_web(self, one, side, kind):
        options = {"connections": CONNECTIONS, "seconds": SECONDS, "timeout_s": 60}
        options["keep_alive"] = kind == "keep-alive"
        load = finish_wrk(start_wrk(self.lab, url(one, side, 4), 0, **options))
        right = load.served[self.page.rstrip()]
        wrong = load.requests - right + sum(load.errors.values())
        self.failed += wrong
        self.rates[f"{one.name}, {kind}", side].append((right / load.seconds, wrong))

    def ask_redis(self, side):
        """It ends with an error if any answer is one."""
        argv = ["redis-benchmark", "-h", VIP[4], "-p", REDIS_ONE.front(side), "-t", "set,get"]
        argv += ["-n", REDIS_REQUESTS, "-c", CONNECTIONS, "-d", 64, "-r", 1000, "--csv"]
        output = self.client.run(argv)
        table = csv.DictReader(io.StringIO(output[output.index('"test"') :]))
        for row in table:
            self.rates[f"redis, {row['test']}", side].append((float(row["rps"]), 0))

    def rows(self):
        for name in dict.fromkeys(name for name, _ in self.rates):
            ours, theirs = (self.rates[name, side] for side in SIDES)
            best = [max(rate for rate, _ in some) for some in (ours, theirs)]
            wrong = sum(wrong for some in (ours, theirs) for _, wrong in some)
            ratios = sorted(a[0] / b[0] for a, b in zip(ours, theirs, strict=True) if b[0])
            middle = f"{ratios[len(ratios) // 2]:.2f}" if ratios else "-"
            yield [name, *(f"{rate:,.0f}/s" for rate in best), middle, str(wrong)]

    def account(self):
        self.show.step("Who did it")
        now = self.linux_connections()
        for one in PROGRAMS:
            more = now[one.name] - self.before[one.name]
            host = one.hosts["stack"]
            self.show.claim(
                more == 0, f"{host}: Linux's TCP had {more} of {one.name}'s connections"
            )
        drops = self.steelyard.drops()
        # wrk resets open connections at its end, and servers still send
        drops.pop("no-session", None)
        self.show.claim(not drops, f"the forwarder dropped {drops or 'no packet'}")


if __name__ == "__main__":
    sys.exit(perform(Stack, "unmodified servers on the user-space stack", __doc__))
