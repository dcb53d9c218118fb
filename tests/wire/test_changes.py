# SPDX-License-Identifier: Apache-2.0
"""A thousand random configuration changes under load in every mode.

Loaded services change in every way that must not fail a request; beside them, idle services are
added, deleted and changed in every possible way."""

import random
import signal
import threading

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import dns_txt, finish_wrk, start_wrk
from tests.lab.mode_table import ROWS, VIP_ON_SERVERS
from tests.lab.steelyard import SERVER_DNS, SERVER_WEB
from tests.lab.topology import FRONT, v4, v6
from tests.wire.mode_stage import ModeStage

pytestmark = pytest.mark.both_builds
CHANGES = 1000
AT_ONCE = 12  # at most, per transaction
ENDLESS = 10**9  # requests
SCHEDULERS = ("rr", "wrr", "lc", "wlc", "sed", "sh", "maglev", "conhash", "share", "p2c")
SPARE = 20000  # first of the ports without a listener


class UdpLoad:
    """Queries a row's name servers repeatedly until stopped."""

    def __init__(self, stage, row):
        self.asked, self.failures = 0, []
        self.stopping = threading.Event()
        self.client, self.row = stage.lab["far"], row
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.stopping.is_set():
            try:
                dns_txt(self.client, self.row.vip, self.row.ports[1])
            except OSError as error:
                self.failures.append(f"{self.row}: {error!r}")
            self.asked += 1

    def stop(self):
        self.stopping.set()
        self.thread.join()


class Changes:
    """Changes a stage's configuration at random; each method below is one kind of change."""

    def __init__(self, stage, rng):
        self.stage, self.rng = stage, rng
        self.loaded = list(stage.config.services)
        self.names = 0
        self.kinds = {}

    def change(self):
        kind = self.rng.choice(
            (self.weight, self.drain, self.scheduler, self.spread, self.timeout, self.spare_server)
            + (self.add_service, self.delete_service, self.change_service, self.local_address)
        )
        kind()
        self.kinds[kind.__name__] = self.kinds.get(kind.__name__, 0) + 1

    # ---- changes that end no session of a service under load -------------------------------------

    def any_loaded(self):
        return self.rng.choice(self.loaded)

    @staticmethod
    def real(service):
        """Returns its servers, except those on ports without a listener."""
        return [server for server in service.servers if server.port < SPARE]

    def weight(self):
        servers = self.real(self.any_loaded())
        server = self.rng.choice(servers)
        takes = sum(s.weight > 0 and not s.drain for s in servers)
        server.weight = self.rng.randint(0 if takes > 1 or server.drain else 1, 20)

    def drain(self):
        servers = self.real(self.any_loaded())
        server = self.rng.choice(servers)
        takes = sum(s.weight > 0 and not s.drain for s in servers if s is not server)
        server.drain = not server.drain and takes > 0

    def scheduler(self):
        service = self.any_loaded()
        service.scheduler = self.rng.choice(SCHEDULERS)
        service.spread.pop("hash_on", None)
        if service.scheduler in ("sh", "maglev", "conhash"):
            service.spread["hash_on"] = self.rng.choice(("source", "tuple"))

    def spread(self):
        service = self.any_loaded()
        options = {
            "persistence": {"timeout": "1m"},
            "slow_start": "3s",
            "max_sessions": 100_000,
        }
        if service.protocol == "tcp":
            options["resets"] = {"expired": True, "unknown": True}
        for name, value in options.items():
            service.spread.pop(name, None)
            if self.rng.random() < 0.3:
                service.spread[name] = value

    def timeout(self):
        self.any_loaded().timeouts = {"established": f"{self.rng.randint(60, 900)}s"}

    def spare_server(self):
        """Adds or removes a server of weight 0 on a port without a listener."""
        service = self.any_loaded()
        real = self.real(service)
        if len(real) == len(service.servers) and service.mode not in VIP_ON_SERVERS:
            real.append(Server(real[0].address, self.rng.randint(SPARE, 60000), 0))
        service.servers = real

    # ---- any change, without load ----------------------------------------------------------------

    def idle(self):
        return [service for service in self.stage.config.services if service not in self.loaded]

    def add_service(self):
        if len(self.idle()) > 20:
            return self.delete_service()
        self.names += 1
        mode, protocol = (
            self.rng.choice(("fnat", "nat", "dr", "ipip")),
            self.rng.choice(("tcp", "udp")),
        )
        family = self.rng.choice((4, 6))
        port = SERVER_WEB if protocol == "tcp" else SERVER_DNS
        vip = (v4 if family == 4 else v6)(FRONT, self.rng.randint(90, 99))
        key = (vip, protocol, port)
        if any((s.vip, s.protocol, s.port) == key for s in self.stage.config.services):
            return None
        hosts = self.stage.lab.servers()
        servers = [
            Server(host.address(family), port, self.rng.randint(0, 5))
            for host in self.rng.sample(hosts, self.rng.randint(0, len(hosts)))
        ]
        self.stage.config.services.append(
            Service(f"extra-{self.names}", vip, port, protocol, mode=mode, servers=servers)
        )
        return None

    def delete_service(self):
        if idle := self.idle():
            self.stage.config.services.remove(self.rng.choice(idle))

    def change_service(self):
        if idle := self.idle():
            service = self.rng.choice(idle)
            service.mode = self.rng.choice(("fnat", "nat", "dr", "ipip"))
            service.scheduler = self.rng.choice(SCHEDULERS)
            self.rng.shuffle(service.servers)
            del service.servers[self.rng.randint(0, 3) :]

    def local_address(self):
        """Adds one: sessions use the existing ones."""
        family, n = self.rng.choice((v4, v6)), self.rng.randint(210, 219)
        addresses = self.stage.config.local_addresses
        if family(FRONT, n) not in addresses:
            addresses.append(family(FRONT, n))


def test_thousand_changes_fail_no_request(request):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with ModeStage(arms=1, workers=2) as stage:
        options = {"host": "far", "pause_ms": 5}
        loads = {
            row: start_wrk(stage.lab, row.url + "/", ENDLESS, 2, keep_alive=n % 2 == 0, **options)
            for n, row in enumerate(ROWS)
        }
        questions = [UdpLoad(stage, row) for row in ROWS[::3]]
        wait_until(lambda: all(load.asked for load in questions), "UDP load flows")
        changes, rng = Changes(stage, random.Random(seed)), random.Random(seed + 1)
        made = 0
        while made < CHANGES:
            count = min(rng.randint(1, AT_ONCE), CHANGES - made)
            for _ in range(count):
                changes.change()
            stage.apply()
            made += count
        for load in questions:
            load.stop()
        for load in loads.values():
            load.send(signal.SIGINT)
        results = {row: finish_wrk(load) for row, load in loads.items()}
        total = sum(result.requests for result in results.values())
        asked = sum(load.asked for load in questions)
        print(f"{total} requests, {asked} questions, changes {changes.kinds}")
        assert not {str(row): result for row, result in results.items() if result.failed}
        assert not [failure for load in questions for failure in load.failures]
        assert not stage.steelyard.drops()
        assert not stage.lab.checksum_errors()
