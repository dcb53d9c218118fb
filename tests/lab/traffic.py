# SPDX-License-Identifier: Apache-2.0
"""Thousands of conversations at once, by tests/traffic; each must survive the test."""

import json
import shutil

from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.lab.steelyard import DNS, VIP, WEB
from tests.lab.wait import DEADLINE_S

TRAFFIC = ROOT / "build/bin/traffic"


def _on_vips(port):
    return f"{VIP[4]}:{port}", f"[{VIP[6]}]:{port}"


class Traffic:
    """HTTP connections, downloads and UDP flows of the client, half of each over IPv6; or those of
    another host, to targets "ADDRESS:PORT" in rotation. `name` distinguishes several of a host.

    start() and step() return the events since the previous call, once every flow has had an answer
    to a request sent after the call. finish() also completes the downloads."""

    def __init__(
        self, lab, http, downloads, udp, size_mb=3, host="client", web=(), dns=(), name=""
    ):
        self.lab, self.host, self.name = lab, host, name or host
        self.targets = {"web": web or _on_vips(WEB), "dns": dns or _on_vips(DNS)}
        self.counts = {"http": http, "downloads": downloads, "udp": udp}
        self.size = ["-size", size_mb << 20]
        self.process = None
        self.reports = 0

    def provide(self):
        """Copies the content to the web servers, which must be running."""
        first, *others = (
            self.lab.dir / f"nginx-{host}/files/content" for host in self.lab.servers()
        )
        run([TRAFFIC, *self.size, "-write-content", first])
        for other in others:
            shutil.copy(first, other)

    def start(self, *words):
        argv = [TRAFFIC, *self.size, *words]
        for name, count in self.counts.items():
            argv += [f"-{name}", count]
        for name, targets in self.targets.items():
            argv += [f"-{name}", ",".join(targets)]
        self.process = self.lab.start(self.host, f"traffic-{self.name}", argv, commanded=True)
        return self._next("ready")

    def step(self):
        self.begin_step()
        return self.end_step()

    def begin_step(self):
        self.process.write_line("step")

    def end_step(self):
        return self._next("step")

    def finish(self):
        self.process.write_line("finish")
        report = self._next("finish")
        assert self.process.wait() == bool(report["failures"])
        return report

    def _next(self, event, deadline_s=DEADLINE_S):
        self.reports += 1
        pattern = rf'^{{"event":"{event}","number":{self.reports},.*}}$'
        return json.loads(self.process.wait_for(pattern, deadline_s)[0])


def start_paced(lab, rate, seconds, targets=(), host="client", patience="3s"):
    """Sends requests at a fixed rate, one connection each; finish_paced() waits for the result."""
    argv = [TRAFFIC, "-paced", rate, "-for", f"{seconds}s", "-patience", patience]
    argv += ["-web", ",".join(targets or _on_vips(WEB))]
    return lab.start(host, f"paced-{len(lab.processes)}", argv)


def finish_paced(process, deadline_s=DEADLINE_S):
    """Returns {"planned": …, "answered": …, "failures": {nature: …}, "p99_ms": …}."""
    process.wait(deadline_s)
    return json.loads(process.output().splitlines()[-1])


def paced(lab, rate, seconds, **options):
    return finish_paced(start_paced(lab, rate, seconds, **options))


class SlowClients:
    """Connections that never finish their request; a context manager."""

    def __init__(self, lab, count, sources=(), targets=(), period="10s"):
        self.lab, self.count = lab, count
        self.argv = [TRAFFIC, "-slow", count, "-period", period, "-patience", "10s"]
        self.argv += ["-web", ",".join(targets or _on_vips(WEB)[:1])]
        self.argv += ["-from", ",".join(sources)] if sources else []
        self.lines = 0

    def __enter__(self):
        name = f"slow-{len(self.lab.processes)}"
        self.process = self.lab.start("client", name, self.argv, commanded=True)
        self.count_open()
        return self

    def count_open(self):
        """Returns how many are open: at first, once all were tried."""
        if self.lines:
            self.process.write_line("held")
        self.lines += 1
        self.process.wait_for(rf"(?s)\A(?:[^\n]*\n){{{self.lines}}}")
        return json.loads(self.process.output().splitlines()[self.lines - 1])["held"]

    def __exit__(self, *_):
        self.process.kill()
