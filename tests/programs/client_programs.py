# SPDX-License-Identifier: Apache-2.0
"""Clients on the stack, whose servers on the client's host are on Linux's TCP."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.lab.process import run
from tests.lab.run import kernel_connections, run_command
from tests.lab.servers import wait_listening
from tests.programs.program import BACKEND, TEMPORARY
from tests.programs.stores import make_cluster, postgres_binary, user

NGINX = """\
daemon off;
master_process off;
user root;
pid {dir}/pid;
error_log {dir}/log;
events { worker_connections 1024; }
http {
    access_log off;
    {temporary}
    server {
        listen 7501 ssl http2;
        listen [::]:7501 ssl http2;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        location / { return 200 "hello"; }
    }
}
"""
SSHD = """\
Port 7504
HostKey {dir}/host
AuthorizedKeysFile {dir}/key.pub
PidFile {dir}/sshd-pid
StrictModes no
UsePAM no
PermitRootLogin yes
"""


@dataclass(frozen=True)
class Client:
    """A row: command lines by column, and their expected output. {peer} is the server's address,
    {at} the same in URL form."""

    name: str
    cells: dict
    stdin: str = ""


SSH = "-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"

CLIENTS = (
    Client(
        "curl",
        {
            "opens": (f"curl -sS --noproxy * http://{{at}}:{BACKEND}/", "client"),
            "TLS": ("curl -sS --noproxy * --http1.1 --cacert {cert} https://{at}:7501/", "hello"),
        },
    ),
    Client(
        "wget",
        {
            "opens": (f"wget -q --no-proxy -O - http://{{at}}:{BACKEND}/", "client"),
            "TLS": ("wget -q --no-proxy -O - --ca-certificate {cert} https://{at}:7501/", "hello"),
        },
    ),
    Client(
        "ab",
        {
            "opens": (f"ab -q -n 100 -c 8 http://{{at}}:{BACKEND}/", "Failed requests:        0"),
            "TLS": ("ab -q -n 50 -c 8 https://{at}:7501/", "Failed requests:        0"),
        },
    ),
    Client(
        "h2load",
        {
            "opens": (
                f"h2load --h1 -t 2 -n 100 -c 8 http://{{at}}:{BACKEND}/",
                "100 succeeded, 0 failed",
            ),
            "TLS": ("h2load -t 2 -n 100 -c 8 https://{at}:7501/", "100 succeeded, 0 failed"),
        },
    ),
    Client(
        "openssl s_client",
        {
            "TLS": (
                "openssl s_client -quiet -CAfile {cert} -verify_return_error -connect {at}:7501",
                "hello",
            )
        },
        stdin="GET / HTTP/1.0\r\n\r\n",
    ),
    Client(
        "redis-cli",
        {
            "opens": ("redis-cli -h {peer} -p 7502 echo hello", "hello"),
            "TLS": ("redis-cli -h {peer} -p 7503 --tls --cacert {cert} echo hello", "hello"),
        },
    ),
    Client(
        "redis-benchmark",
        {"opens": ("redis-benchmark -h {peer} -p 7502 -q -n 500 -c 8 -t get", "GET:")},
    ),
    Client(
        "ssh", {"opens": (f"ssh {SSH} -i {{dir}}/key -p 7504 root@{{peer}} echo hello", "hello")}
    ),
    Client(
        "psql",
        {"opens": ("psql -h {peer} -p 7505 -U postgres -Atc select(7*191)", "1337")},
    ),
    Client(
        "pgbench",
        {
            "opens": (
                "pgbench -h {peer} -p 7505 -U postgres -n -c 4 -j 2 -t 10 -f {dir}/script postgres",
                "number of failed transactions: 0",
            )
        },
    ),
)


class Servers:
    """The servers that clients connect to."""

    def __init__(self, lab, certificate):
        self.lab, (self.cert, self.key) = lab, certificate
        self.dir = lab.dir / "clients"
        self.dir.mkdir()
        self.dir.chmod(0o777)
        self.processes = []
        self._start("nginx", ["nginx", "-p", self.dir, "-c", self._write("nginx", NGINX)], 7501)
        self._start("redis", self._redis(), 7502)
        for name in ("host", "key"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir / name])
        Path("/run/sshd").mkdir(exist_ok=True)
        self._start("sshd", ["/usr/sbin/sshd", "-D", "-f", self._write("sshd", SSHD)], 7504)
        self._start("postgres", self._postgres(), 7505)

    def _start(self, name, argv, port):
        self.processes.append(self.lab.start("client", f"client-{name}", argv))
        wait_listening(self.lab["client"].ns, port)

    def _write(self, name, text):
        path = self.dir / f"{name}.conf"
        path.write_text(self.text(text))
        return path

    def _redis(self):
        argv = ["redis-server", "--port", 7502, "--tls-port", 7503, "--tls-auth-clients", "no"]
        argv += ["--tls-cert-file", self.cert, "--tls-key-file", self.key]
        argv += ["--tls-ca-cert-file", self.cert, "--protected-mode", "no", "--save", ""]
        return [*argv, "--dir", self.dir]

    def _postgres(self):
        make_cluster(self.dir / "data")
        (self.dir / "script").write_text("select 1;\n")
        options = ["-c", "listen_addresses=*", "-c", f"unix_socket_directories={self.dir}"]
        argv = [*user("postgres"), postgres_binary() / "postgres", "-D", self.dir / "data"]
        return [*argv, "-p", 7505, *options, "-c", "fsync=off"]

    def text(self, template, address=""):
        words = {"temporary": TEMPORARY, "dir": self.dir, "cert": self.cert, "key": self.key}
        words["peer"] = address
        words["at"] = f"[{address}]" if ":" in address else address
        for word, value in words.items():
            template = template.replace("{" + word + "}", str(value))
        return template

    def check(self, client, column):
        """Over each family: the answer is right, and no connection is Linux's."""
        host = self.lab["forwarder"]
        line, wanted = client.cells[column]
        for family in (4, 6):
            argv = self.text(line, self.lab["client"].address(family)).split()
            before = kernel_connections(host)
            said = run(host.ns.command(run_command(argv)), stdin=client.stdin)
            assert wanted in said, said
            assert kernel_connections(host) == before

    def close(self):
        for process in self.processes:
            process.stop()
        shutil.rmtree(self.dir, ignore_errors=True)
