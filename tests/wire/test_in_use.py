# SPDX-License-Identifier: Apache-2.0
"""VIPs that another host uses: the forwarder does not claim them silently, and warns of
conflicts."""

import socket

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from tests.lab import Lab, Server, Service, wait_until
from tests.lab.clients import http_get
from tests.lab.config import Config
from tests.lab.servers import start_nginx
from tests.lab.steelyard import SERVER_WEB, WEB, Steelyard, local_addresses
from tests.lab.topology import FRONT, v4, v6

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
VIP = {4: v4(FRONT, 95), 6: v6(FRONT, 95)}
LENGTH = {4: 24, 6: 64}
IN_USE = "is in use by another host"


@pytest.fixture(scope="module")
def steelyard():
    """New addresses are probed; `router` is the other host."""
    with Lab() as lab:
        start_nginx(lab, "s1")
        one = Steelyard(lab, Config(local_addresses(lab.network.back_net)), probe=True)
        one.start()
        yield one


@pytest.fixture
def other(steelyard):
    """Yields another host on the VIPs' network. At the end it has no VIP, and there is no
    service."""
    host = steelyard.lab["router"].ns
    yield host
    for family in (4, 6):
        host.ip(f"address del {VIP[family]}/{LENGTH[family]} dev {port_of(host)}", check=False)
    steelyard.config.services = []
    steelyard.apply()
    wait_until(lambda: not warnings(steelyard), "there is no warning left")


def port_of(ns):
    """Returns its interface on the front network."""
    lines = ns.ip("-o -4 address").splitlines()
    return next(line.split()[1] for line in lines if " 10.0.0." in line)


def give(ns, family):
    ns.ip(f"address add {VIP[family]}/{LENGTH[family]} dev {port_of(ns)} nodad")


def take_away(ns, family):
    ns.ip(f"address del {VIP[family]}/{LENGTH[family]} dev {port_of(ns)}")


def warnings(steelyard):
    found = steelyard.api.call("GetStatus").forwarder.status.warnings
    return [text for text in found if any(VIP[family] in text for family in (4, 6))]


def is_claimed(steelyard, vip):
    ns = steelyard.lab["forwarder"].ns
    return vip in ns.ip("route show table local proto 201") + ns.ip("-6 address show dev front")


def use(steelyard, vip, family):
    server = Server(steelyard.lab["s1"].address(family), SERVER_WEB)
    steelyard.config.services = [
        Service("web", vip, WEB, health={"type": "none"}, servers=[server])
    ]


@families
def test_free_address_is_claimed_when_apply_returns(steelyard, other, family):
    use(steelyard, VIP[family], family)
    answer = steelyard.apply()
    assert not answer.warnings
    assert is_claimed(steelyard, VIP[family])
    assert http_get(steelyard.lab["client"], VIP[family], WEB)


@families
def test_address_in_use_is_claimed_once_it_is_free(steelyard, other, family):
    give(other, family)
    use(steelyard, VIP[family], family)
    done = steelyard.cli("apply", "-", stdin=steelyard.config.text(), check=False)
    mac = other.mac(port_of(other))
    assert done.returncode == 0
    for said in (done.stderr, *warnings(steelyard)):
        assert f"{VIP[family]} {IN_USE} ({mac})" in said and "--force" in said
    assert not is_claimed(steelyard, VIP[family])
    take_away(other, family)
    wait_until(lambda: is_claimed(steelyard, VIP[family]), "it is claimed when it is free")
    wait_until(lambda: not warnings(steelyard), "there is no warning left")
    assert wait_until(
        lambda: http_get(steelyard.lab["client"], VIP[family], WEB), "the VIP is served"
    )


@families
def test_force_claims_an_address_in_use(steelyard, other, family):
    give(other, family)
    use(steelyard, VIP[family], family)
    steelyard.apply()
    assert not is_claimed(steelyard, VIP[family])
    done = steelyard.cli("apply", "--force", "-", stdin=steelyard.config.text(), check=False)
    assert done.returncode == 0 and is_claimed(steelyard, VIP[family])
    assert IN_USE not in done.stderr and "announces it, too" in done.stderr
    wait_until(lambda: any("announces it, too" in w for w in warnings(steelyard)), "a warning")


def test_invalid_address_is_refused(steelyard, other):
    """Without this check, the probe would find no host that has it."""
    use(steelyard, v4(FRONT, 255), 4)
    done = steelyard.cli("apply", "-", stdin=steelyard.config.text(), check=False)
    assert done.returncode and "is a broadcast address" in done.stderr


@families
def test_failed_claim_is_reported_and_retried(steelyard, other, family):
    """The host itself has the address, so the claim fails after the reply to the request."""
    ns, vip = steelyard.lab["forwarder"].ns, f"{VIP[family]}/{LENGTH[family]}"
    give(other, family)
    use(steelyard, VIP[family], family)
    steelyard.apply()
    assert not is_claimed(steelyard, VIP[family])
    ns.ip(f"address add {vip} dev front nodad")
    try:
        take_away(other, family)
        wait_until(lambda: any("this host has it" in w for w in warnings(steelyard)), "a warning")
    finally:
        ns.ip(f"address del {vip} dev front")
    wait_until(lambda: is_claimed(steelyard, VIP[family]), "it is claimed")
    wait_until(lambda: not warnings(steelyard), "there is no warning left")


def frame(family, mac, probe):
    """Returns another host's announcement of the VIP, or its probe before."""
    if family == 4:
        source = "0.0.0.0" if probe else VIP[4]
        arp = ARP(op=1, hwsrc=mac, psrc=source, hwdst="00:00:00:00:00:00", pdst=VIP[4])
        return bytes(Ether(src=mac, dst="ff:ff:ff:ff:ff:ff") / arp)
    if probe:
        group = "ff02::1:ff00:95"
        ether = Ether(src=mac, dst="33:33:ff:00:00:95")
        return bytes(ether / IPv6(src="::", dst=group, hlim=255) / ICMPv6ND_NS(tgt=VIP[6]))
    advert = ICMPv6ND_NA(tgt=VIP[6], R=0, S=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=mac)
    ether = Ether(src=mac, dst="33:33:00:00:00:01")
    return bytes(ether / IPv6(src=VIP[6], dst="ff02::1", hlim=255) / advert)


@families
@pytest.mark.parametrize("probe", (False, True), ids=("announced", "probed"))
def test_address_conflict_is_reported(steelyard, other, family, probe):
    """The forwarder warns at another host's announcement, and at its probe."""
    use(steelyard, VIP[family], family)
    steelyard.apply()
    mac, said = other.mac(port_of(other)), "checked" if probe else "announces it, too"
    with other.socket(socket.AF_PACKET, socket.SOCK_RAW) as one:
        one.bind((port_of(other), 0))

        def warned():
            one.send(frame(family, mac, probe))
            return any(mac in text and said in text for text in warnings(steelyard))

        wait_until(warned, "the holder is warned")
    assert is_claimed(steelyard, VIP[family])


@families
def test_announcements_of_another_vlan_are_ignored(steelyard, other, family):
    """The frames arrive by the same port, with a tag."""
    use(steelyard, VIP[family], family)
    steelyard.apply()
    mac, tagged = other.mac(port_of(other)), "02:00:00:00:77:01"
    with other.socket(socket.AF_PACKET, socket.SOCK_RAW) as one:
        one.bind((port_of(other), 0))

        def warned():
            one.send(frame(family, mac, False))
            untagged = frame(family, tagged, False)
            one.send(untagged[:12] + bytes.fromhex("8100004d") + untagged[12:])
            return warnings(steelyard)

        (said,) = wait_until(warned, "the holder is warned of the host of this network")
    assert mac in said and tagged not in said


@families
def test_restart_claims_without_probing(steelyard, other, family):
    """It claims addresses that it had at once, even if another host has them meanwhile."""
    use(steelyard, VIP[family], family)
    steelyard.apply()
    steelyard.kill_forwarder()
    give(other, family)
    steelyard.start_forwarder()
    steelyard.wait_reconnected()
    assert is_claimed(steelyard, VIP[family])
    assert not any(IN_USE in text for text in warnings(steelyard))
    steelyard.upgrade()
    steelyard.wait_reconnected()
    assert is_claimed(steelyard, VIP[family])
    assert not any(IN_USE in text for text in warnings(steelyard))


def test_address_outside_of_all_networks_is_not_probed(steelyard, other):
    """Routers send its packets to the hosts that have it, which may be several."""
    anycast = "10.77.0.1"
    other.ip(f"address add {anycast}/32 dev lo")
    try:
        use(steelyard, anycast, 4)
        assert not steelyard.apply().warnings
        assert is_claimed(steelyard, anycast)
    finally:
        other.ip(f"address del {anycast}/32 dev lo")


def test_unknown_probe_option_is_refused(steelyard):
    done = steelyard.lab["forwarder"].ns.run(
        steelyard.forwarder_argv("--port", "front", "--probe", "maybe"), check=False
    )
    assert done.returncode and "--probe maybe: must be on or off" in done.stderr
