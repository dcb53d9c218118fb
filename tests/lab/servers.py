# SPDX-License-Identifier: Apache-2.0
"""Real servers for the hosts of a lab. Each answers with its host's name."""

import contextlib
import os
import socket
import struct
import threading

from tests.lab.readiness import Reader
from tests.lab.wait import wait_until

TCP_LISTEN = 10  # a state
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE = 0x301, 2, 3  # with NLM_F_REQUEST

NGINX_CONFIG = """\
daemon off;
master_process off;
user root;
pid {dir}/pid;
error_log {dir}/error.log;
events {{ worker_connections 8192; }}
http {{
    log_format peer "$remote_addr $remote_port $server_addr $request_uri";
    access_log {dir}/access.log peer;
    keepalive_requests 10000000;
    keepalive_timeout 600s;
    send_timeout 600s;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    server {{
        listen 0.0.0.0:{port} backlog=8192;
        listen [::]:{port} backlog=8192;
        default_type text/plain;
        location / {{ return 200 "{name}\\n"; }}
        location = /healthz {{ return 200 "ok\\n"; }}
        location /files/ {{ alias {dir}/files/; add_header X-Served-By {name}; }}
    }}
}}
"""
PROXIED_CONFIG = """\
    server {{
        listen 0.0.0.0:{proxied} proxy_protocol backlog=8192;
        listen [::]:{proxied} proxy_protocol backlog=8192;
        default_type text/plain;
        location / {{ return 200 "{name}\\n"; }}
        location /files/ {{ alias {dir}/files/; add_header X-Served-By {name}; }}
    }}
}}
"""


def _diagnose(family, protocol, states):
    """Yields the local ports of this namespace's sockets in these states; sock_diag(7). A read of
    /proc/net/tcp takes 5 ms: it walks all connections of the host."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as one:
        request = struct.pack("=BBBBI48x", family, protocol, 0, 0, states)
        head = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, 0, 0)
        one.send(head + request)
        while True:
            answer = one.recv(1 << 16)
            while answer:
                length, kind = struct.unpack_from("=IH", answer)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", answer, 16)[0]
                    raise OSError(code, f"sock_diag: {os.strerror(code)}")
                yield struct.unpack_from("!H", answer, 20)[0]
                answer = answer[(length + 3) & ~3 :]


def listening(ns, port, protocol="tcp"):
    """Returns whether a socket in the namespace accepts connections or datagrams on a port."""
    number, states = {
        "tcp": (socket.IPPROTO_TCP, 1 << TCP_LISTEN),
        "udp": (socket.IPPROTO_UDP, ~0 & 0xFFFFFFFF),
    }[protocol]
    with ns.entered():
        families = (socket.AF_INET, socket.AF_INET6)
        return any(port in _diagnose(family, number, states) for family in families)


def wait_listening(ns, port, protocol="tcp"):
    wait_until(lambda: listening(ns, port, protocol), f"{ns.name} listens on {protocol} {port}")


def start_nginx(lab, host, port=8080, proxied=0):
    """Starts a web server: its host's name, /healthz, and files of tests under /files/. proxied:
    another port, whose clients begin with a header of the PROXY protocol."""
    folder = lab.dir / f"nginx-{host}"
    (folder / "files").mkdir(parents=True, exist_ok=True)
    text = NGINX_CONFIG
    if proxied:
        text = text.rstrip().removesuffix("}}") + PROXIED_CONFIG
    text = text.format(dir=folder, port=port, name=host, proxied=proxied)
    (folder / "nginx.conf").write_text(text)
    process = lab.start(host, f"nginx-{host}", ["nginx", "-p", folder, "-c", folder / "nginx.conf"])
    wait_listening(lab[host].ns, port)
    return process


def nginx_log(lab, host):
    """Returns requests that a web server has answered: [(peer address, peer port, own address,
    path)]."""
    lines = (lab.dir / f"nginx-{host}" / "access.log").read_text().splitlines()
    return [tuple(line.split()) for line in lines]


def start_dns(lab, host, port=5353):
    """Starts a name server; the TXT record of who.lab contains its host's name."""
    process = lab.start(
        host,
        f"dns-{host}",
        [
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--user=root",
            "--pid-file=",
            f"--port={port}",
            f"--txt-record=who.lab,{host}",
            "--txt-record=long.lab," + ",".join([host * 60] * 10),
            "--log-facility=-",
            "--edns-packet-max=4096",
        ],
    )
    wait_listening(lab[host].ns, port, "udp")
    return process


class EchoServer:
    """A TCP server in this process that records its peers, and echoes.

    `peers` are the remote ends of its connections, oldest first."""

    def __init__(self, host, port, family=4, address=None):
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        self.listener = host.ns.socket(kind)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address or host.address(family), port))
        self.listener.listen(128)
        self.peers = []
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, peer = self.listener.accept()
            except OSError:
                return
            self.peers.append(peer[:2])
            self.connections.append(connection)
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    @staticmethod
    def _echo(connection):
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                pass

    def abort_last(self):
        """Resets the newest connection, so nothing is retransmitted."""
        connection = self.connections[-1]
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Wakes the echo thread; its close() then discards unsent data.
        connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class DatagramEcho:
    """A UDP server in this process that returns each datagram, or the result of answer()."""

    def __init__(self, host, port, family=4, address=None):
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        self.socket = host.ns.socket(kind, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((address or host.address(family), port))
        self._reader = Reader([self.socket], self._echo)

    def _echo(self, one):
        # the client has closed, or the path's MTU is smaller
        with contextlib.suppress(OSError):
            data, peer = one.recvfrom(65535, socket.MSG_DONTWAIT)
            one.sendto(self.answer(data), peer)

    def answer(self, data):
        return data

    def close(self):
        self._reader.close()
        self.socket.close()
