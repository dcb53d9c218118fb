# SPDX-License-Identifier: Apache-2.0
"""A hundred and ten conversations under load through every kind of restart of a forwarder.

The small version of `make demo DEMO=restart`."""

import signal

import pytest

from tests.lab import Lab
from tests.lab.clients import connect
from tests.lab.servers import start_dns, start_nginx
from tests.lab.steelyard import Steelyard, web_and_dns
from tests.lab.traffic import Traffic

pytestmark = pytest.mark.both_builds


HTTP, DOWNLOADS, UDP = 50, 10, 50


@pytest.fixture
def lab():
    with Lab() as lab:
        yield lab


@pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
def test_resets_are_counted(lab, family):
    """Shows that a count of zero is meaningful."""
    source = lab["forwarder"].address(family)
    for name, target, counted in (("client", "forwarder", 1), ("far", "router", 0)):
        host = lab[name]
        host.ns.count_resets([source])
        with pytest.raises(ConnectionRefusedError):
            connect(host, lab[target].address(family), 9)
        assert host.ns.resets() == counted


def test_conversations_survive_every_replacement(lab):
    steelyard = Steelyard(lab, web_and_dns(lab.network))
    for host in lab.servers():
        start_nginx(lab, host.name)
        start_dns(lab, host.name)
        host.ns.count_resets(steelyard.config.local_addresses)
    lab["client"].ns.count_resets()
    traffic = Traffic(lab, HTTP, DOWNLOADS, UDP)
    traffic.provide()
    steelyard.start()
    steelyard.wait_all_up()
    agent = steelyard.agent.pid
    assert not traffic.start("-period", "300ms")["failures"]

    def survives(source):
        steelyard.wait_reconnected()
        report = traffic.step()
        assert not report["failures"], report["examples"]
        status = steelyard.get("status")["forwarder"]
        assert status["adoption"]["source"] == source
        assert status["adoption"]["results"]["kept"] >= HTTP + DOWNLOADS + UDP
        assert status["workers"] == steelyard.options.workers
        assert not steelyard.drops()

    steelyard.restart_forwarder(signal.SIGKILL)
    survives("crashed")
    steelyard.restart_forwarder()
    survives("stopped")
    steelyard.upgrade()
    survives("handed-over")
    steelyard.restart_forwarder(workers=2)
    survives("stopped")
    steelyard.upgrade(workers=1)
    survives("handed-over")

    report = traffic.finish()
    assert not report["failures"], report["examples"]
    assert {host.name: host.ns.resets() for host in (lab["client"], *lab.servers())} == {
        "client": 0,
        "s1": 0,
        "s2": 0,
        "s3": 0,
    }
    assert steelyard.agent.pid == agent
    assert steelyard.agent.alive()
