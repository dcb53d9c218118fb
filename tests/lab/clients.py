# SPDX-License-Identifier: Apache-2.0
"""Clients: single requests, and load by wrk."""

import contextlib
import json
import random
import socket
import struct
from collections import Counter
from dataclasses import dataclass

from tests.lab.process import CommandFailed
from tests.lab.wait import DEADLINE_S

# wrk ends after its duration or on SIGINT; this script sends it SIGINT after a number of answers,
# and prints the results as one line of JSON.
WRK_SCRIPT = """\
local ffi = require("ffi")
ffi.cdef("int getpid(void); int kill(int, int);")
local threads = {{}}
function setup(thread) table.insert(threads, thread) end
function init(args) answered = 0; served = {{}} end
request = function() return wrk.format("GET", "{path}", {{ {headers} }}) end
{pause}
function response(status, headers, body)
   local who = status == 200 and body:gsub("%s+$", "") or "status " .. status
   served[who] = (served[who] or 0) + 1
   answered = answered + 1
   if answered == {requests} then
      wrk.thread:stop()
      ffi.C.kill(ffi.C.getpid(), 2)
   end
end
function done(summary, latency, requests)
   local total = {{}}
   for _, thread in ipairs(threads) do
      for who, n in pairs(thread:get("served")) do total[who] = (total[who] or 0) + n end
   end
   local e, parts = summary.errors, {{}}
   for who, n in pairs(total) do table.insert(parts, string.format("%q: %d", who, n)) end
   io.write(string.format('\\nJSON {{"served": {{%s}}, "connect": %d, "read": %d, "write": %d, '
      .. '"timeout": %d, "duration_us": %d}}\\n', table.concat(parts, ", "),
      e.connect, e.read, e.write, e.timeout, summary.duration))
end
"""


@dataclass
class Load:
    """The results of a load generator."""

    served: Counter  # answers by the server's name; "status N" if not 200
    errors: dict  # by kind
    seconds: float

    @property
    def requests(self):
        return sum(self.served.values())

    @property
    def failed(self):
        bad = sum(n for who, n in self.served.items() if who.startswith("status "))
        return bad + sum(self.errors.values())


def start_wrk(
    lab,
    url,
    requests,
    connections=16,
    keep_alive=True,
    host="client",
    seconds=300,
    timeout_s=60,
    pause_ms=0,
):
    """Starts wrk with one thread, for a number of requests (0: unlimited) or seconds. Answers after
    the timeout are errors. A connection pauses before each request: without that, load beside long
    events costs a core. finish_wrk() waits for its result."""
    script = lab.dir / f"wrk-{len(lab.processes)}.lua"
    headers = "" if keep_alive else '["Connection"] = "close"'
    pause = f"function delay() return {pause_ms} end" if pause_ms else ""
    text = WRK_SCRIPT.format(path="/", headers=headers, requests=requests, pause=pause)
    script.write_text(text)
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", f"{timeout_s}s"]
    argv += ["-s", script, url]
    return lab.start(host, script.stem, argv)


def finish_wrk(process, deadline_s=DEADLINE_S):
    if process.wait(deadline_s):
        raise CommandFailed(process.describe())
    lines = [line for line in process.output().splitlines() if line.startswith("JSON ")]
    if not lines:
        raise CommandFailed(process.describe())
    value = json.loads(lines[0].removeprefix("JSON "))
    errors = {kind: value[kind] for kind in ("connect", "read", "write", "timeout")}
    return Load(Counter(value["served"]), errors, value["duration_us"] / 1e6)


def wrk(lab, url, requests, **options):
    return finish_wrk(start_wrk(lab, url, requests, **options))


def connect(host, address, port, timeout_s=60, source_port=0):
    """Returns a TCP connection of a host."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = host.ns.socket(family)
    one.settimeout(timeout_s)
    # Connections to different addresses share ports: a later one may bind another's port.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if source_port:
        one.bind(("", source_port))
    try:
        one.connect((address, port))
    except BaseException:
        one.close()
        raise
    return one


def abort(one):
    """Closes a connection by one reset, so that no retransmission disturbs later tests."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def receive_exactly(one, size):
    data = b""
    while len(data) < size:
        part = one.recv(size - len(data))
        if not part:
            raise ConnectionError(f"closed after {len(data)} of {size} bytes")
        data += part
    return data


def http_get(host, address, port, path="/", **options):
    """Returns the body of one answer over a new connection."""
    with connect(host, address, port, **options) as one:
        name = f"[{address}]" if ":" in address else address
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := one.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"unexpected answer: {head[:200]!r}")
    return body


class HttpConnection:
    """A keep-alive connection; get() sends one request and returns the name of the answering
    server."""

    def __init__(self, host, address, port, **options):
        self.socket = connect(host, address, port, **options)
        self.buffer = b""
        self.server = None

    def get(self, path="/"):
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n".encode())
        return self.receive()

    def receive(self):
        """Returns the name from the answer to a request that was sent."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields[b"Content-Length"])
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        self.server = body.decode().strip()
        return self.server

    def _more(self):
        part = self.socket.recv(65536)
        if not part:
            raise ConnectionError("closed by the server")
        self.buffer += part

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def dns_txt(host, address, port, name="who.lab", timeout_s=60, one=None, resend_s=None):
    """Returns the first string of a TXT record, requested over UDP, on socket `one` if given. With
    resend_s, asks again after this time, as resolvers do."""
    query_id = random.getrandbits(16)
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    # The root name, type OPT, answers of up to 4096 bytes, no flags.
    edns = struct.pack("!BHHIH", 0, 41, 4096, 0, 0)
    query = struct.pack("!6H", query_id, 0x0100, 1, 0, 0, 1) + labels + b"\0\0\x10\0\x01" + edns
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    own = one or host.ns.socket(family, socket.SOCK_DGRAM)
    try:
        own.settimeout(resend_s or timeout_s)
        for left in reversed(range(int(timeout_s / (resend_s or timeout_s)))):
            own.sendto(query, (address, port))
            with contextlib.suppress(*[TimeoutError] * (left > 0)):
                answer, peer = own.recvfrom(65535)
                break
        while one and peer[0] == address and answer[:2] != query[:2]:  # answers an earlier query
            answer, peer = own.recvfrom(65535)
    finally:
        if not one:
            own.close()
    if peer[0] != address or answer[:2] != query[:2]:
        raise ConnectionError(f"an answer from {peer[0]} to a question for {address}")
    at = 12 + len(labels) + 1 + 4 + 2 + 10
    return answer[at + 1 : at + 1 + answer[at]].decode()
