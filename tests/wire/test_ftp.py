# SPDX-License-Identifier: Apache-2.0
"""FTP through services of all ports, with vsftpd's defaults: it refuses data connections from
another address than the control connection's, and PORT commands with another address."""

import copy
import ftplib
import io
import os

import pytest

from tests.lab import Server, Service
from tests.lab.mode_table import ROWS
from tests.lab.servers import wait_listening
from tests.lab.topology import FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.mode_stage import ModeStage
from tests.wire.test_ranges import RangeServer

FTP = 21
SIZE, TRANSFERS, LOGINS = 100_000, 6, 4
PASSIVE = tuple(row for row in ROWS if row.mode in ("fnat", "nat", "dr", "ipip"))
# The server's connection to the client passes SNAT.
ACTIVE = tuple(row for row in ROWS if row.mode == "nat")
# The command contains another address than the server's view of the client.
REFUSED = tuple(row for row in ROWS if row.mode == "fnat" and row.client == row.server)
CONFIG = """\
background=NO
listen=NO
listen_ipv6=YES
anonymous_enable=YES
no_anon_password=YES
ftp_username=ftp
anon_root={dir}/files
secure_chroot_dir={dir}/empty
seccomp_sandbox=NO
isolate=NO
isolate_network=NO
xferlog_enable=NO
connect_from_port_20=YES
"""


def active_vip(row):
    return (v4 if row.client == 4 else v6)(FRONT, 100)


class FtpStage(ModeStage):
    """Each server has vsftpd; each mode has a service of all ports. The client is `far`."""

    def start(self):
        super().start()
        self.content = os.urandom(SIZE)
        for host in self.lab.servers():
            self.start_vsftpd(host)
        *hosts, alone = self.lab.servers()
        for row in ROWS:
            servers = [RangeServer(h.address(row.server), 0) for h in hosts]
            spread = {"persistence": {"timeout": "10m"}}
            self.config.services.append(
                Service(f"ftp-{row}", row.vip, "all", mode=row.mode, servers=servers, spread=spread)
            )
        for row in ACTIVE:  # a service of all ports would capture all of the host's packets
            self.config.services.append(
                Service(
                    f"active-{row}",
                    active_vip(row),
                    FTP,
                    mode="nat",
                    servers=[Server(alone.address(row.server), FTP)],
                )
            )
        self.apply()
        self.steelyard.wait_in_sync()
        self.default = copy.deepcopy(self.config)

    def start_vsftpd(self, host):
        folder = self.lab.dir / f"vsftpd-{host}"
        (folder / "files").mkdir(parents=True)
        (folder / "empty").mkdir()
        (folder / "files" / "data").write_bytes(self.content)
        (folder / "files" / "who").write_text(host.name)
        (folder / "vsftpd.conf").write_text(CONFIG.format(dir=folder))
        for path in (folder, *folder.parents):
            if path == self.lab.dir.parent:
                break
            path.chmod(0o755)
        self.lab.start(host.name, f"vsftpd-{host}", ["vsftpd", folder / "vsftpd.conf"])
        wait_listening(host.ns, FTP)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def ftp_stage(request):
    with FtpStage(arms=1, workers=request.param) as stage:
        yield stage


@pytest.fixture
def ftp(ftp_stage, request):
    yield from check_accounting(ftp_stage, request)


def fetch(one, name):
    content = io.BytesIO()
    one.retrbinary(f"RETR {name}", content.write)
    return content.getvalue()


def transfer(stage, vip, passive):
    """Logs in several times, each with several data connections."""
    with stage.lab["far"].ns.entered():
        for _ in range(LOGINS):
            with ftplib.FTP(timeout=60) as one:
                one.connect(vip, FTP)
                one.login()
                one.set_pasv(passive)
                for _ in range(TRANSFERS):
                    assert fetch(one, "data") == stage.content


@pytest.mark.parametrize("row", PASSIVE, ids=str)
def test_passive_transfers_work(ftp, row):
    transfer(ftp, row.vip, True)


@pytest.mark.parametrize("row", ACTIVE, ids=str)
def test_active_transfers_work(ftp, row):
    transfer(ftp, active_vip(row), False)


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_active_transfers_are_refused_by_the_server(ftp, row):
    with pytest.raises(ftplib.error_perm, match="500"):
        transfer(ftp, row.vip, False)
