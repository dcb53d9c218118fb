# SPDX-License-Identifier: Apache-2.0
"""Conversations in every mode at once, for tests in which forwarders die and return."""

import shutil

from tests.lab.config import Server, Service
from tests.lab.mode_table import ROWS
from tests.lab.steelyard import SERVER_DNS, SERVER_WEB
from tests.lab.traffic import Traffic

PROXIED = 8090  # the servers' port for clients that begin with a header of the PROXY protocol
CLIENT_ADDRESS = {"toa": SERVER_WEB, "proxy_v1": PROXIED, "proxy_v2": PROXIED}
KINDS = {"http": "HTTP", "download": "download", "udp": "UDP"}


def _targets(rows, web, dns):
    return {"web": [one for row in rows for one in web[row]], "dns": [dns[row] for row in rows]}


def plan_traffic(lab, config, counts, outward=True, size_mb=3):
    """Adds services that send the client's address to a configuration of mode_table, and returns
    the traffic: of FNAT with these counts (HTTP, downloads, UDP), of the other modes with a tenth,
    and of SNAT with a tenth, if `outward`. size_mb: of each download."""
    web = {row: [row.url.removeprefix("http://")] for row in ROWS}
    dns = {row: f"{row.url[7:].rpartition(':')[0]}:{row.ports[1]}" for row in ROWS}
    fnat = [row for row in ROWS if row.mode == "fnat"]
    for row in fnat[:2]:
        for number, (how, server_port) in enumerate(CLIENT_ADDRESS.items()):
            port = 8101 + number
            servers = [Server(host.address(row.server), server_port) for host in lab.servers()]
            spread = {"client_address": how}
            name = f"{how}-{row.client}"
            config.services.append(Service(name, row.vip, port, servers=servers, spread=spread))
            web[row].append(f"{dns[row].rpartition(':')[0]}:{port}")
    others = [row for row in ROWS if row.mode != "fnat"]
    tenth = [max(count // 10, 1) for count in counts]
    far = lab["far"]
    made = [
        Traffic(lab, *counts, size_mb, "far", name="fnat", **_targets(fnat, web, dns)),
        Traffic(lab, *tenth, size_mb, "far", name="others", **_targets(others, web, dns)),
    ]
    if outward:
        to_far = {
            "web": [f"{far.v4}:{SERVER_WEB}", f"[{far.v6}]:{SERVER_WEB}"],
            "dns": [f"{far.v4}:{SERVER_DNS}", f"[{far.v6}]:{SERVER_DNS}"],
        }
        made.append(Traffic(lab, *tenth, size_mb, "s1", name="snat", **to_far))
    return made


def provide_content(lab, traffic):
    """Copies the downloads' content to the servers and to `far`, which must be running."""
    traffic[0].provide()
    shutil.copy(lab.dir / "nginx-s1/files/content", lab.dir / "nginx-far/files/content")


def failures_of(reports):
    """Returns the lost and the corrupted flows since the start, as numbers."""
    every = [report["failures"] for report in reports]
    corrupted = sum(one.get("corrupted", 0) for one in every)
    return sum(sum(one.values()) for one in every) - corrupted, corrupted
