# SPDX-License-Identifier: Apache-2.0
"""Priorities without a line of code: unmodified redis and lighttpd on the user-space stack, under
two kinds of load each. Hooks are loaded, replaced and removed while clients wait, and latencies of
both kinds are measured before and after.

`make demo DEMO=priority` runs it; with --keep everything stays up for inspection. Its exit status
says whether urgent requests became as fast as claimed."""

import json
import os
import statistics
import sys
import threading
import time
from collections import defaultdict

from tests.demo.perform import perform
from tests.demo.show import Show, say
from tests.lab import wait_until
from tests.lab.clients import connect, receive_exactly
from tests.lab.hooks import hook, hook_list
from tests.lab.run import start_run
from tests.lab.servers import wait_listening
from tests.lab.steelyard import STEELYARD

PICTURE = """
   client  waits for a small answer ──┐
                                      ├──▶ redis-server   on s1, by `steelyard run`
           scans, downloads ──────────┴──▶ lighttpd       on s2, likewise
"""
KEYS, SCANNERS = 50_000, 6
LARGE, DOWNLOADERS = 4_000_000, 24
COUNT, COUNT_MIN = 20, 5  # urgent requests of a measurement, and before a change
ROUNDS = range(3, 13)  # of measurements: more than the minimum only while a goal is missed
OTHERS = {"redis": SCANNERS, "lighttpd": DOWNLOADERS}
GOAL = 0.5  # at most, of the median without a hook, and of that after its removal
LOADED, CHANGED = "with one, loaded live", "changed live"
PLAIN, REMOVED = "without a hook", "removed live"
# The same for redis by a fixed offset: RESP has the command's name at its ninth byte.
GET_FIRST = ["--param", "0=8", "--param", '1="GET"', "--param", "2=0xffffff0000000000"]
GET_FIRST += ["--param", "3=0", "--param", "4=6"]
LIGHTTPD = """\
server.document-root = "{dir}"
server.port = 8001
server.bind = "{v4}"
server.max-connections = 1024
mimetype.assign = ( "" => "text/plain" )
"""


def ms(seconds):
    return f"{seconds * 1000:.2f} ms"


class Priority:
    NETWORK = {"arms": 1, "servers": 2}

    def __init__(self, lab):
        self.lab, self.show, self.steelyard = lab, Show(), None
        self.missed, self.took = [], defaultdict(list)
        self.names = {kind: f"demo-{kind}-{os.getpid()}" for kind in ("redis", "lighttpd")}

    # ---- servers ---------------------------------------------------------------------------------

    def start(self):
        s1, s2 = self.lab["s1"], self.lab["s2"]
        argv = ["redis-server", "--bind", s1.v4, "--protected-mode", "no", "--save", ""]
        argv += ["--enable-debug-command", "yes", "--dir", self.lab.dir]
        self._run("redis", argv, "s1", 6379)
        self.lab["client"].ns.run(["redis-cli", "-h", s1.v4, "debug", "populate", KEYS])
        folder = self.lab.dir / "site"
        (folder / "api").mkdir(parents=True)
        (folder / "api" / "price").write_text("42")
        (folder / "large").write_bytes(bytes(LARGE))
        (folder / "conf").write_text(LIGHTTPD.format(dir=folder, v4=s2.v4))
        self._run("lighttpd", ["lighttpd", "-D", "-f", folder / "conf"], "s2", 8001)

    def _run(self, kind, argv, host, port):
        name = self.names[kind]
        process = start_run(
            self.lab, kind, argv, "--name", name, host=host, interface="eth0"
        )  # fmt: skip
        wait_listening(self.lab[host].ns, port)
        process.wait_for("is worker 0 of 1")
        self.show.claim(True, f"{argv[0]} runs as Debian ships it, its stack in its own process")

    # ---- load ------------------------------------------------------------------------------------

    def load(self, kind):
        """Others, without end."""
        if kind == "redis":
            argv = ["redis-benchmark", "-q", "-h", self.lab["s1"].v4, "-c", SCANNERS]
            return self.lab.start("client", "scans", [*argv, "-n", 10**9, "keys", "no:*"])
        url = f"http://{self.lab['s2'].v4}:8001/large"
        argv = ["wrk", "-t1", f"-c{DOWNLOADERS}", "-d3600s", "--timeout", "60s"]
        return self.lab.start("client", "downloads", [*argv, url])

    def server(self, kind):
        return {"redis": (self.lab["s1"].v4, 6379), "lighttpd": (self.lab["s2"].v4, 8001)}[kind]

    def await_load(self, kind):
        """All other clients are connected and send requests."""
        address, port = self.server(kind)
        ask = ["ss", "-Htn", "state", "established", "dst", f"{address}:{port}"]
        wait_until(
            lambda: len(self.lab["client"].ns.run(ask).splitlines()) >= OTHERS[kind],
            f"{kind} has its load",
        )

    def ask(self, kind, one, urgent=True):
        if kind == "redis":
            get, keys = b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n", b"*2\r\n$4\r\nKEYS\r\n$4\r\nno:*\r\n"
            one.sendall(get if urgent else keys)
            line = self._line(one)
            if line.startswith(b"$"):
                receive_exactly(one, int(line[1:]) + 2)
            return
        path = b"/api/price" if urgent else b"/large"
        one.sendall(b"GET %s HTTP/1.1\r\nHost: demo\r\n\r\n" % path)
        while line := self._line(one).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        receive_exactly(one, length)

    @staticmethod
    def _line(one):
        line = b""
        while not line.endswith(b"\n"):
            line += receive_exactly(one, 1)
        return line

    def clock(self, kind, until, urgent=True):
        """Returns the durations of consecutive requests."""
        address, port = self.server(kind)
        took = []
        with connect(self.lab["client"], address, port, timeout_s=120) as one:
            while not until(took):
                began = time.perf_counter()
                self.ask(kind, one, urgent)
                took.append(time.perf_counter() - began)
        return sorted(took)

    def measure(self, kind, what, change=None):
        """Returns latencies of both kinds while others load the server. change: runs meanwhile."""
        load, done, others = self.load(kind), threading.Event(), []
        self.await_load(kind)
        if change:
            self.clock(kind, lambda took: len(took) == COUNT_MIN)
            hook(self.names[kind], *change)
        one = threading.Thread(
            target=lambda: others.extend(
                self.clock(kind, lambda took: took and done.is_set(), urgent=False)
            )
        )
        one.start()
        took = self.clock(kind, lambda took: len(took) == COUNT)
        done.set()
        one.join()
        load.kill()
        self.took[kind, what, "urgent"] += took
        self.took[kind, what, "others"] += others

    def rounds(self, kind, load, swap):
        """Alternates measurements with and without hooks, so that other load of the machine affects
        all equally."""
        changes = {PLAIN: None, LOADED: load, CHANGED: swap, REMOVED: ("rm", "first")}
        for change in filter(None, changes.values()):
            say("   $ " + " ".join(["steelyard hook", *map(str, change)]))
        for done in range(1, ROUNDS.stop):
            for what, change in changes.items():
                self.measure(kind, what, change)
                if what == LOADED:
                    levels = hook_list(self.names[kind])[0]["first"]["levels"]
                    if min(levels[0], levels[6]) == 0:
                        self.show.claim(False, f"the hook says both: {levels}")
            if done >= ROUNDS.start and not self.missed_by(kind):
                break
        self.show.claim(True, f"{done} rounds: the hook has said what is urgent, and what may wait")
        self.show.claim(hook_list(self.names[kind])[0] == {}, "no hook is left")

    # ---- the demo --------------------------------------------------------------------------------

    def run(self):
        say(PICTURE)
        self.show.step("redis-server and lighttpd start, each on a host of its own")
        self.start()
        for kind, urgent, load, swap in (
            ("redis", "GET beside scans of all keys", ("load", "first", "redis_command"),
             ("swap", "first", "pattern", *GET_FIRST)),
            ("lighttpd", "a price beside downloads", ("load", "first", "http_path", "--param",
             '0="/api/"', "--param", "1=5", "--param", "3=6"), ("set", "first", "3=7")),
        ):  # fmt: skip
            self.show.step(f"{kind}: {urgent}, without a hook and with hooks in turn")
            self.rounds(kind, load, swap)
            self.missed += self.missed_by(kind)
        self.show.step("Latencies of both kinds, as clients see them")
        self.show.table(["", "urgent: median", "90 %", "others: median"], self.rows())
        for kind in OTHERS:
            for hooked in (LOADED, CHANGED):
                say(f"   {self.judge(kind, hooked)[0]}")

    def rows(self):
        for kind in OTHERS:
            for what in (PLAIN, LOADED, CHANGED, REMOVED):
                took = sorted(self.took[kind, what, "urgent"])
                yield [f"{kind}, {what}", ms(statistics.median(took)),
                       ms(took[int(len(took) * 0.9)]),
                       ms(statistics.median(self.took[kind, what, "others"]))]  # fmt: skip

    def judge(self, kind, hooked):
        """Urgent requests are faster than before, and than after the hook's removal. Returns a
        text, and whether the goal is met."""
        median = {
            what: statistics.median(self.took[kind, what, "urgent"])
            for what in (hooked, PLAIN, REMOVED)
        }
        shares = [median[hooked] / median[what] for what in (PLAIN, REMOVED)]
        text = f"{kind}, {hooked}: urgent ones take {shares[0]:.0%} of what they took before,"
        text += f" {shares[1]:.0%} of what they take after, at most {GOAL:.0%}"
        return text, max(shares) <= GOAL

    def missed_by(self, kind):
        judged = [self.judge(kind, hooked) for hooked in (LOADED, CHANGED)]
        return [text for text, met in judged if not met]

    def look_around(self):
        return {"hooks": f"{STEELYARD} hook list", "names": json.dumps(self.names)}

    def stop(self):
        self.show.step("All of it stops")
        for process in self.lab.processes:
            if process.name.startswith("run-"):
                self.show.claim(process.stop() is not None, f"{process.name} ended")


if __name__ == "__main__":
    sys.exit(perform(Priority, "priority", __doc__))
