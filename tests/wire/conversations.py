# SPDX-License-Identifier: Apache-2.0
"""Client connections that stay open while a forwarder is stopped and started."""

import socket

from tests.lab.clients import HttpConnection, abort, dns_txt
from tests.lab.steelyard import DNS, VIP, WEB

CONNECTIONS, FLOWS = 8, 8  # per family


class Conversations:
    """Connections and UDP flows of both families that must stay with their servers."""

    def __init__(self, stage, resend_s=None):
        """resend_s: for UDP, where a datagram may be lost; see dns_txt()."""
        self.stage, self.resend_s = stage, resend_s
        client = stage.client
        self.web = [HttpConnection(client, VIP[f], WEB) for f in (4, 6) for _ in range(CONNECTIONS)]
        self.dns = [
            (VIP[family], client.ns.socket(kind, socket.SOCK_DGRAM))
            for family, kind in ((4, socket.AF_INET), (6, socket.AF_INET6))
            for _ in range(FLOWS)
        ]
        self.servers = self.ask()
        assert len(set(self.servers)) > 1

    def __len__(self):
        return len(self.web) + len(self.dns)

    def ask(self):
        """Sends a request on each; returns the answering servers."""
        servers = [one.get() for one in self.web]
        return servers + [
            dns_txt(None, vip, DNS, one=one, resend_s=self.resend_s) for vip, one in self.dns
        ]

    def check_servers(self):
        assert self.ask() == self.servers

    def abort(self):
        """Resets the connections, so that no retransmission disturbs later tests."""
        for one in self.web:
            abort(one.socket)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.web:
            one.close()
        for _, one in self.dns:
            one.close()
