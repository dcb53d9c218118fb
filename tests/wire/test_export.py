# SPDX-License-Identifier: Apache-2.0
"""sFlow samples: sfcapd of nfdump parses what the agent exports."""

import json

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.servers import wait_listening
from tests.lab.steelyard import VIP, WEB

COLLECTOR_PORT = 6343
METRICS = "127.0.0.1:9272"
ROTATION_S = 2


class Collector:
    """sfcapd on a server's host."""

    def __init__(self, lab, folder, host="s1"):
        self.ns, self.address, self.folder = lab[host].ns, lab[host].address(4), folder
        argv = ["sfcapd", "-w", folder, "-p", COLLECTOR_PORT, "-t", ROTATION_S]
        self.process = lab.start(host, "sfcapd", argv)
        # Until then the host refuses datagrams, which the agent counts as errors.
        wait_listening(self.ns, COLLECTOR_PORT, "udp")

    def flows(self):
        """Returns the flows that sfcapd has written so far."""
        files = sorted(self.folder.glob("nfcapd.2*"))
        return [flow for file in files for flow in self._read(file)]

    def _read(self, file):
        text = self.ns.run(["nfdump", "-q", "-r", file, "-o", "json"])
        # A list, without its brackets in nfdump 1.7.1; words instead if it is empty.
        begin, end = text.find("{"), text.rfind("}") + 1
        return json.loads(f"[{text[begin:end]}]") if end else []


@pytest.fixture
def collector(stage, tmp_path):
    collector = Collector(stage.lab, tmp_path)
    yield collector
    collector.process.stop()


def metrics(stage):
    text = stage.lab["forwarder"].ns.run(["curl", "-sS", f"http://{METRICS}/metrics"])
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def send_stray_ack(stage):
    """A segment without a session, which a worker drops."""
    front = stage.lab.network.ports[0]
    macs = Ether(src=stage.client.ns.mac("eth0"), dst=stage.lab["forwarder"].ns.mac(front))
    segment = TCP(sport=4444, dport=WEB, flags="A", ack=1)
    stage.lab.capture("client").send(macs / IP(src=stage.client.v4, dst=VIP[4]) / segment)


@pytest.mark.drops("no-session")
def test_collector_parses_samples_and_drops(stage, collector):
    """An independent collector receives unchanged packets and their sampling rates."""
    stage.config.metrics = METRICS
    target = f"{collector.address}:{COLLECTOR_PORT}"
    stage.config.export = {"sflow": {"collector": target, "sampling": 2, "drops": 1}}
    stage.apply()

    def sampled(kind):
        return metrics(stage).get(f'steelyard_sflow_samples_total{{kind="{kind}"}}', 0)

    def drop_is_sampled():
        send_stray_ack(stage)
        return sampled("drop")

    wait_until(drop_is_sampled, "a dropped packet is sampled")

    def flows_to_the_vip():
        stage.client.ns.run(["curl", "-sS", "-o", "/dev/null", f"http://{VIP[4]}/"])
        ends = {"src4_addr": stage.client.v4, "dst4_addr": VIP[4], "dst_port": WEB, "proto": 6}
        return [flow for flow in collector.flows() if ends.items() <= flow.items()]

    flow = wait_until(flows_to_the_vip, "the collector has a packet of the client")[0]
    assert flow["in_packets"] % 2 == 0  # each sample stands for two packets
    assert sampled("packet") > 0
    assert sampled("counters") > 0
    assert metrics(stage)["steelyard_sflow_datagrams_total"] > 0
    assert metrics(stage)["steelyard_sflow_errors_total"] == 0
