# SPDX-License-Identifier: Apache-2.0
"""Other programs change kernel state that the forwarder needs: it restores its own, and reports the
host's with a remedy while the problem lasts.

docs/troubleshooting.md lists all cases. The sweep is off: each case is detected by its event, or by
the check of state without events."""

import contextlib
import copy
import re

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import http_get
from tests.lab.steelyard import FAST_CHECKS, SERVER_WEB, VIP, WEB
from tests.lab.topology import FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
DIRECT = {4: v4(FRONT, 81), 6: v6(FRONT, 81)}
pytestmark = pytest.mark.drops("no-session", "no-route", "no-neighbour", "neighbour-queue")


class KernelStage(Stage):
    def start(self):
        for host in self.lab.servers():
            host.ns.sysctl("ipv4.conf.all.arp_ignore", 1)
            host.ns.ip(f"address add {DIRECT[4]}/32 dev lo")
            host.ns.ip(f"address add {DIRECT[6]}/128 dev lo nodad")
        super().start()

    def begin(self):
        options = self.steelyard.forwarder_options
        self.steelyard.forwarder_options = lambda: [*options(), "--sweep", 3600]
        for family in (4, 6):
            servers = [Server(h.address(family), SERVER_WEB) for h in self.lab.servers()]
            check = {"type": "http", "path": "/healthz"} | FAST_CHECKS
            self.config.services.append(
                Service(
                    f"direct{family}",
                    DIRECT[family],
                    SERVER_WEB,
                    mode="dr",
                    health=check,
                    servers=servers,
                )
            )
        self.default = copy.deepcopy(self.config)
        super().begin()
        wait_until(lambda: self.status().marks_active, "checks go to the VIP")

    def status(self):
        return self.steelyard.api.call("GetStatus").forwarder.status

    @property
    def ns(self):
        return self.lab["forwarder"].ns

    def warns(self, pattern):
        return next((text for text in self.status().warnings if re.search(pattern, text)), None)


@pytest.fixture(scope="module")
def kernel_stage():
    with KernelStage() as stage:
        yield stage


@pytest.fixture
def host(kernel_stage, request):
    yield from check_accounting(kernel_stage, request)


def serves(host, family):
    """A client with an empty neighbour table is served."""
    host.client.ns.ip(f"neigh flush {VIP[family]}")
    with contextlib.suppress(OSError):
        return http_get(host.client, VIP[family], WEB, timeout_s=1)


def shown(host, words, text=""):
    """Returns whether a command succeeds and prints the text."""
    done = host.ns.run(words.split(), check=False)
    return done.returncode == 0 and text in done.stdout


def wait_restored(host, words, text):
    wait_until(lambda: shown(host, words, text), f"{text} is restored")


LOCAL4 = "ip route show table local proto 201"
GUARD = "nft list table inet steelyard"


def test_flushed_nftables_ruleset_is_restored(host):
    """As Debian's nftables.conf begins. The whole guard returns, and new VIPs are accepted."""
    intact = host.ns.run(GUARD.split())
    before = host.status().kernel_restored
    host.ns.run(["nft", "flush", "ruleset"])
    wait_restored(host, GUARD, intact)
    wait_until(lambda: host.status().kernel_restored > before, "the repair is counted")
    host.ns.run(["nft", "flush", "chain", "inet", "steelyard", "output"])
    wait_restored(host, GUARD, intact)
    host.ns.run(["nft", "flush", "set", "inet", "steelyard", "claimed4"])
    wait_restored(host, GUARD, intact)
    host.ns.run(["nft", "add", "table", "inet", "steelyard", "{ flags dormant; }"])
    wait_restored(host, GUARD, intact)


@families
def test_new_vip_after_a_flushed_ruleset_is_served(host, family):
    """At once, whether or not the event was received."""
    vip = {4: v4(FRONT, 90), 6: v6(FRONT, 90)}[family]
    server = Server(host.lab["s1"].address(family), SERVER_WEB)
    host.ns.run(["nft", "flush", "ruleset"])
    host.config.services.append(Service("new", vip, WEB, servers=[server]))
    host.apply()
    assert http_get(host.client, vip, WEB)
    wait_until(lambda: shown(host, GUARD, vip), "the guard has it")


def test_flushed_addresses_of_lo_are_restored(host):
    """The kernel removes all IPv4 routes on lo, without an event for them."""
    host.ns.ip("address flush dev lo")
    try:
        for vip in (VIP[4], DIRECT[4]):
            wait_restored(host, LOCAL4, f"{vip} ")
        assert wait_until(lambda: serves(host, 4), "VIPs are served")
    finally:
        host.ns.ip("address add 127.0.0.1/8 dev lo")
        host.ns.ip("address add ::1/128 dev lo", check=False)


def test_routes_of_lo_are_restored_after_a_flap(host):
    """The kernel removes them silently, and accepts them again while lo is down."""
    host.ns.ip("link set lo down")
    wait_restored(host, LOCAL4, f"{VIP[4]} ")
    host.ns.ip("link set lo up")
    assert wait_until(lambda: serves(host, 4), "the VIP is served")
    host.steelyard.wait_all_up()


@families
def test_deleted_claim_is_restored(host, family):
    before = host.status().kernel_restored
    if family == 4:
        host.ns.ip(f"route del local {VIP[4]} table local")
        wait_restored(host, LOCAL4, f"{VIP[4]} ")
    else:
        host.ns.ip(f"address del {VIP[6]}/128 dev front")
        wait_restored(host, "ip -6 address show dev front", f"{VIP[6]}/128")
    wait_until(lambda: host.status().kernel_restored > before, "the repair is counted")
    assert wait_until(lambda: serves(host, family), "the VIP is served")


@pytest.mark.parametrize("beside", (True, False), ids=("beside", "instead"))
def test_vip_on_an_interface_is_reported(host, beside):
    """The warning stays while the address does: the kernel would answer packets for the VIP."""
    if not beside:  # keepalived adds it beside the forwarder's own route
        host.ns.ip(f"route del local {VIP[4]} table local")
    host.ns.ip(f"address add {VIP[4]}/32 dev back", check=False)
    said = wait_until(lambda: host.warns("was configured on this host, too"), "it is reported")
    assert VIP[4] in said
    host.ns.ip(f"address del {VIP[4]}/32 dev back")
    wait_restored(host, LOCAL4, f"{VIP[4]} ")
    wait_until(lambda: not host.warns("was configured"), "the warning is gone")


@pytest.mark.parametrize("dev", ("lo", "back"))
def test_deleted_clsact_is_restored(host, dev):
    """It includes the tc programs of health checks."""
    before = host.status().kernel_restored
    host.ns.run(["tc", "qdisc", "del", "dev", dev, "clsact"])
    wait_until(lambda: host.status().kernel_restored > before, "the program is restored")
    host.steelyard.wait_all_up()
    assert shown(
        host, f"tc filter show dev {dev} {'egress' if dev == 'lo' else 'ingress'}", "check_"
    )


def test_accept_local_is_restored(host):
    host.ns.sysctl("ipv4.conf.lo.accept_local", 0)
    wait_until(
        lambda: shown(host, "sysctl -n net.ipv4.conf.lo.accept_local", "1"), "it is set again"
    )
    host.steelyard.wait_all_up()


@pytest.mark.parametrize(("scope", "value"), (("all", 1), ("all", 2), ("front", 8)))
def test_arp_ignore_is_reported(host, scope, value):
    host.ns.sysctl(f"ipv4.conf.{scope}.arp_ignore", value)
    said = wait_until(lambda: host.warns(rf"port front.*{scope}.arp_ignore is {value}"), "reported")
    assert f"sysctl -w net.ipv4.conf.{scope}.arp_ignore=0" in said
    assert host.status().kernel_problems
    assert "arp_ignore" in host.steelyard.cli("get", "status")
    host.ns.sysctl(f"ipv4.conf.{scope}.arp_ignore", 0)
    wait_until(lambda: not host.warns("arp_ignore"), "the warning is gone")
    assert wait_until(lambda: serves(host, 4), "the VIP is served")


def test_disabled_ipv6_of_a_port_is_restored(host):
    """The kernel removes all IPv6 addresses of the port. Steelyard's return with IPv6."""
    host.ns.sysctl("ipv6.conf.front.disable_ipv6", 1)
    said = wait_until(lambda: host.warns("front.disable_ipv6 is 1"), "it is reported")
    assert "sysctl -w net.ipv6.conf.front.disable_ipv6=0" in said
    host.ns.sysctl("ipv6.conf.front.disable_ipv6", 0)
    host.ns.ip(f"address add {v6(FRONT, 1)}/64 dev front nodad")
    for vip in (VIP[6], DIRECT[6]):
        wait_restored(host, "ip -6 address show dev front", f"{vip}/128")
    host.ns.ip("-6 route replace fd00:9::/64 via fd00::2")
    wait_until(lambda: not host.warns("disable_ipv6"), "the warning is gone")
    assert wait_until(lambda: serves(host, 6), "the VIP is served")


def test_disabled_ipv6_of_lo_is_reported(host):
    host.ns.sysctl("ipv6.conf.lo.disable_ipv6", 1)
    wait_until(lambda: host.warns("lo.disable_ipv6 is 1"), "it is reported")
    host.ns.sysctl("ipv6.conf.lo.disable_ipv6", 0)
    wait_until(lambda: not host.warns("disable_ipv6"), "the warning is gone")
    host.steelyard.wait_all_up()


@pytest.mark.parametrize("value", (1, 2), ids=("strict", "loose"))
def test_rp_filter_harms_nothing(host, value):
    """Answers to health checks from VIPs arrive by lo, where the claim is."""
    scopes = ("all", "lo", "front", "back")
    for scope in scopes:
        host.ns.sysctl(f"ipv4.conf.{scope}.rp_filter", value)
    try:
        pid = host.status().pid
        s1 = host.lab["s1"].v4
        host.nginx["s1"].stop()
        host.steelyard.wait_server("direct4", s1, "down")
        host.revive()
        host.steelyard.wait_server("direct4", s1, "up")
        assert serves(host, 4) and host.status().pid == pid
    finally:
        for scope in scopes:
            host.ns.sysctl(f"ipv4.conf.{scope}.rp_filter", 0)


@pytest.fixture
def pin(host):
    """Returns the pinned XDP link of front."""
    line = next(line for line in host.ns.ip("-o link").splitlines() if " front@" in line)
    return f"/sys/fs/bpf/steelyard/{host.ns.inode()}-{line.partition(':')[0]}"


def test_detached_xdp_link_is_reattached(host, pin):
    before = host.status().kernel_restored
    host.ns.run(["bpftool", "link", "detach", "pinned", pin])
    wait_until(lambda: host.status().kernel_restored > before, "it is attached again")
    for family in (4, 6):
        assert wait_until(lambda f=family: serves(host, f), "VIPs are served")


def test_removed_pin_is_restored(host, pin):
    host.ns.run(["rm", pin])
    wait_restored(host, f"ls {pin}", pin)


# ---- policy routing ------------------------------------------------------------------------------


@contextlib.contextmanager
def ip_added(ns, flags, what):
    ns.ip(f"{flags} {what.replace(' ', ' add ', 1)}".strip())
    try:
        yield
    finally:
        ns.ip(f"{flags} {what.replace(' ', ' del ', 1)}".strip())


def try_get(host, source, family, **options):
    with contextlib.suppress(OSError):
        return http_get(host.lab[source], VIP[family], WEB, timeout_s=1, **options)


def is_refused(host, source, family):
    """Returns whether the client's new sessions are dropped, and the drop is counted."""
    before = host.steelyard.drops().get("no-route", 0)
    return not try_get(host, source, family) and host.steelyard.drops()["no-route"] > before


@pytest.mark.parametrize(
    "rule",
    ("fwmark 1", "iif lo", "iif eth9", "oif front", "uidrange 5-9", "to 10.0.0.10 table main"),
)
def test_rules_for_no_packet_are_ignored(host, rule):
    """No warning, and all clients are served."""
    table = "" if "table" in rule else " table 100"
    with (
        ip_added(host.ns, "", f"rule {rule}{table} pref 50"),
        ip_added(host.ns, "", "rule to 10.99.0.0/16 table 100 pref 51"),
    ):
        wait_until(lambda: host.warns("priority 51"), "the rules are read")
        assert not host.warns("priority 50")
        assert serves(host, 4) and serves(host, 6)
    wait_until(lambda: not host.warns("policy routing"), "the warning is gone")


@families
@pytest.mark.parametrize("word", ("to", "from"))
def test_rule_refuses_only_its_packets(host, family, word):
    """The client or the VIP is refused; others are served, and so is the other family."""
    flag, client = {4: "", 6: "-6"}[family], host.client.name
    address = host.lab["client"].address(family) if word == "to" else VIP[family]
    with ip_added(host.ns, flag, f"rule {word} {address} table 100 pref 60"):
        said = wait_until(lambda: host.warns(rf"{word} {address}/"), "it is reported")
        assert "rule del pref 60" in said
        wait_until(lambda: is_refused(host, client, family), "its packets are dropped")
        assert serves(host, 10 - family)
        if word == "to":
            assert try_get(host, "far", family)
    wait_until(lambda: not host.warns("policy routing"), "the warning is gone")
    assert wait_until(lambda: serves(host, family), "the client is served")


def test_rule_for_all_packets_covers_one_family(host):
    with ip_added(host.ns, "-6", "rule not fwmark 1 table 100 pref 60"):
        wait_until(lambda: host.warns("IPv6 rule.*all packets"), "it is reported")
        wait_until(lambda: is_refused(host, "client", 6), "its packets are dropped")
        assert serves(host, 4)
    wait_until(lambda: not host.warns("policy routing"), "the warning is gone")
    assert wait_until(lambda: serves(host, 6), "the client is served")


def test_route_by_tos_is_reported_and_spares_plain_packets(host):
    """Packets without it use the plain routes."""
    with ip_added(host.ns, "", "route 10.9.0.0/24 tos 0x10 via 10.0.0.2"):
        wait_until(lambda: host.warns("type of service"), "it is reported")
        assert try_get(host, "client", 4)
        assert wait_until(lambda: try_get(host, "far", 4), "plain packets to it are forwarded")
    wait_until(lambda: not host.warns("policy routing"), "the warning is gone")


def test_route_by_source_is_reported_and_spares_others(host):
    with ip_added(host.ns, "-6", "route fd00:9::/64 from fd00:77::/64 via fd00::2"):
        wait_until(lambda: host.warns("source address"), "it is reported")
        assert wait_until(lambda: try_get(host, "far", 6), "packets of others are forwarded")
    wait_until(lambda: not host.warns("policy routing"), "the warning is gone")


def test_repairs_and_problems_are_logged(host):
    log = host.steelyard.forwarder.output()
    assert "restored what another program had removed: nftables table inet steelyard" in log
    assert "no longer: " in log
