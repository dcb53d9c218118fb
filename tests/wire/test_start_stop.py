# SPDX-License-Identifier: Apache-2.0
"""Start, stop and sudden death of agent and forwarder while client traffic continues."""

import signal
import threading

import pytest
from scapy.layers.inet import ICMP, IP, TCP

from tests.lab import wait_until
from tests.lab.clients import (
    HttpConnection,
    abort,
    connect,
    dns_txt,
    finish_wrk,
    http_get,
    receive_exactly,
    start_wrk,
)
from tests.lab.steelyard import DNS, VIP, WEB, local_addresses
from tests.wire.stage import ECHO

URL = f"http://{VIP[4]}/"


class Traffic:
    """A thread that sends requests until stopped, each over a new connection."""

    def __init__(self, stage, family=4):
        self.stage, self.family = stage, family
        self.answered, self.failures = 0, []
        self.stopping = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self.stopping:
            try:
                http_get(self.stage.client, VIP[self.family], WEB)
                self.answered += 1
            except OSError as error:
                self.failures.append(error)

    def more(self, count=50):
        """Waits until this many further requests were answered."""
        goal = self.answered + count
        wait_until(lambda: self.answered >= goal or self.failures, f"{count} more answers")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()


def test_agent_restart_fails_no_request(stage):
    steelyard = stage.steelyard
    revision = steelyard.get("status")["forwarder"]["revision"]
    with Traffic(stage) as traffic, HttpConnection(stage.client, VIP[4], WEB) as old:
        server = old.get()
        traffic.more()
        steelyard.agent.kill()
        traffic.more()
        assert old.get() == server
        steelyard.start_agent()
        steelyard.wait_in_sync()
        traffic.more()
        assert old.get() == server
        assert not traffic.failures
    # The new agent's health checks continue from the old one's states: nothing changes.
    assert steelyard.get("status")["forwarder"]["revision"] == revision


def test_same_file_twice_changes_nothing(stage):
    revision = stage.steelyard.get("status")["forwarder"]["revision"]
    assert "Nothing to change" in stage.steelyard.cli("apply", "-", stdin=stage.config.text())
    assert stage.steelyard.get("status")["forwarder"]["revision"] == revision


def test_file_with_one_bad_service_is_refused_whole(stage):
    stage.config["web4"].server(stage.lab["s1"].v4).weight = 7
    stage.config["web6"].port = 0
    done = stage.steelyard.cli("apply", "-", stdin=stage.config.text(), check=False)
    assert done.returncode
    assert "port" in done.stderr
    assert stage.steelyard.server("web4", stage.lab["s1"].v4)["weight"] == 1


def test_edited_file_is_applied(stage):
    stage.config["web4"].server(stage.lab["s1"].v4).weight = 7
    stage.steelyard.write_config()
    wait_until(
        lambda: stage.steelyard.server("web4", stage.lab["s1"].v4)["weight"] == 7,
        "the agent applies the edited file",
    )
    stage.steelyard.wait_in_sync()


@pytest.mark.drops("no-session")
def test_forwarder_starts_without_an_agent(stage):
    """With the last configuration that it accepted."""
    steelyard = stage.steelyard
    steelyard.agent.stop()
    assert steelyard.forwarder.stop() == 0
    steelyard.start_forwarder()
    for family in (4, 6):
        served = {http_get(stage.client, VIP[family], WEB).decode().strip() for _ in range(9)}
        assert served == {"s1", "s2", "s3"}
        assert dns_txt(stage.client, VIP[family], DNS) in stage.dns


@pytest.mark.drops("no-session")
def test_killed_forwarder_is_adopted(stage):
    """After kill -9 a new forwarder takes over link, claims and configuration."""
    stage.steelyard.forwarder.kill()
    stage.steelyard.start_forwarder()
    assert http_get(stage.client, VIP[4], WEB)
    stage.steelyard.wait_in_sync()


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGKILL), ids=("stopped", "killed"))
@pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
@pytest.mark.drops("no-session")
def test_kernel_never_answers_for_a_vip(stage, number, family):
    """While no forwarder runs: no reset, no unreachable, but ARP and ND are answered."""
    stage.client.ns.run(["ip", "neighbour", "flush", "dev", "eth0"])
    stage.steelyard.forwarder.stop(number)
    capture = stage.lab.capture("client")  # now that no packets of earlier tests arrive any more
    with pytest.raises(TimeoutError):
        connect(stage.client, VIP[family], WEB, timeout_s=1.5)
    with pytest.raises(TimeoutError):
        dns_txt(stage.client, VIP[family], DNS, timeout_s=0.5)
    answers = capture.packets(lambda p: TCP in p or ICMP in p, outgoing=False)
    assert not answers, f"the kernel answered: {answers[0].summary()}"
    neighbours = stage.client.ns.ip(f"neighbour show {VIP[family]}")
    assert "lladdr" in neighbours, "the VIP's MAC address is not known"


@pytest.mark.drops("no-session")
def test_kernel_never_resets_servers(stage):
    """The kernel also ignores what servers still send to a local address."""
    with connect(stage.client, VIP[4], ECHO, timeout_s=10) as one:
        one.sendall(b"x")
        receive_exactly(one, 1)
        stage.steelyard.forwarder.stop()
        capture = stage.lab.capture("s1")  # now that no packets of earlier tests arrive any more
        stage.echo[4].connections[-1].sendall(b"are you there?")
        wait_until(
            lambda: len(capture.packets(lambda p: b"are you" in bytes(p), outgoing=True)) > 1,
            "the server sends again",
        )
        stage.echo[4].abort_last()
        abort(one)
    own = local_addresses(stage.lab.network.back_net)
    answers = capture.packets(
        lambda p: IP in p and p[IP].src in own and (ICMP in p or p[TCP].flags & 4), outgoing=False
    )
    assert not answers, f"the kernel answered: {answers[0].summary()}"


def test_host_itself_stays_reachable(stage):
    """The kernel answers for the forwarder's own addresses as before."""
    for address in ("10.0.0.1", "fd00::1"):
        assert " 0% packet loss" in stage.client.ns.run(["ping", "-c2", "-i0.2", address])
    with pytest.raises(ConnectionRefusedError):
        connect(stage.client, "10.0.0.1", 22)


def test_reload_under_load_loses_no_request(stage):
    def packets():
        return stage.steelyard.service("web4")["traffic"]["packets_in"]

    before = packets()
    process = start_wrk(stage.lab, URL, 0, keep_alive=False)  # until it is stopped
    server = stage.config["web4"].server(stage.lab["s1"].v4)
    for reloads in range(20):
        wait_until(lambda n=reloads: packets() > before + 1000 * n, "traffic flows")
        server.weight = 1 + reloads % 5
        stage.apply()
    process.send(signal.SIGINT)
    load = finish_wrk(process)
    assert not load.failed, load
    assert load.requests


def test_idle_workers_sleep(stage, record_property):
    """Prints the CPU use of an idle forwarder; asserts that its workers sleep, but no duration."""
    before = {w["id"]: w["sleeps"] for w in stage.steelyard.get("workers")}
    wait_until(
        lambda: all(w["sleeps"] > before[w["id"]] for w in stage.steelyard.get("workers")),
        "every worker has slept",
    )
    cost = stage.steelyard.forwarder.idle_cost(jiffies=100)
    record_property("idle_cpu_percent", round(cost, 1))
    print(f"idle forwarder with {stage.workers} worker(s): {cost:.1f} % of a core")
