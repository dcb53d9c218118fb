# SPDX-License-Identifier: Apache-2.0
"""Ports stacked on other interfaces, like a VLAN's.

Not every kernel that runs the tests has VLANs. Macvlans replace them; for a forwarder they are
equivalent: interfaces without queues or XDP of their own, which get their packets from another
one."""

import hashlib
import os
import signal

import pytest

from tests.lab.clients import connect, dns_txt, http_get, receive_exactly, wrk
from tests.lab.steelyard import DNS, VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.stage import ECHO, Stage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
NETWORKS = {
    "on-two-1-worker": {"stacked": "two"},
    "on-one-1-worker": {"stacked": "one"},
    "on-one-2-workers": {"stacked": "one", "workers": 2},
    "on-one-2-queues": {"stacked": "one", "workers": 2, "queues": 2},
}


@pytest.fixture(scope="module", params=NETWORKS)
def stacked_stage(request):
    with Stage(**NETWORKS[request.param]) as stage:
        yield stage


@pytest.fixture
def stacked(stacked_stage, request):
    yield from check_accounting(stacked_stage, request)


@families
def test_stacked_port_serves_clients(stacked, family):
    served = {http_get(stacked.client, VIP[family], WEB).decode().strip() for _ in range(12)}
    assert served == {"s1", "s2", "s3"}
    assert {dns_txt(stacked.client, VIP[family], DNS) for _ in range(12)} == served
    url = f"http://{VIP[4]}/" if family == 4 else f"http://[{VIP[6]}]/"
    load = wrk(stacked.lab, url, 500, keep_alive=False)
    assert not load.failed, load


@families
def test_full_frames_pass(stacked, family):
    """A tag does not count towards the MTU."""
    content = os.urandom(500_000)
    with connect(stacked.client, VIP[family], ECHO) as one:
        for at in range(0, len(content), 20_000):
            one.sendall(content[at : at + 20_000])
            assert receive_exactly(one, 20_000) == content[at : at + 20_000]
    for name in stacked.nginx:
        (stacked.lab.dir / f"nginx-{name}" / "files" / "stacked").write_bytes(content)
    got = http_get(stacked.client, VIP[family], WEB, "/files/stacked")
    assert hashlib.sha256(got).digest() == hashlib.sha256(content).digest()


@families
def test_connections_survive_a_restart(stacked, family):
    with connect(stacked.client, VIP[family], ECHO) as one:
        for number in (signal.SIGKILL, signal.SIGTERM):
            one.sendall(b"before")
            assert receive_exactly(one, 6) == b"before"
            stacked.steelyard.restart_forwarder(number)
            one.sendall(b"after")
            assert receive_exactly(one, 5) == b"after"
    stacked.steelyard.wait_reconnected()
