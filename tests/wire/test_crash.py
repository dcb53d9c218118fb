# SPDX-License-Identifier: Apache-2.0
"""The forwarder is killed at random moments under load, including its start."""

import dataclasses
import random
import signal
import socket
import threading
import time

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, dns_txt, finish_wrk, http_get, start_wrk
from tests.lab.long_form import by_form, has_long_form
from tests.lab.steelyard import DNS, VIP, WEB
from tests.wire.conftest import check_accounting

pytestmark = pytest.mark.both_builds
KILLS = by_form(6, 200)
FLOWS = 6  # of each kind and family
ENDLESS = 10**9  # requests: until stopped


@pytest.fixture
def stage(unchecked_stage, request):
    yield from check_accounting(unchecked_stage, request)


class Talker(threading.Thread):
    """Sends requests until stopped; counts answers and records the first failure."""

    def __init__(self):
        super().__init__(daemon=True)
        self.answers, self.failure, self.stopping = 0, None, False

    def run(self):
        try:
            while not self.stopping:
                self.ask()
                self.answers += 1
        except (OSError, AssertionError) as error:
            self.failure = error


class KeepAlive(Talker):
    """One HTTP connection that must never fail or change its server."""

    def __init__(self, stage, family):
        super().__init__()
        self.connection = HttpConnection(stage.client, VIP[family], WEB, timeout_s=30)
        self.server = self.connection.get()

    def ask(self):
        server = self.connection.get()
        assert server == self.server, f"answered by {server}, no longer by {self.server}"

    def close(self):
        self.connection.close()


class Flow(Talker):
    """One UDP socket: lost requests are repeated, and the same server always answers."""

    def __init__(self, stage, family):
        super().__init__()
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        self.socket = stage.client.ns.socket(kind, socket.SOCK_DGRAM)
        self.vip, self.server = VIP[family], None

    def ask(self):
        while not self.stopping:
            try:
                server = dns_txt(None, self.vip, DNS, timeout_s=0.2, one=self.socket)
            except (TimeoutError, ConnectionError):  # lost, or an answer to an earlier request
                continue
            assert self.server in (None, server), f"answered by {server}, not {self.server}"
            self.server = server
            return

    def close(self):
        self.socket.close()


class NewConnections(Talker):
    """One connection per request: some are opening or closing at the kill."""

    def __init__(self, stage, family):
        super().__init__()
        self.client, self.vip = stage.client, VIP[family]

    def ask(self):
        http_get(self.client, self.vip, WEB, timeout_s=30)

    def close(self):
        pass


class Clients:
    """All kinds of clients at once."""

    def __init__(self, stage):
        kinds = (KeepAlive, Flow, NewConnections)
        self.talkers = [
            kind(stage, family) for kind in kinds for family in (4, 6) for _ in range(FLOWS)
        ]

    def await_progress(self):
        """Waits until each has received another answer."""
        before = [one.answers for one in self.talkers]
        wait_until(
            lambda: self.failures()
            or all(one.answers > n for one, n in zip(self.talkers, before, strict=True)),
            "every client is answered",
        )
        assert not self.failures()

    def failures(self):
        return [f"{type(one).__name__}: {one.failure}" for one in self.talkers if one.failure]

    def __enter__(self):
        for one in self.talkers:
            one.start()
        return self

    def __exit__(self, *_):
        for one in self.talkers:
            one.stopping = True
        for one in self.talkers:
            one.join()
            one.close()


def adoption_is_right(steelyard):
    """No record was refused; sessions that did not continue were just beginning or ending."""
    found = steelyard.get("status")["forwarder"]["adoption"]
    assert found["source"] == "crashed"
    assert found["refused"] == ""
    ended = {name for name, n in found["results"].items() if n}
    assert ended <= {"kept", "torn", "expired"}, found
    return found["results"]["kept"]


@has_long_form
@pytest.mark.drops("no-session")
def test_kill_at_random_moments_loses_no_connection(stage):
    """Several times; every flow stays with its server."""
    steelyard = stage.steelyard
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    print(f"seed {seed}")
    load = start_wrk(stage.lab, f"http://{VIP[4]}/", ENDLESS, pause_ms=5)
    starting_s, kept = 0.5, []
    with Clients(stage) as clients:
        clients.await_progress()
        for n in range(KILLS):
            time.sleep(rng.uniform(0, 0.2))
            steelyard.kill_forwarder()
            steelyard.options = dataclasses.replace(steelyard.options, workers=1 + n % 2)
            if n % 3 == 2:  # a second kill, before it is ready
                steelyard.start_forwarder(wait=False)
                time.sleep(rng.uniform(0, starting_s))
                steelyard.kill_forwarder()
            began = time.monotonic()
            steelyard.start_forwarder()
            starting_s = time.monotonic() - began
            clients.await_progress()
            steelyard.wait_in_sync()
            kept.append(adoption_is_right(steelyard))
    load.send(signal.SIGINT)
    seen = finish_wrk(load)
    print(f"{seen.requests} requests by wrk; sessions kept: {kept}")
    assert not seen.failed, seen
    assert min(kept) >= 4 * FLOWS
