# SPDX-License-Identifier: Apache-2.0
"""A network function for the benchmark of shares: reads blocks, works on each, and confirms it.

    capability_server.py server ADDRESS PORT GROUP BLOCK CPU_NS

It takes CPU_NS of processor time for each block of BLOCK bytes, and answers one byte; for a request
of HTTP as well, which it then answers. Under the
folder GROUP, which may hold no more processor time than its quota, it reports the quota's use by
the conventions of ORCA on PORT + 1000.

    capability_server.py load GROUP SHARE QUOTA

Takes SHARE of the QUOTA, in cores, of the group, which others in it then lack.

Both enter the group once they are ready: to start takes more than a group has.
"""

import http.server
import json
import selectors
import socket
import sys
import threading
import time
from pathlib import Path

PERIOD_S = 0.04  # of a group's quota, as capability_bed.py sets it


def enter(group):
    for path in (group, f"/sys/fs/cgroup/cpuacct/{Path(group).name}"):
        Path(path, "cgroup.procs").write_text("0")


def spin(ns):
    """Takes so much of this thread's processor time."""
    end = time.thread_time_ns() + ns
    while time.thread_time_ns() < end:
        pass


class Usage:
    """The use of a group's quota since the last question, or over 0.9 s where that is longer."""

    def __init__(self, group):
        self.group = Path(group)
        self.usage = Path("/sys/fs/cgroup/cpuacct", self.group.name, "cpuacct.usage")
        self.last = self.take()
        self.share = 0.0

    def take(self):
        return time.monotonic_ns(), int(self.usage.read_text())

    def quota(self):
        return int((self.group / "cpu.cfs_quota_us").read_text()) / 1e6 / PERIOD_S

    def now(self):
        at, used = self.take()
        if at - self.last[0] > 900_000_000:
            self.share = (used - self.last[1]) / (at - self.last[0]) / self.quota()
            self.last = at, used
        return min(1.0, self.share)


def report(address, port, usage):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"cpu_utilization": usage.now()}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer((address, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def serve(address, port, group, block, cpu_ns):
    report(address, port + 1000, Usage(group))
    chooser = selectors.DefaultSelector()
    listener = socket.create_server((address, port), backlog=256)
    listener.setblocking(False)
    chooser.register(listener, selectors.EVENT_READ)
    have = {}
    enter(group)
    print("ready", flush=True)
    while True:
        for key, _ in chooser.select():
            if key.fileobj is listener:
                one, _ = listener.accept()
                one.setblocking(False)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                chooser.register(one, selectors.EVENT_READ)
                have[one] = 0
                continue
            one = key.fileobj
            try:
                data = one.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                chooser.unregister(one)
                one.close()
                del have[one]
                continue
            if data.startswith(b"GET "):  # a health check; blocks are zeros
                spin(cpu_ns)
                one.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                continue
            have[one] += len(data)
            while have[one] >= block:
                have[one] -= block
                spin(cpu_ns)
                try:
                    one.send(b"+")
                except OSError:
                    break


def load(group, share, quota):
    """Taken in small pieces, so that the quota is not used up at once."""
    enter(group)
    begin, used = time.monotonic_ns(), time.thread_time_ns()
    while True:
        had = time.thread_time_ns() - used
        lacks = share * quota * (time.monotonic_ns() - begin) - had
        if lacks > 50_000:
            spin(int(min(lacks, 500_000)))
        time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
    serve(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
