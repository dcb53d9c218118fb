# SPDX-License-Identifier: Apache-2.0
"""Thousands of conversations continue while the forwarder is killed, restarted and replaced.

`make demo DEMO=restart` runs it; with --keep everything stays up for inspection."""

import signal
import sys
import time

from tests.demo.perform import perform
from tests.demo.show import Show, say
from tests.lab.servers import start_dns, start_nginx
from tests.lab.steelyard import VIP, Steelyard, web_and_dns
from tests.lab.traffic import Traffic

PICTURE = """
   2000 HTTP connections ─┐                               ┌── s1  nginx and a DNS server
    200 downloads ────────┼──▶ VIPs ──[ steelyard ]───────┼── s2
   1000 UDP flows ────────┘           forwarder + agent   └── s3

   Each host is a network namespace of this machine; half of everything goes over IPv6. Every
   connection and flow asks once a second, downloads trickle. None may ever be reset, closed,
   answered by another server or get a wrong byte, and no client connects again.
"""
HTTP, DOWNLOADS, UDP = 2000, 200, 1000
# Drops that an overloaded machine may cause; TCP repairs them.
EXPECTED_DROPS = {"tx-full", "steering-full"}
SOURCES = {"crashed": "was killed", "stopped": "was stopped", "handed-over": "handed over"}
KINDS = {"http": "HTTP", "download": "download", "udp": "UDP"}


def ms(value):
    return f"{value:.0f} ms"


class Restart:
    def __init__(self, lab):
        self.lab, self.show = lab, Show()
        self.steelyard = Steelyard(lab, web_and_dns(lab.network))
        self.traffic = Traffic(lab, HTTP, DOWNLOADS, UDP)
        self.flows = HTTP + DOWNLOADS + UDP
        self.rows = []

    def run(self):
        say(PICTURE)
        self.start()
        self.quiet()
        self.survive("kill -9, and a start", self.killed, "crashed")
        self.survive("Clean stop, and a start", self.restarted, "stopped")
        self.survive("Upgrade", self.upgraded, "handed-over")
        self.survive("Restart with 2 workers instead of 1", self.restarted, "stopped", workers=2)
        self.survive("Upgrade to 1 worker instead of 2", self.upgraded, "handed-over", workers=1)
        self.finish()
        self.account()

    def start(self):
        self.show.step("Three servers, a forwarder with one worker and its agent start")
        for host in self.lab.servers():
            start_nginx(self.lab, host.name)
            start_dns(self.lab, host.name)
            host.ns.count_resets(self.steelyard.config.local_addresses)
        self.lab["client"].ns.count_resets()
        self.traffic.provide()
        self.steelyard.start()
        self.steelyard.wait_all_up()
        self.agent = self.steelyard.agent.pid
        self.show.step(f"{self.flows} flows begin")
        report = self.traffic.start()
        self.claim_whole(report)
        for kind, name in KINDS.items():
            self.show.served(report["flows"][kind]["servers"], f"{name} at")

    def claim_whole(self, report):
        """Every flow is at its first server, and has an answer to its last request."""
        failures = [f"{count} {nature}" for nature, count in report["failures"].items()]
        text = ", ".join(failures) + ":\n     " + "\n     ".join(report["examples"])
        if not failures:
            text = f"all {self.flows} flows go on: none reset, none corrupted, each at its server"
        self.show.claim(not failures, text)

    def note(self, name, report, kept="", gap=""):
        """Adds a row of the final table, and prints the delays at once."""
        flows = report["flows"]
        waits = [ms(flows[kind]["stall_ms"]) for kind in KINDS]
        resent = str(flows["udp"]["resent"])
        self.rows.append([name, kept, gap, *waits, resent])
        longest = ", ".join(
            f"{name} {wait}" for name, wait in zip(KINDS.values(), waits, strict=True)
        )
        say(f"     longest wait: {longest}; {resent} UDP queries sent again")

    def quiet(self):
        """Measures delays without any disturbance."""
        self.show.step("Nothing happens, for comparison")
        report = self.traffic.step()
        self.claim_whole(report)
        self.note("nothing", report)

    def survive(self, name, action, source, **changes):
        self.show.step(f"{name}, under load")
        self.claim_no_drops()
        gap = action(**changes)
        self.steelyard.wait_reconnected()
        report = self.traffic.step()
        self.claim_whole(report)
        status = self.steelyard.get("status")["forwarder"]
        adoption = status["adoption"]
        kept = adoption["results"].get("kept", 0)
        ended = sum(adoption["results"].values()) - kept
        self.show.claim(
            adoption["source"] == source and kept >= self.flows,
            f"sessions from a forwarder that {SOURCES[source]}: {kept} kept, {ended} ended, "
            f"adopted in {adoption['duration_ns'] / 1e6:.1f} ms",
        )
        self.show.claim(
            status["workers"] == self.steelyard.options.workers, f"workers: {status['workers']}"
        )
        self.note(name, report, str(kept), ms(gap))

    def killed(self):
        return self.restarted(number=signal.SIGKILL)

    def restarted(self, **how):
        """Returns the milliseconds without forwarding, like the other replacements."""
        began = time.monotonic()
        self.steelyard.restart_forwarder(**how)
        gap = 1000 * (time.monotonic() - began)
        self.show.claim(True, f"ready again {ms(gap)} after the signal")
        return gap

    def upgraded(self, **changes):
        upgraded = self.steelyard.upgrade(**changes)
        gap = upgraded["gap_ns"] / 1e6
        self.show.claim(
            upgraded["pid"] != upgraded["old_pid"],
            f"steelyard upgrade: from pid {upgraded['old_pid']} to {upgraded['pid']}, "
            f"{gap:.1f} ms without packets",
        )
        return gap

    def claim_no_drops(self):
        """For the running forwarder: each process has its own counters."""
        drops = self.steelyard.drops()
        dropped = ", ".join(f"{count} packets as {name}" for name, count in drops.items())
        self.show.claim(
            drops.keys() <= EXPECTED_DROPS, f"so far the forwarder dropped {dropped or 'no packet'}"
        )

    def finish(self):
        self.show.step("The downloads go on at full speed, to their ends")
        report = self.traffic.finish()
        self.claim_whole(report)
        self.show.claim(
            True, f"{DOWNLOADS} downloads came to their ends, byte by byte and by SHA-256"
        )

    def account(self):
        self.show.step("The accounting")
        self.claim_no_drops()
        for host in (self.lab["client"], *self.lab.servers()):
            resets = host.ns.resets()
            self.show.claim(not resets, f"{host} got {resets} TCP resets")
        agent = self.steelyard.agent
        self.show.claim(agent.alive() and agent.pid == self.agent, "the agent is still the first")
        self.show.command("steelyard get status", self.steelyard.cli("get", "status"))
        say()
        say(
            "     Sessions kept; time without forwarding; longest wait of each kind; UDP sent again"
        )
        self.show.table(["", "kept", "gap", *KINDS.values(), "again"], self.rows)
        say("     TCP and UDP clients send again what was lost after 200 ms at the earliest.")

    def stop(self):
        self.show.stop(self.steelyard)
        self.show.command("steelyard cleanup", self.steelyard.cleanup())

    def look_around(self):
        return {"as the client": f"{self.lab['client'].ns.enter} curl http://{VIP[4]}/"}


if __name__ == "__main__":
    sys.exit(perform(Restart, "restart", __doc__))
