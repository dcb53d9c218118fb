# SPDX-License-Identifier: Apache-2.0
"""A lab with all programs running, and the accounting of a test."""

import copy
import os

from tests.lab import Lab, Server, Service, wait_until
from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.servers import EchoServer, nginx_log, start_dns, start_nginx
from tests.lab.steelyard import VIP, Steelyard, web_and_dns

ECHO, SERVER_ECHO = 7, 9007
SHORT = dict.fromkeys(("established", "fin_wait", "closing"), "1s")  # timeouts


class Stage:
    """Lab, servers and Steelyard, ready for traffic. A context manager.

    Its services: web4, web6, dns4, dns6 on all servers, echo4 and echo6 on s1 alone.
    """

    def __init__(self, workers=1, mode="auto", checked=True, huge=True, running=True, **network):
        self.lab = Lab(**network)
        self.workers, self.mode, self.huge = workers, mode, huge
        self.checked, self.running = checked, running
        self.nginx, self.dns, self.echo = {}, {}, {}
        self.accounting = None  # of the present test

    def __enter__(self):
        self.lab.__enter__()
        try:
            if self.running:
                self.start()
        except BaseException:
            self.lab.close()
            raise
        return self

    def watch_logs(self):
        """Returns a function that returns web servers' log entries since now, in nginx_log()'s
        form."""
        before = {name: len(nginx_log(self.lab, name)) for name in self.nginx}
        return lambda: [
            line for name, count in before.items() for line in nginx_log(self.lab, name)[count:]
        ]

    def logged(self, host, vip, port, path):
        """Requests a path, which must be unique; returns what servers log of it: (peer, own
        address)."""
        lines = self.watch_logs()
        http_get(host, vip, port, path)

        def found():
            return [(peer, own) for peer, _, own, asked in lines() if asked == path]

        wait_until(found, "a server logs the request")
        return found()

    def check_transfers(self, host, vip, web, echo, size=3_000_000):
        """Downloads a file from a web service, and sends a part of it to an echo service."""
        content = os.urandom(size)
        for name in self.nginx:
            (self.lab.dir / f"nginx-{name}" / "files" / "large").write_bytes(content)
        assert http_get(host, vip, web, "/files/large") == content
        with connect(host, vip, echo) as one:
            for at in range(0, 300_000, 30_000):
                one.sendall(content[at : at + 30_000])
                assert receive_exactly(one, 30_000) == content[at : at + 30_000]

    def start(self, agent_options=(), **options):
        """options: more of lab.steelyard.Options."""
        lab = self.lab
        for host in lab.servers():
            self.nginx[host.name] = start_nginx(lab, host.name)
            self.dns[host.name] = start_dns(lab, host.name)
        config = web_and_dns(lab.network, self.checked)
        for family in (4, 6):
            self.echo[family] = EchoServer(lab["s1"], SERVER_ECHO, family)
            server = Server(lab["s1"].address(family), SERVER_ECHO)
            config.services.append(
                Service(
                    f"echo{family}",
                    VIP[family],
                    ECHO,
                    servers=[server],
                )
            )
        self.steelyard = Steelyard(
            lab, config, workers=self.workers, mode=self.mode, huge=self.huge, **options
        )
        self.steelyard.agent_options = list(agent_options)
        self.default = copy.deepcopy(config)
        self.begin()

    def begin(self):
        self.steelyard.start()
        self.steelyard.wait_all_up()

    def __exit__(self, *error):
        for server in self.echo.values():
            server.close()
        self.lab.__exit__(*error)

    @property
    def client(self):
        return self.lab["client"]

    @property
    def config(self):
        return self.steelyard.config

    def apply(self):
        return self.steelyard.apply()

    def revive(self):
        """Restarts programs that a test stopped."""
        for name, process in self.nginx.items():
            if not process.alive():
                self.nginx[name] = start_nginx(self.lab, name)
        if not self.steelyard.forwarder.alive():
            self.steelyard.start_forwarder()
        if not self.steelyard.agent.alive():
            self.steelyard.start_agent()
        self.steelyard.wait_in_sync()

    def restore(self):
        """Undoes a test's changes: restores the configuration, restarts stopped programs."""
        self.revive()
        if self.steelyard.config != self.default:
            self.steelyard.config = copy.deepcopy(self.default)
        if not self.steelyard.has(self.default):
            self.steelyard.apply()
            self.steelyard.wait_in_sync()
        self.steelyard.wait_all_up()

    def begin_again(self, service):
        """Removes the service and adds it again, without its sessions and counters. Waits for the
        last packets of its connections, which would be dropped without a server. Ends that earlier
        tests have closed answer the service's resets of their sessions."""

        def over():
            states = {one["state"] for one in self.steelyard.sessions("--service", service.name)}
            return states <= {"time-wait", "reset"}

        if service.protocol == "tcp":  # UDP sessions have no end to wait for
            # Includes connections whose ends were reset while no forwarder ran.
            kept, service.timeouts = service.timeouts, SHORT
            self.apply()
            wait_until(over, "earlier tests' connections are over")
            service.timeouts = kept
        if self.accounting:
            self.accounting.expected.add("session-killed")
        self.config.services.remove(service)
        self.apply()
        self.config.services.append(service)
        self.apply()


class Accounting:
    """Records the drops of one test, and the errors that kernels counted."""

    def __init__(self, stage):
        self.stage = stage
        self.before = stage.steelyard.drops()
        self.forwarder = stage.steelyard.forwarder
        self.expected = set()  # reasons besides those that the test names

    def dropped(self):
        """Returns drops since the test's start, by reason."""
        if self.stage.steelyard.forwarder is not self.forwarder:
            self.before, self.forwarder = {}, self.stage.steelyard.forwarder
        now = self.stage.steelyard.drops()
        changes = {name: count - self.before.get(name, 0) for name, count in now.items()}
        return {name: count for name, count in changes.items() if count}

    def close(self, allowed, log):
        """log: the DropLog that shows the packets."""
        allowed = {*allowed, *self.expected}
        unexplained = {name: n for name, n in self.dropped().items() if name not in allowed}
        packets = "\n".join(log.describe(unexplained)) if unexplained else ""
        assert not unexplained, f"unexplained drops: {unexplained}\n{packets}"
        errors = self.stage.lab.checksum_errors()
        assert not errors, f"kernels saw wrong checksums: {errors}"
