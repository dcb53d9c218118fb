# SPDX-License-Identifier: Apache-2.0
"""Forged resets end no session, true ones do; sessions of removed servers are reset."""

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.clients import abort, connect, receive_exactly
from tests.lab.steelyard import VIP
from tests.wire.stage import ECHO

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


def session_of(stage, family, port):
    found = stage.steelyard.sessions("--service", f"echo{family}")
    return next((s for s in found if s["client_port"] == port), None)


def open_echo(stage, family):
    one = connect(stage.client, VIP[family], ECHO)
    echo(one)
    return one, one.getsockname()[1]


def echo(one):
    one.sendall(b"x")
    assert receive_exactly(one, 1) == b"x"


def forge(stage, host, port, source, target, flags, count=1):
    """Sends TCP segments from any address, with numbers that an attacker guesses."""
    ns = stage.lab[host].ns
    layer = IPv6 if ":" in source[0] else IP
    wire = stage.lab.capture(host)
    mac = stage.lab["forwarder"].ns.mac(port)
    for n in range(count):
        segment = TCP(sport=source[1], dport=target[1], flags=flags, seq=n * 0x1234567, ack=n)
        wire.send(
            Ether(src=ns.mac("eth0"), dst=mac) / layer(src=source[0], dst=target[0]) / segment
        )


def forge_client(stage, family, port, flags, count=1):
    source = stage.client.address(family), port
    forge(stage, "client", "front", source, (VIP[family], ECHO), flags, count)


def forge_server(stage, session, flags, count=1):
    source = session["server"], session["server_port"]
    target = session["local"], session["local_port"]
    forge(stage, "s2", "back", source, target, flags, count)


def check_session(stage, family, port):
    def established():
        session = session_of(stage, family, port)
        return session and session["state"] == "established"

    wait_until(established, "the session is what it was")


@families
@pytest.mark.parametrize("count", (1, 30), ids=("one", "burst"))
def test_forged_resets_end_no_session(stage, family, count):
    """Afterwards only the probed ends send, and the session has its old timeout."""
    stage.config[f"echo{family}"].timeouts = {"reset": "2s"}
    stage.apply()
    one, port = open_echo(stage, family)
    with one:
        forge_client(stage, family, port, "R", count)
        check_session(stage, family, port)
        forge_server(stage, session_of(stage, family, port), "RA", count)
        check_session(stage, family, port)
        assert session_of(stage, family, port)["expires_s"] > 60
        echo(one)


@families
def test_forged_syn_after_forged_reset_moves_no_session(stage, family):
    one, port = open_echo(stage, family)
    with one:
        before = session_of(stage, family, port)
        forge_client(stage, family, port, "R")
        forge_client(stage, family, port, "S", 3)
        check_session(stage, family, port)
        now = session_of(stage, family, port)
        assert [now[key] for key in ("server", "local_port")] == [
            before[key] for key in ("server", "local_port")
        ]
        echo(one)


@families
def test_forged_fins_shorten_no_timeout(stage, family):
    one, port = open_echo(stage, family)
    with one:
        forge_client(stage, family, port, "FA", 2)
        forge_server(stage, session_of(stage, family, port), "FA", 2)
        forge_client(stage, family, port, "S")
        wait_until(
            lambda: session_of(stage, family, port)["state"] == "closing",
            "both have closed, it seems",
        )
        assert session_of(stage, family, port)["expires_s"] > 60
        echo(one)


@pytest.mark.drops("no-session")
@families
def test_true_resets_end_a_session(stage, family):
    stage.config[f"echo{family}"].timeouts = {"reset": "1s"}
    stage.apply()
    one, port = open_echo(stage, family)
    abort(one)
    wait_until(lambda: not session_of(stage, family, port), "the session is gone")


@pytest.mark.drops("server-removed", "no-session")
@families
def test_client_of_a_removed_server_is_reset_at_once(stage, family):
    """The client waits for data without sending: the forwarder probes it."""
    service = stage.config[f"echo{family}"]
    one, _ = open_echo(stage, family)
    with one:
        service.servers = []
        stage.apply()
        with pytest.raises(ConnectionResetError):
            one.recv(1)


@pytest.mark.drops("server-removed", "no-session")
@families
def test_client_of_a_removed_service_is_reset(stage, family):
    one, _ = open_echo(stage, family)
    with one:
        stage.config.services.remove(stage.config[f"echo{family}"])
        stage.apply()
        with pytest.raises(ConnectionResetError):
            one.recv(1)
