# SPDX-License-Identifier: Apache-2.0
"""One program on the stack: its description, and the running program that checks use."""

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.hooks import stack_name
from tests.lab.netns import is_over
from tests.lab.process import run
from tests.lab.run import kernel_connections, start_run
from tests.lab.servers import listening
from tests.lab.steelyard import STEELYARD
from tests.lab.wait import DEADLINE_S, wait_until

BACKEND = 8080  # the web server of the client's host, on Linux's TCP; it answers with "client"

# Of an nginx, in its http block: the folders that it writes to.
TEMPORARY = """\
client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;"""


@dataclass(frozen=True)
class Program:
    """A row of the table, or another configuration of a row.

    `cells` has a check, a function of a Running, for each column; a missing column does not apply.
    Templates may name {dir}, {v4}, {v6}, {peer}, {backend}, {port}, {tls}, {cert}, {key} and
    {temporary}."""

    name: str
    port: int
    argv: tuple
    cells: dict
    notes: dict = field(
        default_factory=dict
    )  # column: "text of the cell: reason"; with or without a check
    row: str = ""  # of the table, if it is not the name
    files: dict = field(default_factory=dict)  # templates by name
    prepare: Callable | None = None  # of a Running, before it starts
    workers: int = 1
    starts: int | None = None  # how many of these start with it; None: all
    options: tuple = ()  # of `steelyard run`
    env: dict = field(default_factory=dict)
    families: tuple = (4, 6)
    sample: bool = False  # part of every test run, not only of ONLY=programs

    @property
    def tls(self):
        return self.port + 1

    @property
    def id(self):
        return self.name.lower().replace(" ", "-").replace(",", "")


class Running:
    """A program that serves in the lab, on the stack or (stack=False) on Linux's TCP."""

    def __init__(self, lab, program, certificate, stack=True):
        self.lab, self.program, self.stack = lab, program, stack
        self.host, self.client = lab["forwarder"], lab["client"]
        self.dir = lab.dir / program.id
        self.cert, self.key = certificate
        self.name = stack_name(program.id)
        self.patience_s = DEADLINE_S
        self.process = None
        self.helpers = []

    # ---- start and end ---------------------------------------------------------------------------

    def text(self, template):
        words = {
            "temporary": TEMPORARY,
            "dir": self.dir,
            "v4": self.host.v4,
            "v6": self.host.v6,
            "peer": self.client.v4,
            "backend": BACKEND,
            "port": self.program.port,
            "tls": self.program.tls,
            "cert": self.cert,
            "key": self.key,
        }
        text = str(template)
        for word, value in words.items():
            text = text.replace("{" + word + "}", str(value))
        return text

    def start(self):
        program = self.program
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir()
        self.dir.chmod(0o777)  # programs run as many users
        for name, template in program.files.items():
            (self.dir / name).write_text(self.text(template))
        if program.prepare:
            program.prepare(self)
        argv = [self.text(word) for word in program.argv]
        if program.env:
            values = [f"{key}={self.text(value)}" for key, value in program.env.items()]
            argv = ["env", *values, *argv]
        if not self.stack:
            self.process = self.lab.start("forwarder", f"linux-{program.id}", argv)
        else:
            options = ("--name", self.name, *program.options)
            workers = program.workers
            self.process = start_run(self.lab, program.id, argv, *options, workers=workers)
        self.wait(
            lambda: listening(self.host.ns, program.port) or not self.process.alive(), "it listens"
        )
        starts = program.workers if program.starts is None else program.starts
        for worker in range(starts if self.stack else 0):
            self.process.wait_for(rf"is worker {worker} of {program.workers}", self.patience_s)

    def close(self):
        if self.process:
            self.process.kill()
        self.host.ns.kill_all()
        for helper in self.helpers:
            helper.kill()

    def start_helper(self, name, argv):
        """A program on the client's host, on Linux's TCP."""
        process = self.lab.start("client", f"{self.program.id}-{name}", argv)
        self.helpers.append(process)
        return process

    # ---- clients ---------------------------------------------------------------------------------

    @property
    def addresses(self):
        return [self.host.address(family) for family in self.program.families]

    def at(self, address, port=None):
        """ADDRESS:PORT, as URLs have it."""
        return f"{f'[{address}]' if ':' in address else address}:{port or self.program.port}"

    def ask(self, argv, **options):
        """Runs a client on the client's host. Returns its standard output."""
        return run(self.client.ns.command(argv), **options)

    def curl(self, url, *words, **options):
        head = ["curl", "-sS", "--fail", "--max-time", 60, "--cacert", self.cert, "--noproxy", "*"]
        return self.ask([*head, *words, url], **options)

    # ---- facts -----------------------------------------------------------------------------------

    def counters(self):
        """Returns the sums over all stacks of the program."""
        argv = [STEELYARD, "stack", "counters", "--stack", self.name, "-o", "json"]
        return Counter(json.loads(run(argv))["counts"])

    @contextlib.contextmanager
    def over_stack(self, accepted=1, opened=0, linux=0):
        """Checks that the block's connections belong to the stack, and all but `linux` not to
        Linux: the stack accepted at least so many. `opened` have been opened since the start,
        because programs keep them."""
        if not self.stack:
            yield
            return
        before, counts = kernel_connections(self.host), self.counters()
        yield
        assert kernel_connections(self.host) == before + linux, self.process.output()
        now = self.counters()
        assert now["accepted"] - counts["accepted"] >= accepted, (now, counts)
        assert now["opened"] >= opened, now

    def pids(self):
        """The program's processes."""
        pids = set(self.host.ns.pids()) - {self.process.pid}
        return {pid for pid in pids if not is_over(pid)}

    def status(self, pid, name):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(name + ":"):
                    return line.split()[1]
        return "0"

    def relays(self):
        """Returns connections of children, which the parent's stack has."""
        with self.host.ns.entered():
            text = Path("/proc/thread-self/net/unix").read_text()
        return [line for line in text.splitlines() if "@sy/" in line and line.count("/") > 2]

    def wait(self, condition, what):
        return wait_until(condition, f"{self.program.name}: {what}", self.patience_s)
