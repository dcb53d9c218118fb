# SPDX-License-Identifier: Apache-2.0
"""The link emulator between two hosts: kernels observe what it reports.

No test depends on speed: delayed packets wait for link.hurry(), and senders wait until the link has
received their packets."""

import contextlib
import hashlib
import json
import math
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from tests.lab import Lab, reap, wait_until
from tests.lab.datagrams import SO_RCVBUFFORCE
from tests.lab.lab import ROOT
from tests.lab.link import LINK, Link, balance, path_mtu, predict
from tests.lab.process import CommandFailed
from tests.lab.steelyard import SANITIZED
from tests.lab.vlan import tagging

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
PORT = 9601
AGES = {"delay_s": 900}  # stays in flight until hurry()
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER = 10, 23
UDP_SEGMENT = 103
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA = 3, 263, 8
PMTUDISC_DONT, PMTUDISC_DO, PMTUDISC_PROBE = 0, 2, 3


@pytest.fixture(scope="module")
def lab():
    with Lab(arms=1, servers=0) as lab:
        yield lab


@pytest.fixture(scope="module")
def one_link(lab):
    with Link(lab, "client", "far") as link:
        yield link
        assert link.process.stop() == 0


@pytest.fixture
def link(lab, one_link):
    yield one_link
    one_link.set(defaults="")
    one_link.hurry()
    stats = one_link.settle()
    assert not any(balance(stats[way]) for way in ("ab", "ba")), stats
    one_link.reset()
    lab.close_captures()
    for family in (4, 6):
        lab["client"].ns.ip(f"-{family} route flush cache")


def inet(family):
    return socket.AF_INET if family == 4 else socket.AF_INET6


class Flow:
    """Datagrams from the link's end a to a socket at its end b."""

    def __init__(self, link, family=4):
        self.link = link
        self.sink = link.lab["far"].ns.socket(inet(family), socket.SOCK_DGRAM)
        self.sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.sink.bind((link.address("b", family), PORT))
        self.source = link.lab["client"].ns.socket(inet(family), socket.SOCK_DGRAM)
        self.source.connect((link.address("b", family), PORT))
        # Permanent neighbour entries: packets delayed for minutes must not wait for resolution.
        for host, other, end in (("client", "far", "b"), ("far", "client", "a")):
            mac = link.lab[other].ns.mac(link.name)
            known = f"{link.address(end, family)} lladdr {mac} dev {link.name} nud permanent"
            link.lab[host].ns.ip(f"neigh replace {known}")
        link.set_seed(link.seed)
        self.begin = self.came()

    def came(self):
        stats = self.link.stats("ab")
        return stats["arrived"] - stats["spared"]

    def send(self, count, size=100, window=4096):
        """Sends numbered datagrams; the link never has more of them unread than its ring holds."""
        for number in range(count):
            self.source.send(struct.pack("!I", number).ljust(size, b"."))
            if (number + 1) % window == 0:
                self.wait(number + 1)
        self.wait(count)
        self.begin += count

    def wait(self, count):
        wait_until(lambda: self.came() >= self.begin + count, "the link has read it")

    def received(self):
        """Returns the numbers of all received datagrams, in order."""
        self.link.settle()
        numbers = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self.sink.recv(65535, socket.MSG_DONTWAIT)
                assert not data[4:].strip(b"."), "what arrives is intact"
                numbers.append(struct.unpack_from("!I", data)[0])
        return numbers

    def close(self):
        self.source.close()
        self.sink.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def received_frames(lab, link):
    (one,) = json.loads(lab["far"].ns.run(["ip", "-j", "-s", "link", "show", "dev", link.name]))
    return one["stats64"]["rx"]["packets"]


def rtts(lab, address, count=5):
    """Returns round-trip times in ms."""
    text = lab["client"].ns.run(["ping", "-n", f"-c{count}", "-i0.02", "-W60", address])
    return [float(ms) for ms in re.findall(r"time=([\d.]+) ms", text)]


# ---- nothing is lost that need not be ------------------------------------------------------------


def test_delayed_packets_all_arrive(lab, link):
    """100 000 large packets in flight, and 30 000 small ones behind them: all arrive, however
    slowly the first ones leave, because the queue has capacity for all."""
    with Flow(link) as flow:
        before, frames = link.stats("ab"), received_frames(lab, link)
        link.set("ab", **AGES)
        flow.send(100_000, 1472)
        assert link.stats("ab")["on_the_way"] >= 100_000
        link.set("ab", delay_ms=0)
        link.hurry()
        flow.send(30_000)
        stats = link.settle()["ab"]
        assert stats["dropped"] == 0, stats["drops"]
        assert stats["delivered"] - before["delivered"] >= 130_000
        assert stats["on_the_way_most"] >= 100_000
        assert received_frames(lab, link) - frames == stats["delivered"] - before["delivered"]


def check_first_arrived(numbers, room):
    """The first ones have arrived, except where kernels' own packets used their capacity."""
    assert numbers == list(range(len(numbers)))
    assert room - 10 < len(numbers) <= room


def test_packets_beyond_capacity_are_counted(lab):
    with Link(lab, "client", "far", options=["--packets", 100]) as link, Flow(link) as flow:
        link.set("ab", **AGES)
        flow.send(150)
        stats = link.stats("ab")
        assert stats["on_the_way"] == 100
        assert 50 <= stats["drops"]["no-memory"] <= stats["arrived"] - 100
        link.set("ab", delay_s=0)
        link.hurry()
        check_first_arrived(flow.received(), 100)


def test_packets_beyond_the_ring_are_counted(lab):
    """While the emulator gets no CPU, its ring fills up; later packets are lost under that
    counter."""
    with Link(lab, "client", "far", options=["--ring", 64]) as link, Flow(link) as flow:
        link.process.send(signal.SIGSTOP)
        for number in range(200):
            flow.source.send(struct.pack("!I", number).ljust(100, b"."))
        link.process.send(signal.SIGCONT)
        flow.wait(200)
        stats = link.stats("ab")
        assert 200 - 64 <= stats["drops"]["receive-ring"] <= stats["arrived"] - 64
        check_first_arrived(flow.received(), 64)
        assert balance(link.stats("ab")) == 0


def test_packets_for_an_interface_that_is_down_are_counted(link):
    """The link continues when the interface is up again."""
    with Flow(link) as flow:
        link.ns.ip("link set end-b down")
        flow.send(3)
        stats = link.settle()["ab"]
        assert stats["drops"]["send"] == stats["dropped"] >= 3
        assert link.process.idle_cost(jiffies=20) < 50
        link.ns.ip("link set end-b up")
        flow.send(3)
        assert flow.received() == [0, 1, 2]


# ---- time ----------------------------------------------------------------------------------------


@families
def test_no_packet_arrives_before_its_delay(lab, link, family):
    """Neither before a change of the delay nor after it."""
    address = link.address("b", family)
    link.set("ab", delay_ms=30)
    link.set("ba", delay_ms=10)
    assert min(rtts(lab, address)) >= 40
    link.set("ab", delay_ms=5, jitter_ms=5, distribution="normal")
    assert min(rtts(lab, address)) >= 15


def test_rate_is_never_exceeded(link):
    """At each moment, the transmitter has started at most what the rate allows since the first
    packet, plus one frame."""
    rate, frame = 4_000_000, 8000
    with Flow(link) as flow:
        before = link.stats("ab")["transmitted_bytes"]
        link.set("ab", rate_mbit=rate / 1e6, queue_packets=0)
        began = time.monotonic()
        flow.send(300, 958)
        while True:
            stats = link.stats("ab")
            bits = (stats["transmitted_bytes"] - before) * 8
            assert bits <= rate * (time.monotonic() - began) + frame
            if not stats["on_the_way"]:
                break
        assert bits >= 300 * frame
        assert flow.received() == list(range(300))


def test_queue_drops_packets_beyond_its_limit(link):
    """The transmitter has one packet, ten wait, and all others are lost."""
    with Flow(link) as flow:
        link.set("ab", rate_kbit=0.1, queue_packets=10)
        flow.send(50)
        stats = link.stats("ab")
        assert stats["drops"]["tail"] == 39
        assert stats["queue"]["packets"] == 10
        link.hurry()
        assert flow.received() == list(range(11))


@families
def test_ecn_packets_are_marked_above_the_threshold(link, family):
    """Packets without ECN are lost there."""
    with Flow(link, family) as flow:
        level, option, receive = (
            (socket.IPPROTO_IP, socket.IP_TOS, socket.IP_RECVTOS)
            if family == 4
            else (socket.IPPROTO_IPV6, socket.IPV6_TCLASS, socket.IPV6_RECVTCLASS)
        )
        flow.sink.setsockopt(level, receive, 1)
        link.set("ab", rate_kbit=0.1, red_min=1, red_max=1, ecn=True)
        for kind in (2, 0, 1):  # ECT(0), not ECT, ECT(1)
            flow.source.setsockopt(level, option, kind)
            flow.send(4)
        assert link.stats("ab")["marked"] == 2 + 4
        assert link.stats("ab")["drops"]["red"] == 4
        link.hurry()
        link.settle()
        seen = Counter()
        for _ in range(8):
            _, ancillary, _, _ = flow.sink.recvmsg(2000, 64)
            seen[int.from_bytes(ancillary[0][2], "little")] += 1
        # One was sent at once, and one found an empty queue.
        assert seen == {2: 2, 3: 6}


# ---- chance --------------------------------------------------------------------------------------

CHANCES = {
    "loss": {"loss": 0.03},
    "bursts": {"loss": 0.001, "burst_enter": 0.01, "burst_leave": 0.2, "burst_loss": 0.9},
    "all": {"loss": 0.02, "duplicate": 0.05, "reorder": 0.05, "reorder_distance": 3}
    | {"corrupt": 0.01, "jitter_us": 300, "reorder_delay_s": 100},
}


@pytest.mark.parametrize("kind", CHANCES)
def test_seed_determines_every_draw(link, kind):
    """Each packet's fate matches the prediction for the seed, repeatedly; another seed differs."""
    count, seen = 20_000, []
    with Flow(link) as flow:
        link.set("ab", **CHANCES[kind])
        before = flow.link.stats("ab")
        for seed in (7, 7, 8):
            link.set_seed(seed)
            flow.send(count)
            link.hurry()  # waits for later packets
            after = link.settle()["ab"]
            seen.append(fates(after, before))
            before = after
            assert seen[-1] == fates(predict(count, seed, **CHANCES[kind])["ab"])
    assert seen[0] == seen[1] != seen[2]


def fates(stats, before=None):
    names = ("duplicated", "corrupted", "reordered", "bursts")
    found = {name: stats[name] - (before[name] if before else 0) for name in names}
    for name in ("loss", "burst"):
        found[name] = stats["drops"][name] - (before["drops"][name] if before else 0)
    return found


def test_probabilities_match_their_parameters():
    """Each within five standard deviations, over many seeds."""
    count, share = 50_000, 0.01
    names = ("duplicated", "corrupted", "reordered")
    for seed in range(5):
        asked = {"loss": share, "duplicate": share, "corrupt": share, "reorder": share}
        for way in ("ab", "ba"):
            stats = predict(count, seed, **asked)[way]
            left = count - stats["drops"]["loss"]
            for hits, tries in [(stats["drops"]["loss"], count)] + [
                (stats[name], left) for name in names
            ]:
                assert abs(hits - tries * share) < 5 * math.sqrt(tries * share * (1 - share))


def test_counters_match_the_received_order(link):
    """The receiver gets each packet that is not lost, as many duplicates as are counted, and the
    reordered ones behind three others."""
    count = 5000
    with Flow(link) as flow:
        link.set("ab", duplicate=0.02, reorder=0.02, reorder_distance=3, reorder_delay_s=100)
        flow.send(count)
        link.hurry()
        got, stats = flow.received(), link.stats("ab")
    copies = Counter(got)
    assert set(copies) == set(range(count))
    assert sum(copies.values()) - count == stats["duplicated"] > 0
    first = list(dict.fromkeys(got))
    late = [n for at, n in enumerate(first) if at and n < first[at - 1]]
    # Two adjacent packets may be held together, and have a copy that is not.
    assert stats["reordered"] * 0.7 < len(late) <= stats["reordered"]


@families
def test_checksums_detect_corruption(lab, link, family):
    """Each corrupted packet is detected, except in IPv6's own header, which has no checksum."""
    with Flow(link, family) as flow:
        before = lab["far"].ns.counters()
        link.set("ab", corrupt=0.2)
        flow.send(2000)
        got, after = flow.received(), lab["far"].ns.counters()
        link.set("ab", corrupt=0)
        corrupted = link.stats("ab")["corrupted"]
    name = "UdpInCsumErrors" if family == 4 else "Udp6InCsumErrors"
    assert after[name] > before[name]
    assert len(got) >= 2000 - corrupted
    if family == 4:
        assert len(got) == 2000 - corrupted
        assert after["IpInHdrErrors"] > before["IpInHdrErrors"]


# ---- MTU -----------------------------------------------------------------------------------------


def choose_discovery(one, family, value):
    if family == 4:
        one.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, value)
    else:
        one.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, value)


@families
def test_oversized_packets_report_the_mtu(lab, link, family):
    """The sender's kernel learns the MTU from a router's message, and then respects it."""
    client, address = lab["client"], link.address("b", family)
    with Flow(link, family) as flow:
        link.set("ab", mtu=1300, router4="10.99.0.9", router6="fd00:99::9")
        choose_discovery(flow.source, family, PMTUDISC_DO)
        heard = lab.capture("client", link.name)
        flow.send(1, 1400)
        wait_until(lambda: path_mtu(client, address) == 1300, "the kernel has learnt the MTU")
        router = "10.99.0.9" if family == 4 else "fd00:99::9"
        heard.wait_for(
            lambda p: (p.haslayer("IP") and p["IP"].src == router)
            or (p.haslayer("IPv6") and p["IPv6"].src == router),
            "the router's message",
            outgoing=False,
        )
        flow.source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # of the first datagram
        with pytest.raises(OSError, match="too long"):
            flow.source.send(bytes(1400))
        flow.source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        flow.send(1, 1200)
        assert flow.received() == [0]
        stats = link.stats()
        assert stats["ab"]["drops"]["mtu"] == stats["ba"]["answers"] == 1


@families
def test_black_hole_drops_silently(lab, link, family):
    """Large packets are lost without an ICMP error."""
    with Flow(link, family) as flow:
        link.set("ab", mtu=1300, too_big="silent")
        choose_discovery(flow.source, family, PMTUDISC_PROBE)
        flow.send(5, 1400)
        flow.send(1, 1200)
        assert flow.received() == [0]
        stats = link.stats()
        assert stats["ab"]["drops"]["mtu"] == 5
        assert stats["ba"]["answers"] == 0
        assert path_mtu(lab["client"], link.address("b", family)) is None


def test_oversized_packets_are_fragmented_without_df(lab, link):
    """The receiver reassembles the fragments."""
    with Flow(link) as flow:
        before = lab["far"].ns.counters()
        link.set("ab", mtu=700)
        choose_discovery(flow.source, 4, PMTUDISC_DONT)
        flow.send(10, 1400)
        assert flow.received() == list(range(10))
        assert lab["far"].ns.counters()["IpReasmOKs"] - before["IpReasmOKs"] == 10
        assert link.stats("ab")["fragmented"] == 10


# ---- TCP -----------------------------------------------------------------------------------------

SIZE = 50_000_000
BAD = {"delay_us": 300, "jitter_us": 200, "loss": 0.002, "duplicate": 0.002}
BAD |= {"reorder": 0.01, "reorder_distance": 4, "corrupt": 0.0005}


def pour(one, content):
    one.sendall(content)
    one.shutdown(socket.SHUT_WR)


def test_tcp_transfers_arrive_whole(lab, link):
    """50 MB in each direction at once over a bad link, one connection each of IPv4 and IPv6."""
    content = os.urandom(SIZE // 2)
    ends, sums = [], {}
    link.set(**BAD)

    def drain(key, one):
        found = hashlib.sha256()
        while part := one.recv(1 << 18):
            found.update(part)
        sums[key] = found.digest()

    for family in (4, 6):
        listener = lab["far"].ns.socket(inet(family))
        listener.bind((link.address("b", family), PORT))
        listener.listen(1)
        near = lab["client"].ns.socket(inet(family))
        near.settimeout(120)
        near.connect((link.address("b", family), PORT))
        far, _ = listener.accept()
        far.settimeout(120)
        listener.close()
        ends += [near, far]
    threads = [threading.Thread(target=pour, args=(one, content)) for one in ends]
    threads += [threading.Thread(target=drain, args=item) for item in enumerate(ends)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in ends:
        one.close()
    expected = hashlib.sha256(content).digest()
    assert [sums[n] for n in range(4)] == [expected] * 4
    for stats in (link.stats("ab"), link.stats("ba")):
        assert all(n for name, n in fates(stats).items() if not name.startswith("burst")), stats
        assert stats["drops"]["receive-ring"] == stats["drops"]["send"] == 0


# ---- what it refuses, and how it ends ------------------------------------------------------------


def test_offloaded_frames_are_refused(lab, link):
    """Frames that need a device's checksum or segmentation, under their own counters."""
    client = lab["client"].ns
    with Flow(link) as flow:
        client.run(["ethtool", "-K", link.name, "tx", "on"])
        flow.send(3)
        assert link.stats("ab")["drops"]["unfinished-sum"] == 3
        client.run(["ethtool", "-K", link.name, "gso", "on", "tx-udp-segmentation", "on"])
        flow.source.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        flow.send(2, 4000)
        assert link.stats("ab")["drops"]["oversize"] == 2
        assert flow.received() == []
        offload = ["tx", "off", "gso", "off", "tx-udp-segmentation", "off"]
        client.run(["ethtool", "-K", link.name, *offload])


def test_vlan_tags_arrive(lab, link):
    """A VLAN tag that the sender left to offload is in the arriving frame."""
    with lab["far"].ns.entered():
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    with wire:
        wire.bind((link.name, ETH_P_ALL))
        wire.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        wire.settimeout(30)
        with Flow(link) as flow, tagging(lab, "client", 5, link.name):
            flow.send(1)
            while True:
                data, ancillary, _, _ = wire.recvmsg(2000, 64)
                if data.endswith(b"." * 96):
                    break
        # struct tpacket_auxdata: packet(7).
        assert struct.unpack_from("IIIHHHH", ancillary[0][2])[-2:] == (5, 0x8100)


def test_realtime_runs_before_other_programs(lab):
    with Link(lab, "client", "far", options=["--realtime"]) as link:
        assert os.sched_getscheduler(link.process.pid) == os.SCHED_FIFO
        assert rtts(lab, link.address("b"), 1)


def test_invalid_commands_change_nothing(link):
    """Each error message names the mistake."""
    before = link.stats("ab")["params"]
    for line, complaint in (
        ("set ab loss 2", "loss needs a share"),
        ("set ab delay 5ms loss 200%", "loss needs a share"),
        ("set sideways delay 5ms", "ab, ba or both"),
        ("dance", "the commands are"),
    ):
        with pytest.raises(CommandFailed, match=complaint):
            link.tell(line)
    assert link.stats("ab")["params"] == before


def test_hosts_cable_is_restored(lab):
    """A host's cable is replaced and restored, also after the program was killed."""
    router = "10.0.0.2"
    with Link(lab, "client", delay_ms=20) as link:
        assert min(rtts(lab, router, 3)) >= 40
        link.process.kill()
        lost = lab["client"].ns.run(["ping", "-c1", "-W1", router], check=False)
        assert lost.returncode
        link.control.close()
        link.start_program()
        assert min(rtts(lab, router, 3)) >= 40
        link.process.kill()
    assert rtts(lab, router, 3)
    check_cable(lab, link)


def check_cable(lab, link):
    """The cable is where it was before the link, and nothing else remains."""
    assert link.name not in lab.network.hosts
    assert not link.ns.path.exists()
    (cable,) = json.loads(lab["switch"].ns.run(["ip", "-j", "link", "show", "client-eth0"]))
    assert cable["master"] == "br-front"
    assert lab["switch"].ns.ip(f"link show dev {link.name}", check=False).returncode


class NotMoved(Link):
    """The host's cable stays in place."""

    def _splice(self):
        self.bridge = "br-front"
        raise CommandFailed("File exists")


class NameTaken(Link):
    """The new cable cannot be created after the host's was removed."""

    def _splice(self):
        self.ns.ip("link add end-b type bridge")
        super()._splice()


@pytest.mark.parametrize("kind", (NotMoved, NameTaken))
def test_failed_start_restores_the_cable(lab, kind):
    """If the start fails halfway, the original error is reported, and the first half undone."""
    link = kind(lab, "client")
    with pytest.raises(CommandFailed, match="File exists"), link:
        pass
    check_cable(lab, link)
    assert rtts(lab, "10.0.0.2", 1)


ABANDONED = """
import os, signal
from tests.lab import Lab
from tests.lab.link import Link
lab = Lab(arms=1, servers=0).__enter__()
link = Link(lab, "client", delay_ms=1).start()
print(lab.id, link.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_owner_ends_the_program():
    """The program ends with its owner, and the next lab removes the rest."""
    child = subprocess.run(
        [sys.executable, "-c", ABANDONED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    lab_id, pid = child.stdout.split()
    wait_until(lambda: not running(pid), "the link has ended")
    reap.reap_dead()
    assert not list(reap.NETNS.glob(f"{lab_id}-*"))
    assert not (reap.LABS / lab_id).exists()


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_command_line_errors_exit():
    """The help names every parameter, and invalid arguments end the program."""
    told = subprocess.run([LINK, "--help"], capture_output=True, text=True, check=True).stdout
    names = predict(1)["ab"]["params"]
    assert all(re.search(rf"^  {name} ", told, re.M) for name in names)
    for words in ([], ["--a", "lo"], ["--a", "none0", "--b", "none1"], ["--predict", "x"]):
        done = subprocess.run([LINK, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "steelyard-link: " in done.stderr


def test_commands_by_standard_input(lab):
    """One command per line; end of file ends the program."""
    with Link(lab, "client", "far") as link:
        link.process.stop()
        argv = link.ns.command([LINK, "--a", "end-a", "--b", "end-b", "--stdin"])
        done = subprocess.run(
            argv,
            input="set ab delay 1ms\nstats\nset ab delay 1\n",
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **SANITIZED},
        )
        said = done.stdout.splitlines()
        assert said[0] == "ok"
        assert json.loads(said[1])["ab"]["params"]["delay"] == 1_000_000
        assert said[2].startswith("error: delay needs a time")
        assert "ba" in json.loads(said[3])
