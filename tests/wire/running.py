# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of `steelyard run`: a lab, programs on the stack, web sites.

Programs run on host `forwarder`; `client` uses Linux's TCP."""

import hashlib
import os

import pytest

from tests.lab import wait_until
from tests.lab.clients import http_get
from tests.lab.lab import Lab
from tests.lab.process import run
from tests.lab.run import run_command, start_run
from tests.lab.run_build import check_reports, sanitized_library
from tests.lab.servers import start_nginx, wait_listening

V4, V6 = "10.0.0.1", "fd00::1"
LARGE = 3_000_000
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))

LIGHTTPD = """\
server.document-root = "{dir}"
server.port = 8001
server.bind = "0.0.0.0"
$SERVER["socket"] == "[::]:8001" {{ }}
mimetype.assign = ( "" => "text/plain" )
"""


def sanitized(test):
    """With SY_BUILD=build/asan, the preloaded library is sanitized, too, so this test runs with
    both builds. All other tests use the optimised library with either build."""
    return pytest.mark.sanitized(pytest.mark.both_builds(test))


@pytest.fixture(scope="module")
def run_lab():
    """Programs run on `forwarder`, with two queues. `client` has a web server on Linux's TCP."""
    with Lab(arms=1, servers=0, queues=2) as lab:
        start_nginx(lab, "client")
        yield lab


@pytest.fixture
def stack(run_lab, request):
    """Stops what a test started, and checks that nothing remains."""
    lab = run_lab
    first = len(lab.processes)
    with sanitized_library(request.node.get_closest_marker("sanitized") is not None):
        yield lab
    for process in lab.processes[first:]:
        process.kill()
    lab["forwarder"].ns.kill_all()
    wait_until(lambda: not has_program(lab), "the XDP program is gone")
    check_reports(lab.processes[first:])


def has_program(lab):
    return "xdp" in lab["forwarder"].ns.ip("link show front")


def site(lab, name, text):
    """Makes a folder that unprivileged workers can read, with a configuration and a large file."""
    folder = lab.dir / name
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / "index.html").write_text("hello")
    (folder / "large").write_bytes(bytes(os.urandom(LARGE)))
    (folder / "conf").write_text(text.format(dir=folder, v4=V4))
    return folder


def start(lab, name, argv, port, *options, workers=1):
    process = start_run(lab, name, argv, *options, workers=workers)
    wait_listening(lab["forwarder"].ns, port)
    for worker in range(workers):
        process.wait_for(rf"is worker {worker} of {workers}")
    return process


def digest(data):
    return hashlib.sha256(data).hexdigest()


def cli(host, *words):
    return host.ns.run(["redis-cli", *words]).strip()


def url(address, port, path):
    return (
        f"http://[{address}]:{port}{path}" if ":" in address else f"http://{address}:{port}{path}"
    )


def on_stack(lab, *argv, **options):
    return run(lab["forwarder"].ns.command(run_command(argv)), **options)


def workers_seen(lab, wanted):
    """Sends requests until `wanted` workers have answered."""
    pids = set()

    def enough():
        pids.add(int(http_get(lab["client"], V4, 8002, "/pid", timeout_s=60)))
        return len(pids) >= wanted

    wait_until(enough, f"{wanted} workers answer")
    return pids
