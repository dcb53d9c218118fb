# SPDX-License-Identifier: Apache-2.0
"""Services without an available server, and ports without a service: the errors that kernels'
clients see, in every mode and family."""

import socket

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, dns_txt, http_get
from tests.lab.mode_table import ROWS
from tests.lab.process import run
from tests.lab.servers import start_nginx
from tests.lab.steelyard import DNS, VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.mode_stage import ModeStage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
rows = pytest.mark.parametrize("row", ROWS, ids=str)
settings = pytest.mark.parametrize("setting", ("reset", "icmp"))
CLOSED = 5000  # a port without a service
REFUSED = 7  # curl's exit status
MANY = 3000


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def mode_stage(request):
    with ModeStage(arms=1, workers=request.param, queues=request.param) as stage:
        yield stage


@pytest.fixture
def modes(mode_stage, request):
    yield from check_accounting(mode_stage, request)


def quiesce(stage, *services, **spread):
    """No server of the services accepts new sessions."""
    for name in services:
        service = stage.config[name]
        service.spread |= spread
        for server in service.servers:
            server.weight = 0
    stage.apply()


def datagram_socket(host, address, port):
    one = host.ns.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    one.settimeout(60)
    one.connect((address, port))
    return one


def check_refused(host, address, port, datagrams=None):
    """A connection, and a datagram from its own port, fail at once and not by a timeout."""
    with pytest.raises(ConnectionRefusedError):
        connect(host, address, port)
    with datagram_socket(host, address, datagrams or port) as one:
        one.send(b"x")
        with pytest.raises(ConnectionRefusedError):
            one.recv(1)


def check_silent(host, address, port, datagrams=None):
    with pytest.raises(TimeoutError):
        connect(host, address, port, timeout_s=0.5)
    with datagram_socket(host, address, datagrams or port) as one:
        one.settimeout(0.5)
        one.send(b"x")
        with pytest.raises(TimeoutError):
            one.recv(1)


def curl(host, address, port):
    """Returns curl's exit status."""
    name = f"[{address}]" if ":" in address else address
    argv = ["curl", "--silent", "--max-time", "60", f"http://{name}:{port}/"]
    return host.ns.run(argv, check=False).returncode


def answers(stage, name):
    """Returns resets and ICMP errors that a service's clients were sent."""
    sent = stage.steelyard.service(name).get("unavailable_answers", {})
    return sent.get("resets", 0), sent.get("icmp", 0)


@pytest.mark.drops("no-server", "no-session")
@rows
@settings
def test_reset_refuses_clients_at_once(modes, row, setting):
    far, web, dns = modes.lab["far"], f"web-{row}", f"dns-{row}"
    quiesce(modes, web, dns, when_unavailable=setting, syn_defence="off")
    modes.config[dns].spread.pop("syn_defence")
    modes.apply()
    before = answers(modes, web), answers(modes, dns)
    check_refused(far, row.vip, *row.ports)
    assert curl(far, row.vip, row.ports[0]) == REFUSED
    resets, errors = before[0]
    expected = (resets + 2, errors) if setting == "reset" else (resets, errors + 2)
    assert answers(modes, web) == expected
    assert answers(modes, dns) == (before[1][0], before[1][1] + 1)
    modes.restore()
    assert http_get(far, row.vip, row.ports[0])
    assert dns_txt(far, row.vip, row.ports[1])


@pytest.mark.drops("no-server")
@rows
def test_drop_lets_clients_time_out(modes, row):
    names = f"web-{row}", f"dns-{row}"
    quiesce(modes, *names, when_unavailable="drop")
    before = [answers(modes, name) for name in names]
    check_silent(modes.lab["far"], row.vip, *row.ports)
    assert [answers(modes, name) for name in names] == before


@pytest.mark.drops("no-server", "syn-proof", "no-session")
@rows
def test_syn_defence_accepts_no_connection(modes, row):
    web = f"web-{row}"
    quiesce(modes, web, syn_defence="always")
    before = answers(modes, web)
    with pytest.raises(ConnectionRefusedError):
        connect(modes.lab["far"], row.vip, row.ports[0])
    assert answers(modes, web) == (before[0] + 1, before[1])


@pytest.mark.drops("no-server", "no-session", "server-removed")
@families
def test_failed_checks_refuse_clients_until_a_server_returns(stage, family):
    names = [host.name for host in stage.lab.servers()]
    for name in names:
        stage.nginx[name].stop()
    for name in names:
        stage.steelyard.wait_server(f"web{family}", stage.lab[name].address(family), "down")
    assert curl(stage.client, VIP[family], WEB) == REFUSED
    stage.nginx[names[0]] = start_nginx(stage.lab, names[0])
    stage.steelyard.wait_server(f"web{family}", stage.lab[names[0]].address(family), "up")
    assert http_get(stage.client, VIP[family], WEB).decode().strip() == names[0]


@pytest.mark.drops("no-server", "no-session")
@families
def test_describe_and_metrics_count_answers(stage, family):
    name = f"web{family}"
    quiesce(stage, name)
    before = answers(stage, name)
    with pytest.raises(ConnectionRefusedError):
        connect(stage.client, VIP[family], WEB)
    assert answers(stage, name) == (before[0] + 1, before[1])
    text = stage.steelyard.cli("describe", "service", name)
    assert f"No server:  reset; sent {before[0] + 1} reset" in text


@pytest.mark.drops("connection-limit", "no-session")
@families
def test_full_service_refuses_clients(stage, family):
    stage.config[f"echo{family}"].spread |= {"max_sessions": 1}
    stage.apply()
    service = stage.config[f"echo{family}"]
    stage.begin_again(service)
    with connect(stage.client, VIP[family], service.port), pytest.raises(ConnectionRefusedError):
        connect(stage.client, VIP[family], service.port)


@pytest.mark.drops("no-server", "icmp-rate", "overload", "steering-full")
@families
def test_answers_are_rate_limited(stage, family):
    """Each datagram is answered or counts as suppressed, except those that an overloaded worker
    drops, or cannot receive from another one."""
    name = f"dns{family}"
    quiesce(stage, name)
    before = answers(stage, name)[1]
    kind = socket.AF_INET if family == 4 else socket.AF_INET6

    def dropped(reason):
        return stage.accounting.dropped().get(reason, 0)

    def is_suppressed():
        for _ in range(MANY):
            out.sendto(b"steelyard", (VIP[family], DNS))
        return dropped("icmp-rate") > 0

    with stage.client.ns.socket(kind, socket.SOCK_DGRAM) as out:
        wait_until(is_suppressed, "answers are suppressed")

    def adds_up():
        answered = answers(stage, name)[1] - before
        return answered > 0 and answered + dropped("icmp-rate") == dropped("no-server")

    wait_until(adds_up, "each datagram is answered or suppressed")


def is_refused(stage, family):
    try:
        one = connect(stage.client, VIP[family], CLOSED, timeout_s=1)
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        return False
    with one:  # name the ends: getpeername() fails if the socket is not connected
        raise AssertionError(f"connected: {one.getsockname()} to {one.getpeername()}")


def wait_refused(stage, family):
    wait_until(lambda: is_refused(stage, family), "what was dropped early is answered")


@pytest.mark.drops("no-service", "no-session")
@settings
def test_unknown_ports_option_answers_clients(stage, setting):
    """`--unknown-ports` also applies across an upgrade; without it the ports are silent, and early
    drops are back."""
    check_silent(stage.client, VIP[4], CLOSED)
    try:
        stage.steelyard.upgrade(options=("--unknown-ports", setting))
        stage.steelyard.wait_reconnected()
        for family in (4, 6):
            wait_refused(stage, family)
            check_refused(stage.client, VIP[family], CLOSED)
            assert http_get(stage.client, VIP[family], WEB)
    finally:
        stage.steelyard.restart_forwarder()
        stage.steelyard.wait_reconnected()
    check_silent(stage.client, VIP[6], CLOSED)


def test_unknown_ports_option_lists_its_values(stage):
    done = run([stage.steelyard.forwarder_argv()[0], "--unknown-ports", "no"], check=False)
    assert "--unknown-ports no: must be drop, reset or icmp" in done.stderr
