# SPDX-License-Identifier: Apache-2.0
"""Debian programs that pass each connection to a child, on the user-space stack: sshd, socat,
PostgreSQL (docs/design/0062-relays.md)."""

import os
import random
import shutil
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, receive_exactly
from tests.lab.hooks import stack_name
from tests.lab.process import run
from tests.lab.run import kernel_connections, start_run
from tests.lab.stacks import connections
from tests.wire.running import families

BULK = random.Random(2).randbytes(2_000_000)


def serve(lab, program, argv, *options):
    """Starts a program; its listener belongs to the stack."""
    name = stack_name(program)
    process = start_run(lab, program, argv, "--name", name, *options)
    process.wait_for("is worker 0")
    wait_until(lambda: connections(name, "listen"), "the stack listens")
    return process


# ---- sshd ----------------------------------------------------------------------------------------

SSHD = """\
Port 2222
HostKey {dir}/host
AuthorizedKeysFile {dir}/key.pub
PidFile {dir}/pid
StrictModes no
UsePAM no
PermitRootLogin yes
MaxStartups 100
Subsystem sftp internal-sftp
"""


class Sshd:
    def __init__(self, lab):
        self.client = lab["client"]
        self.dir = lab.dir / "sshd"
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir()
        for name in ("host", "key"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir / name])
        (self.dir / "conf").write_text(SSHD.format(dir=self.dir))
        Path("/run/sshd").mkdir(exist_ok=True)  # its children's root
        self.process = serve(lab, "sshd", ["/usr/sbin/sshd", "-D", "-e", "-f", self.dir / "conf"])

    def command(self, address, *words, tool="ssh", port="-p"):
        options = ["-F", "none", "-i", self.dir / "key", port, 2222]
        for option in (
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
        ):
            options += ["-o", option]
        argv = [tool, *options, *([f"root@{address}"] if tool == "ssh" else []), *words]
        return self.client.ns.command([*map(str, argv)])

    def ask(self, address, *words, send=b"", **options):
        command = self.command(address, *words, **options)
        done = subprocess.run(command, input=send, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, (done.stderr, self.process.output())
        return done.stdout


@pytest.fixture
def sshd(stack):
    return Sshd(stack)


@families
def test_sshd_runs_commands_and_logs_the_client(stack, sshd, family):
    """It executes itself for each connection and separates its privileges."""
    host, client = stack["forwarder"], stack["client"]
    before = kernel_connections(host)
    address = host.address(family)
    said = sshd.ask(address, "echo $SSH_CONNECTION").decode().split()
    assert (said[0], said[2], said[3]) == (client.address(family), address, "2222")
    log = rf"Accepted publickey for root from {client.address(family)} port {said[1]} "
    sshd.process.wait_for(log)
    assert sshd.ask(address, "cat", send=BULK) == BULK
    assert b"is a tty" in sshd.ask(address, "-tt", "test -t 0 && echo is a tty; exit 0")
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda i: sshd.ask(address, "echo hello"), range(8))) == {b"hello\n"}
    (sshd.dir / "data").write_bytes(BULK)
    bracket = f"[{address}]" if family == 6 else address
    words = [sshd.dir / "data", f"root@{bracket}:{sshd.dir}/copy"]
    sshd.ask(address, *words, tool="scp", port="-P")
    assert (sshd.dir / "copy").read_bytes() == BULK
    assert kernel_connections(host) == before


def test_sshd_sessions_survive_its_exit(stack, sshd):
    """A killed session ends its client. Others continue when sshd exits."""
    host = stack["forwarder"]
    shell = "echo $PPID; cat"
    clients = [
        subprocess.Popen(
            sshd.command(host.v4, shell), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    killed, other = clients
    os.kill(int(killed.stdout.readline()), signal.SIGKILL)
    assert killed.wait(60) == 255
    other.stdout.readline()
    os.kill(int((sshd.dir / "pid").read_text()), signal.SIGTERM)
    sshd.process.wait_for("Received signal 15")
    for text in (b"one\n", b"two\n"):
        other.stdin.write(text)
        other.stdin.flush()
        assert other.stdout.readline() == text
    other.stdin.close()
    assert other.wait(60) == 0
    sshd.process.wait()


def test_sshd_sessions_survive_its_restart(stack, sshd):
    """On SIGHUP it executes itself, in the same process."""
    host = stack["forwarder"]
    client = subprocess.Popen(
        sshd.command(host.v4, "echo here; cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdout.readline() == b"here\n"
    pid = (sshd.dir / "pid").read_text()
    os.kill(int(pid), signal.SIGHUP)
    sshd.process.wait_for(r"(?s)SIGHUP.*Server listening on 0\.0\.0\.0")
    assert sshd.ask(host.v4, "echo hello") == b"hello\n"
    client.stdin.write(BULK)
    client.stdin.close()
    assert client.stdout.read() == BULK
    assert client.wait(60) == 0
    assert (sshd.dir / "pid").read_text() == pid


# ---- socat ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ("EXEC:cat", "EXEC:cat,nofork", "SYSTEM:cat"))
def test_socat_serves_by_a_child(stack, how):
    """Each child executes another program: by a pipe, or with the connection itself."""
    host = stack["forwarder"]
    before = kernel_connections(host)
    serve(stack, "socat", ["socat", "TCP-LISTEN:8020,fork,reuseaddr", how])
    for _ in range(3):
        with connect(stack["client"], host.v4, 8020, timeout_s=60) as one:
            one.sendall(b"hello")
            assert receive_exactly(one, 5) == b"hello"
            one.shutdown(socket.SHUT_WR)
            assert one.recv(1) == b""
    assert kernel_connections(host) == before


# ---- PostgreSQL ----------------------------------------------------------------------------------


def postgres(lab):
    """Starts a cluster of its own, with a server on the stack. Returns its process."""
    (binary,) = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
    folder = lab.dir / "postgres"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lab.dir.chmod(0o755)
    shutil.chown(folder, "postgres", "postgres")
    user = ["runuser", "-u", "postgres", "--"]
    run([*user, binary / "initdb", "-D", folder, "-A", "trust", "-N"])
    (folder / "pg_hba.conf").write_text("host all all all trust\n")
    options = [f"listen_addresses={lab['forwarder'].v4}", f"unix_socket_directories={folder}"]
    options += ["log_connections=on", "fsync=off"]
    argv = [*user, binary / "postgres", "-D", folder]
    return serve(lab, "postgres", argv + [word for one in options for word in ("-c", one)])


@pytest.mark.programs
def test_postgresql_serves_by_children(stack):
    """One child per connection: many at once, one per transaction, large answers, a terminated one,
    and a statement timeout."""
    host, client = stack["forwarder"], stack["client"]
    before = kernel_connections(host)
    process = postgres(stack)
    at = ["-h", host.v4, "-U", "postgres"]

    def ask(statement):
        return client.ns.run(["psql", *at, "-Atc", statement]).strip()

    assert ask("select inet_client_addr(), inet_server_port()") == f"{client.v4}|5432"
    process.wait_for(rf"connection received: host={client.v4} port=\d+")
    client.ns.run(["pgbench", *at, "-i", "-q", "postgres"])
    for options in (["-c", 20, "-t", 50], ["-c", 4, "-t", 5, "-C"]):
        words = [str(word) for word in options]
        assert "failed transactions: 0" in client.ns.run(["pgbench", *at, "-S", *words, "postgres"])
    assert len(ask("select repeat('x', 20000000)")) == 20_000_000
    end = "select pg_terminate_backend(pg_backend_pid())"
    done = run(client.ns.command(["psql", *at, "-Atc", end]), check=False)
    assert "terminating connection" in done.stderr
    limited = "set statement_timeout = 1; select pg_sleep(100)"
    done = run(client.ns.command(["psql", *at, "-Atc", limited]), check=False)
    assert "statement timeout" in done.stderr
    assert kernel_connections(host) == before
