# SPDX-License-Identifier: Apache-2.0
"""Unmodified servers on the stack (`steelyard run`), with and without a hook that an operator
loads: redis, nginx, and lighttpd behind good and bad links (table 1 of the paper).

A server runs through all rounds; the hook is loaded and removed in turn.
"""

import contextlib
import csv
import io
import json
import os
import time
from statistics import median

from bench import machine
from bench.bed import Bed, two_cores
from bench.priority import experience
from bench.priority.figures import in_turn, pairs, run
from bench.priority.priority_bed import generate, generator_argv, join, lost, p99
from bench.stack_bed import FIRST
from tests.lab.link import LINK, words
from tests.lab.process import Process
from tests.lab.process import run as command
from tests.lab.run import run_command
from tests.lab.steelyard import STEELYARD

SERVER = "10.67.0.2"
SOURCES = 8


class RunBed(Bed):
    """One program on the stack, on the second core; clients on the first."""

    def __init__(self, name):
        super().__init__(f"priority-{name}")
        self.near, self.far = two_cores()
        self.name = name
        self.stack = f"bench-{name}-{os.getpid()}"

    def build(self):
        self.dir.chmod(0o755)
        self.clients, self.host = self.namespaces("clients", "server")
        self.wire()

    def wire(self):
        join(self.clients, self.host, 2)

    def begin(self, name, argv, ns, core, ready=None):
        argv = machine.ahead(ns.command(["taskset", "-c", core, *argv]))
        process = Process(name, argv, self.dir / f"{name}.log")
        self.open.callback(process.kill)
        return self.await_start(process, ready)

    def serve(self, argv, ready):
        options = ["--name", self.stack, "--connections", 4096, "--memory", 256]
        argv = run_command(argv, *options, interface="p1")
        return self.begin(self.name, argv, self.host, self.far, ready)

    def hook(self, *order):
        command([STEELYARD, "hook", *order, "--stack", self.stack])

    @contextlib.contextmanager
    def hooked(self, load):
        """load: the words of `steelyard hook load`; None: without."""
        if load:
            self.hook("load", "urgent", *load)
        try:
            yield
        finally:
            if load:
                self.hook("rm", "urgent")

    def ask(self, to, **options):
        sources = f"10.67.0.{FIRST}-10.67.0.{FIRST + SOURCES - 1}"
        argv = generator_argv("p0", self.near, sources, to, options)
        return generate(self.clients, argv, self.dir / "load.log")


def beside(figure, found, of, metric, what, evidence=None, unit="µs"):
    """Rows of each hook's rounds with those without beside."""
    values = {name: [of(seen) for seen in runs] for name, runs in found.items()}
    without = values.pop("none")
    for name, with_hook in values.items():
        params = {"figure": figure, "hook": name} | what
        yield from pairs(params, metric, "without", with_hook, without, evidence, unit)


# ---- redis ---------------------------------------------------------------------------------------

REDIS = ["redis-server", "--bind", SERVER, "--protected-mode", "no", "--save", ""]
REDIS += ["--enable-debug-command", "yes"]
KEYS = 50_000


def redis(rounds, requests):
    """GET and SET, while others look at all keys and read long lists."""
    with RunBed("redis") as bed:
        bed.serve(REDIS, "Ready to accept")
        client = ["taskset", "-c", bed.near]
        bed.clients.run([*client, "redis-cli", "-h", SERVER, "debug", "populate", KEYS])
        asked = [*client, "redis-benchmark", "-h", SERVER]
        bed.clients.run([*asked, "-q", "-n", 600, "lpush", "list", "x" * 100])
        for i, words_of in enumerate((["keys", "no:*"], ["lrange", "list", 0, 599])):
            others = ["redis-benchmark", "-h", SERVER, "-q", "-c", 4, "-n", 10**9, *words_of]
            bed.begin(f"scan{i}", others, bed.clients, bed.near)

        def measure(_, load):
            with bed.hooked(load):
                return {
                    name: benchmark(bed, [*asked, "-c", 4, "-n", requests, "--csv", *words_of])
                    for name, words_of in (("GET", ["get", "key:1"]), ("SET", ["set", "k", "v"]))
                }

        found = in_turn({"none": None, "redis_command": ["redis_command"]}, rounds, measure)
        for name in ("GET", "SET"):
            for percentile in ("p50", "p99"):
                yield from beside(
                    "redis",
                    found,
                    lambda seen, name=name, percentile=percentile: seen[name][percentile],
                    percentile,
                    {"command": name},
                )


def benchmark(bed, argv):
    """Latencies that redis-benchmark has seen, in µs."""
    lines = [line for line in bed.clients.run(argv).splitlines() if line.startswith('"')]
    (row,) = csv.DictReader(io.StringIO("\n".join(lines)))
    return {name: float(row[f"{name}_latency_ms"]) * 1000 for name in ("p50", "p99")}


# ---- nginx ---------------------------------------------------------------------------------------

NGINX = """\
worker_processes 1;
daemon off;
pid {dir}/pid;
error_log stderr notice;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000;
    server {{
        listen {server}:8080;
        root {dir};
        location /api/ {{ return 200 "as you asked\\n"; }}
    }}
}}
"""
DOWNLOAD = 128 << 10
API = ["http_path", "--param", '0="/api/"', "--param", "1=5", "--param", "3=6"]


def nginx(rounds, seconds):
    """Short answers of an API, in bursts with as many downloads."""
    with RunBed("nginx") as bed:
        (bed.dir / "download").write_bytes(os.urandom(DOWNLOAD))
        (bed.dir / "nginx.conf").write_text(NGINX.format(dir=bed.dir, server=SERVER))
        bed.serve(["nginx", "-p", bed.dir, "-c", bed.dir / "nginx.conf"], "is worker 0 of 1")
        asked = {
            "protocol": "http",
            "class": ["api,path=/api/x", "download,path=/download"],
            "rate": 1000,
            "burst": 200,
            "arrivals": "even",
            "connections": 400,
            "duration": f"{seconds}s",
            "warmup": "0.4s",
        }

        def measure(_, load):
            with bed.hooked(load):
                return bed.ask(f"{SERVER}:8080", **asked)

        found = in_turn({"none": None, "http_path": API}, rounds, measure)
        for name in ("api", "download"):
            yield from beside(
                "nginx", found, lambda seen, name=name: p99(seen, name), "p99", {"requests": name}
            )


# ---- lighttpd behind good and bad links ----------------------------------------------------------

LIGHTTPD = """\
server.document-root = "{dir}"
server.bind = "{server}"
server.port = 8001
server.max-connections = 4000
server.max-fds = 8192
server.max-keep-alive-requests = 100000
server.max-keep-alive-idle = 120
server.modules = ( "mod_ssi" )
mimetype.assign = ( "" => "text/plain" )
ssi.extension = ( ".shtml" )
"""
CONNECTIONS = 1000  # of both groups
# A page of 0.9 MB, of which lighttpd makes 10 KB in some 5 ms, for each request.
DECISION = '<!--#if expr="(a = b) && ((c = d) || (e != f))" -->x<!--#endif -->'
DECISIONS, TEXT = 14_000, 10_000
BEGIN_S = 5  # until then all connections are open, also those whose handshake lost a packet
SPREAD_S = 1  # requests come so far apart: else those of the nearer clients come first
LINKS = {
    "good": {"delay_ms": 25},
    "bad": {"delay_ms": 100},
}
LINK_HOOK = ["link", "--param", "0=150000"]  # µs of smoothed RTT
SWAPPED = [*LINK_HOOK, "--param", "2=1", "--param", "3=6"]
LOSS = 0.01  # of what comes to the clients of the bad link


class LinksBed(RunBed):
    """Two groups of clients, each behind a link of its own:

    good g0 ══ g1 [link] g2 ══ g3 ┐
                                  ├ bridge ══ p1 [server]
    bad  b0 ══ b1 [link] b2 ══ b3 ┘
    """

    def wire(self):
        (self.middle,) = self.namespaces("middle")
        self.middle.ip("link add bridge type bridge forward_delay 0 mcast_snooping 0")
        self.middle.ip("link set bridge up")
        self.cable(self.host, "p1", "port", SERVER)
        self.middle.ip("link set port master bridge")
        self.groups = {}
        server = self.host.mac("p1")
        for number, (name, parameters) in enumerate(LINKS.items()):
            (group,) = self.namespaces(name)
            self.groups[name] = group
            first = FIRST + 16 * number
            letter = name[0]
            self.cable(group, f"{letter}0", f"{letter}1", f"10.67.0.{10 + number}")
            self.middle.ip(f"link add {letter}2 type veth peer name {letter}3")
            for end in (f"{letter}1", f"{letter}2", f"{letter}3"):
                self.middle.ip(f"link set {end} up")
                self.middle.run(["ethtool", "-K", end, "tx", "off", "gso", "off", "tso", "off"])
            self.middle.ip(f"link set {letter}3 master bridge")
            group.ip(f"neigh replace {SERVER} lladdr {server} dev {letter}0 nud permanent")
            mac = group.mac(f"{letter}0")
            for host in range(first, first + SOURCES):
                self.host.ip(f"neigh replace 10.67.0.{host} lladdr {mac} dev p1 nud permanent")
            argv = [LINK, "--a", f"{letter}1", "--b", f"{letter}2", "--stdin"]
            argv += ["--set", f"both {words(parameters)}"]
            if name == "bad":
                argv += ["--set", f"ba {words({'loss': LOSS})}"]
            self.emulate(name, argv)

    def emulate(self, name, argv):
        argv = self.middle.command(["taskset", "-c", self.near, *argv])
        process = Process(f"link-{name}", argv, self.dir / f"link-{name}.log", commanded=True)
        self.open.callback(process.kill)
        machine.prefer(process.pid)
        process.wait_for("is ready")

    def cable(self, ns, name, other, address):
        ns.ip(
            f"link add {name} numtxqueues 1 numrxqueues 1 type veth peer name {other}"
            f" numtxqueues 1 numrxqueues 1 netns {self.middle.name}"
        )
        ns.ip(f"address add {address}/24 dev {name}")
        ns.ip(f"link set {name} up")
        ns.run(["ethtool", "-K", name, "tx", "off"])
        self.middle.ip(f"link set {other} up")
        self.middle.run(["ethtool", "-K", other, "tx", "off", "gso", "off", "tso", "off"])

    def both(self, connections, **options):
        """Both groups ask at one time; what each has seen."""
        arrive = time.clock_gettime(time.CLOCK_MONOTONIC) + BEGIN_S
        processes = {}
        for number, (name, group) in enumerate(self.groups.items()):
            first = FIRST + 16 * number
            sources = f"10.67.0.{first}-10.67.0.{first + SOURCES - 1}"
            at = arrive - LINKS[name]["delay_ms"] / 1000
            asked = options | {"connections": connections, "at": f"{at:.3f}s"}
            argv = generator_argv(f"{name[0]}0", self.near, sources, f"{SERVER}:8001", asked)
            log = self.dir / f"load-{name}.log"
            processes[name] = Process(f"load-{name}", machine.ahead(group.command(argv)), log)
            machine.prefer(processes[name].pid)
        seen = {}
        for name, process in processes.items():
            if process.wait(deadline_s=120):
                raise machine.Failed(process.describe())
            output = process.output()
            seen[name] = json.loads(output[output.index("{") :])
        return seen


def lighttpd(rounds, swapped=False, each=CONNECTIONS // 2):
    """Each connection asks once. Pages are made for each request: the paper's "backend"."""
    with LinksBed("lighttpd") as bed:
        (bed.dir / "page.shtml").write_text(DECISION * DECISIONS + "y" * TEXT)
        (bed.dir / "lighttpd.conf").write_text(LIGHTTPD.format(dir=bed.dir, server=SERVER))
        bed.serve(["lighttpd", "-D", "-f", bed.dir / "lighttpd.conf"], "is worker 0 of 1")
        asked = {
            "protocol": "http",
            "class": "page,path=/page.shtml",
            "timeout": "60s",
            "warmup": "0s",
            "rate": each / SPREAD_S,
            "requests": each,
        }

        def measure(_, load):
            with bed.hooked(load):
                return bed.both(each, **asked)

        variants = {"none": None, "link": LINK_HOOK} | ({"swapped": SWAPPED} if swapped else {})
        found = in_turn(variants, rounds, measure)
        yield from table1(found)


def table1(found):
    for link in LINKS:
        missing = {"lost": sum(lost(one[link]) for runs in found.values() for one in runs)}
        for percentile in ("p99", "p50"):

            def seconds(seen, link=link, percentile=percentile):
                return seen[link]["classes"][0]["latency_us"][percentile] / 1e6

            yield from beside("table 1", found, seconds, percentile, {"link": link}, missing, "s")
            for name, runs in found.items():
                content = median(experience.of(seconds(seen)) for seen in runs)
                params = {"figure": "table 1", "hook": name, "link": link}
                yield run(params, f"QoE of the {percentile}", content, unit="of 1")
