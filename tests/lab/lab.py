# SPDX-License-Identifier: Apache-2.0
"""One lab: a network, its programs, and a folder; all are removed at the end."""

import atexit
import contextlib
import itertools
import os
import re
import resource
import signal
import sys
from pathlib import Path

from tests.lab import pages, reap
from tests.lab.capture import Capture
from tests.lab.process import CommandFailed, Process, adopt_orphans
from tests.lab.topology import Network

ROOT = Path(__file__).resolve().parents[2]
# A sanitizer's report; and the allowed exit statuses of Steelyard's programs: success, or a signal
# that a test sent.
SANITIZER_REPORT = re.compile(r"^.*(?:ERROR: \w+Sanitizer|runtime error:).*$", re.M)
ENDINGS = (None, 0, -signal.SIGTERM, -signal.SIGKILL)
_count = itertools.count()
_open = set()


def _close_all():
    for lab in list(_open):
        lab.close()


def _on_signal(number, _frame):
    # Ends this process like the default action, but runs finally blocks and atexit.
    sys.exit(128 + number)


def catch_signals():
    """Turns the signals that end a run into an orderly exit. SIGINT already does that."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)


def allow_many_files(wanted=16384):
    """Raises the file limit: servers and clients have thousands of connections, more than some
    shells allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


class Lab:
    """A context manager. Options are those of the topology.

    outlive: everything keeps running at the end; `make demo-clean` removes it."""

    def __init__(self, outlive=False, topology=Network, **network):
        if os.geteuid():
            raise PermissionError("the lab makes network namespaces: run it as root")
        self.id = f"sy-{os.getpid()}-{next(_count)}"
        self.dir = reap.LABS / self.id
        self.outlive = outlive
        self.network = topology(self.id, **network)
        self.processes = []
        self.captures = []

    def __enter__(self):
        reap.reap_dead()
        adopt_orphans()
        allow_many_files()
        reap.claim(self.dir, self.outlive)
        _open.add(self)
        try:
            self.network.build()
        except BaseException:
            self.outlive = False
            self.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        if kind:
            self.outlive = False
        try:
            if not kind and not self.outlive:
                # Leaks are reported only at a clean exit.
                for process in reversed(self.processes):
                    if process.name.startswith("steelyard"):
                        process.stop()
                self.check_programs()
        finally:
            self.close()

    def __getitem__(self, name):
        return self.network[name]

    def close(self):
        """Stops every program and removes network and folder. A second call does nothing."""
        if self not in _open:
            return
        _open.discard(self)
        self.close_captures()
        if self.outlive:
            return
        for process in reversed(self.processes):
            with contextlib.suppress(Exception):
                process.kill()
        reap.clean_hosts(self.id)
        self.network.destroy()
        reap.remove_shared_files(self.id)
        pages.release(self.id)
        reap.drop(self.dir)

    def start(self, host, name, argv, env=None, commanded=False):
        """Starts a program on a host; its log is <lab folder>/<name>.log."""
        log = self.dir / f"{name}.log"
        process = Process(name, self[host].ns.command(argv), log, env, self.outlive, commanded)
        self.processes.append(process)
        return process

    def succeed(self, process, pid):
        """Registers process `pid`, started by one of the lab's processes, as that process's
        successor."""
        successor = process.successor(pid)
        self.processes.append(successor)
        return successor

    def check_programs(self):
        """Fails if Steelyard's forwarder or agent crashed, or a sanitizer reported an error in
        them."""
        for process in self.processes:
            if not process.name.startswith("steelyard"):
                continue
            if SANITIZER_REPORT.search(process.output()) or process.child.poll() not in ENDINGS:
                raise CommandFailed(process.describe())

    def capture(self, host, interface="eth0"):
        """Records the frames of a host's interface from now on."""
        capture = Capture(self[host].ns, interface)
        self.captures.append(capture)
        return capture

    def close_captures(self):
        """Ends all captures: an unread capture costs memory and time."""
        while self.captures:
            self.captures.pop().close()

    def servers(self):
        return self.network.server_hosts()

    def counters(self, part=""):
        """Returns protocol counters of every host: {"client": {"TcpInCsumErrors": 0, …}, …}; see
        Namespace.counters()."""
        return {
            name: host.ns.counters(part)
            for name, host in self.network.hosts.items()
            if name != "switch"
        }

    def checksum_errors(self):
        """Returns counts of checksums that failed verification: {"client TcpInCsumErrors": 3}."""
        return {
            f"{host} {name}": count
            for host, counters in self.counters("Csum").items()
            for name, count in counters.items()
            if count
        }


atexit.register(_close_all)
