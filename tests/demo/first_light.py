# SPDX-License-Identifier: Apache-2.0
"""The first demo: clients reach three web servers through Steelyard while servers stop and change.

`make demo` runs it; with --keep everything stays up for inspection."""

import sys
import time
from collections import Counter

from tests.demo.perform import perform
from tests.demo.show import Show, say
from tests.lab import wait_until
from tests.lab.clients import dns_txt, finish_wrk, start_wrk, wrk
from tests.lab.servers import start_dns, start_nginx, wait_listening
from tests.lab.steelyard import SERVER_WEB, VIP, Steelyard, web_and_dns

PICTURE = """
                    VIP 10.0.0.80                       ┌── s1  10.1.0.11  fd00:1::11
   client ────────▶ VIP fd00::80  ──[ steelyard ]───────┼── s2  10.1.0.12  fd00:1::12
   10.0.0.10        tcp 80, udp 53   forwarder + agent  └── s3  10.1.0.13  fd00:1::13
   fd00::10                                                 nginx and a DNS server each

   Each is a network namespace of this machine; veth pairs are the cables.
"""
METRICS = "127.0.0.1:9270"
WEB = {4: f"http://{VIP[4]}/", 6: f"http://[{VIP[6]}]/"}
REQUESTS = 3000
QUERIES = 300


def shares_are(counts, weights, tolerance=0.1):
    """Returns whether each server answered its share by weight, within a tenth of it."""
    total, weight = sum(counts.values()), sum(weights.values())
    return set(counts) == set(weights) and all(
        abs(counts[name] - total * w / weight) <= tolerance * total * w / weight
        for name, w in weights.items()
    )


class FirstLight:
    def __init__(self, lab):
        self.lab, self.show = lab, Show()
        self.client = lab["client"]
        self.nginx = {}
        config = web_and_dns(lab.network)
        config.metrics = METRICS
        self.steelyard = Steelyard(lab, config)

    def run(self):
        say(PICTURE)
        self.start()
        self.single_requests()
        self.many_requests()
        self.names()
        self.server_stops()
        self.server_returns()
        self.weight_changes()
        self.account()

    def start(self):
        self.show.step("Three servers, a forwarder and its agent start")
        for host in self.lab.servers():
            self.nginx[host.name] = start_nginx(self.lab, host.name)
            start_dns(self.lab, host.name)
        self.steelyard.start()
        self.steelyard.wait_all_up()
        self.show.command("steelyard get services", self.steelyard.cli("get", "services"))
        self.show.claim(True, "the forwarder forwards, and every server passes its health checks")

    def in_client(self, line):
        output = self.client.ns.run(line.split())
        self.show.command(line, output)
        return output.strip().strip('"')

    def single_requests(self):
        self.show.step("The client asks once, by each protocol")
        names = {host.name for host in self.lab.servers()}
        for family in (4, 6):
            who = self.in_client(f"curl -sS -m 10 {WEB[family]}")
            self.show.claim(who in names, f"{who} answered over TCP on IPv{family}")
            who = self.in_client(f"dig +short +timeout=10 +tries=1 @{VIP[family]} who.lab TXT")
            self.show.claim(who in names, f"{who} answered over UDP on IPv{family}")

    def load(self, family, requests=REQUESTS):
        """Short connections, so that every request is scheduled again."""
        return wrk(self.lab, WEB[family], requests, keep_alive=False)

    def claim_perfect(self, load, requests=REQUESTS):
        text = f"{load.requests} requests in {load.seconds:.1f} s, none failed"
        self.show.claim(not load.failed and load.requests >= requests, text)

    def many_requests(self):
        equal = {host.name: 1 for host in self.lab.servers()}
        for family in (4, 6):
            self.show.step(f"wrk sends {REQUESTS} requests over IPv{family}, a connection each")
            load = self.load(family)
            self.show.served(load.served)
            self.claim_perfect(load)
            self.show.claim(shares_are(load.served, equal), "the servers share them equally")

    def names(self):
        self.show.step(f"{QUERIES} DNS queries over UDP, half of them over IPv6")
        counts = Counter(
            dns_txt(self.client, VIP[4 if n % 2 else 6], 53, timeout_s=5) for n in range(QUERIES)
        )
        self.show.served(counts, "queries")
        self.show.claim(
            shares_are(counts, {host.name: 1 for host in self.lab.servers()}),
            "every query was answered, and the servers share them equally",
        )

    def wait_web(self, host, state):
        began = time.monotonic()
        for family in (4, 6):
            self.steelyard.wait_server(f"web{family}", host.address(family), state)
        return time.monotonic() - began

    def server_stops(self):
        s2 = self.lab["s2"]
        self.show.step("nginx on s2 stops")
        self.nginx["s2"].stop()
        took = self.wait_web(s2, "down")
        self.show.claim(True, f"health checks took s2 out within {took:.1f} s")
        output = self.steelyard.cli("get", "servers", "--service", "web4")
        self.show.command("steelyard get servers --service web4", output)
        for family in (4, 6):
            load = self.load(family)
            self.show.served(load.served)
            self.claim_perfect(load)
            self.show.claim(
                shares_are(load.served, {"s1": 1, "s3": 1}), "s1 and s3 share them equally"
            )

    def server_returns(self):
        self.show.step("nginx on s2 starts again")
        self.nginx["s2"] = start_nginx(self.lab, "s2")
        wait_listening(self.lab["s2"].ns, SERVER_WEB)
        took = self.wait_web(self.lab["s2"], "up")
        self.show.claim(True, f"health checks brought s2 back within {took:.1f} s")
        load = self.load(4)
        self.show.served(load.served)
        self.claim_perfect(load)
        self.show.claim("s2" in load.served, "s2 serves again")

    def weight_changes(self):
        self.show.step("The weight of s1 becomes 4 while wrk runs")
        requests = 4 * REQUESTS
        start = self.created()
        process = start_wrk(self.lab, WEB[4], requests, keep_alive=False)
        wait_until(lambda: self.created() > start + REQUESTS / 3, "wrk's traffic flows")
        self.steelyard.config["web4"].server(self.lab["s1"].v4).weight = 4
        self.steelyard.write_config()
        output = self.steelyard.cli("apply", self.steelyard.file)
        self.show.claim(process.alive(), "the change came while requests were under way")
        self.show.command("steelyard apply steelyard.yaml", output)
        self.claim_perfect(finish_wrk(process), requests)
        load = self.load(4)
        self.show.served(load.served)
        self.claim_perfect(load)
        self.show.claim(
            shares_are(load.served, {"s1": 4, "s2": 1, "s3": 1}), "shares follow the new weights"
        )

    def created(self):
        return self.steelyard.service("web4")["traffic"]["sessions_created"]

    def account(self):
        self.show.step("The accounting")
        self.show.command("steelyard get drops", self.steelyard.cli("get", "drops"))
        self.show.claim(not self.steelyard.drops(), "the forwarder dropped no packet")
        wrong = self.lab.checksum_errors()
        self.show.claim(not wrong, "no kernel saw a wrong checksum")

    def stop(self):
        self.show.stop(self.steelyard)
        output = self.steelyard.cleanup()
        self.show.command("steelyard cleanup", output)

    def look_around(self):
        return {
            "as the client": f"{self.client.ns.enter} curl {WEB[4]}",
            "": f"{self.client.ns.enter} wrk -d 5s {WEB[4]}",
            "its metrics": f"{self.lab['forwarder'].ns.enter} curl http://{METRICS}/metrics",
        }


if __name__ == "__main__":
    sys.exit(perform(FirstLight, "first light", __doc__))
