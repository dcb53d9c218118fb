# SPDX-License-Identifier: Apache-2.0
"""Every cell of the table of programs in docs/run.md: some in each test run, all by `make test
ONLY=programs`."""

import pytest

from tests.lab import wait_until
from tests.lab.lab import Lab
from tests.lab.servers import start_nginx
from tests.programs.client_programs import CLIENTS, Servers
from tests.programs.program import Running
from tests.programs.table import PROGRAMS, make_certificate
from tests.wire.running import has_program

CELLS = [
    pytest.param(
        program,
        column,
        id=f"{program.id}-{column}",
        marks=() if program.sample else pytest.mark.programs,
    )
    for program in PROGRAMS
    for column in program.cells
]


@pytest.fixture(scope="module")
def matrix_lab():
    with Lab(arms=1, servers=0, queues=4) as lab:
        lab.dir.chmod(0o755)  # programs run as many users
        start_nginx(lab, "client")
        yield lab


@pytest.fixture(scope="module")
def servers(matrix_lab):
    found = Servers(matrix_lab, make_certificate(matrix_lab.dir))
    yield found
    found.close()


@pytest.mark.programs
@pytest.mark.parametrize(
    ("client", "column"),
    [
        pytest.param(client, column, id=f"{client.name}-{column}".replace(" ", "-"))
        for client in CLIENTS
        for column in client.cells
    ],
)
def test_client_reaches_its_server(servers, client, column):
    """Before the servers below: the last of them has the interface until this file ends."""
    servers.check(client, column)


@pytest.fixture(scope="module")
def running(matrix_lab, request):
    """A program that serves all of its cells."""
    place = Running(matrix_lab, request.param, make_certificate(matrix_lab.dir))
    try:
        place.start()
        yield place
    finally:
        place.close()
        wait_until(lambda: not has_program(matrix_lab), "the XDP program is gone")


@pytest.mark.parametrize(("running", "column"), CELLS, indirect=["running"], scope="module")
def test_cell_works(running, column):
    try:
        running.program.cells[column](running)
    except BaseException:
        print(running.process.describe())
        raise
