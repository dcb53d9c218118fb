# SPDX-License-Identifier: Apache-2.0
"""Servers that fork, change their root, pass sockets or use libuv, on the user-space stack,
unmodified.

`make test ONLY=programs` runs them."""

import contextlib
import os
import shutil
import signal
import sys

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, http_get
from tests.lab.run import PORT, Puppet, kernel_connections, start_run
from tests.lab.servers import wait_listening
from tests.wire.running import V4, V6, families, site, start

pytestmark = pytest.mark.programs

APACHE = """\
ServerRoot /usr/lib/apache2
ServerName test
PidFile {dir}/pid
ErrorLog /dev/stderr
Listen 8040
{second}
LoadModule mpm_prefork_module modules/mod_mpm_prefork.so
LoadModule authz_core_module modules/mod_authz_core.so
User www-data
Group www-data
DocumentRoot {dir}
StartServers 4
MinSpareServers 4
MaxSpareServers 4
MaxRequestWorkers 6
KeepAlive On
KeepAliveTimeout 600
"""
REQUEST = b"GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n"


def ask(one):
    """Sends one request on an open connection, and waits for the answer."""
    data = b""
    one.sendall(REQUEST)
    while not data.endswith(b"\r\n\r\nhello"):
        part = one.recv(4096)
        assert part, data
        data += part


@pytest.mark.parametrize(
    ("second", "workers"),
    (("", 1), ("", 2), ("Listen 8041", 1), ("Listen 8041", 2)),
    ids=("one-1", "one-2", "two-1", "two-2"),
)
def test_apache_prefork_serves_every_client(stack, second, workers):
    """A process serves one client at a time: with one Listen, and with two, where processes wait
    for accept() behind a lock. Processes beyond --workers use Linux's TCP; what waits in the stack
    of a busy process goes to another one."""
    folder = site(stack, "apache", APACHE.replace("{second}", second))
    (folder / "pid").unlink(missing_ok=True)  # from a killed one
    command = ["apache2", "-DFOREGROUND", "-f", folder / "conf"]
    process = start_run(stack, "apache", command, workers=workers)
    process.wait_for(f"is worker 0 of {workers}")
    with contextlib.ExitStack() as opened:
        for turn in range(4):
            port = 8041 if second and turn % 2 else 8040
            one = connect(stack["client"], (V4, V6)[turn // 2], port, timeout_s=60)
            ask(opened.enter_context(one))


HAPROXY = """\
global
    chroot {dir}/root
    user www-data
    group www-data
    nbthread 1
    stats socket {dir}/stats expose-fd listeners
defaults
    mode http
    timeout connect 20s
    timeout client 20s
    timeout server 20s
frontend front
    bind :::8042 v4v6
    http-request return status 200 content-type text/plain lf-string %pid
"""


@families
def test_haproxy_reloads_in_its_chroot(stack, family):
    """-W: the new process gets its listeners from the old one."""
    folder, address = site(stack, "haproxy", HAPROXY), (V4, V6)[family == 6]
    (folder / "root").mkdir(exist_ok=True)
    before = kernel_connections(stack["forwarder"])
    command = [shutil.which("haproxy"), "-W", "-f", folder / "conf"]
    process = start(stack, "haproxy", command, 8042)

    def pid():
        return int(http_get(stack["client"], address, 8042, timeout_s=60))

    old = pid()
    assert kernel_connections(stack["forwarder"]) == before
    os.kill(process.pid, signal.SIGUSR2)
    wait_until(lambda: pid() != old, "the new process serves")
    wait_until(lambda: process.output().count("is worker 0 of 1") == 2, "it has the queue")
    before = kernel_connections(stack["forwarder"])
    assert pid() != old
    assert kernel_connections(stack["forwarder"]) == before


GUNICORN = """
import os, socket
control = socket.create_connection(("{peer}", {port}))
def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]
"""


@pytest.mark.parametrize("workers", (1, 2))
def test_gunicorn_preload_serves_by_children(stack, workers):
    """Its parent opens a connection; its children serve."""
    folder, client = stack.dir / "gunicorn", stack["client"]
    folder.mkdir(exist_ok=True)
    (folder / "web.py").write_text(GUNICORN.format(peer=client.v4, port=PORT))
    puppet = Puppet(client, client.v4)
    try:
        command = [sys.executable, "-m", "gunicorn", "--preload", "-w", "2", "-b", "0.0.0.0:8043"]
        process = start_run(
            stack, "gunicorn", [*command, "--chdir", folder, "web:app"], workers=workers
        )
        wait_listening(stack["forwarder"].ns, 8043)
        process.wait_for(f"is worker 0 of {workers}")
        for _ in range(8):
            assert http_get(client, V4, 8043, timeout_s=60) == b"hello"
    finally:
        puppet.close()


UVLOOP = """
import asyncio, uvloop
async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\nhello")
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 8044)
    await server.serve_forever()
uvloop.run(main())
"""


def test_uvloop_serves_without_io_uring(stack):
    """libuv finds no io_uring, and closes by syscall()."""
    script = stack.dir / "uv_serve.py"
    script.write_text(UVLOOP)
    before = kernel_connections(stack["forwarder"])
    start(stack, "uvloop", [sys.executable, script], 8044)
    for _ in range(8):
        assert http_get(stack["client"], V4, 8044, timeout_s=60) == b"hello"
    assert kernel_connections(stack["forwarder"]) == before


NODE = """
const cluster = require("cluster"), http = require("http");
if (process.argv[2] == "cluster" && cluster.isPrimary) {
    cluster.fork(); cluster.fork();
} else {
    http.createServer((_, answer) => answer.end("hello")).listen(8045, "0.0.0.0");
}
"""


def test_node_serves(stack):
    script = stack.dir / "node.js"
    script.write_text(NODE)
    before = kernel_connections(stack["forwarder"])
    start(stack, "node", ["node", script], 8045)
    for _ in range(8):
        assert http_get(stack["client"], V4, 8045, timeout_s=60) == b"hello"
    assert kernel_connections(stack["forwarder"]) == before


def test_node_cluster_serves_passed_connections(stack):
    """Its first process accepts connections and passes them on; a relay serves them."""
    script = stack.dir / "node.js"
    script.write_text(NODE)
    before = kernel_connections(stack["forwarder"])
    start(stack, "cluster", ["node", script, "cluster"], 8045)
    for _ in range(4):
        assert http_get(stack["client"], V4, 8045, timeout_s=60) == b"hello"
    assert kernel_connections(stack["forwarder"]) == before
