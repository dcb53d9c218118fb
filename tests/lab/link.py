# SPDX-License-Identifier: Apache-2.0
"""A bad link: steelyard-link delays, slows down or loses real packets between two interfaces
(docs/testing.md). Not every kernel has netem.

    with Link(lab, "client", delay_ms=5, loss=0.01) as link:       # the client's own cable
    with Link(lab, "client", "far", rate_mbit=10) as link:         # a new cable between two hosts

Direction ab leads from the first host, ba to it.
"""

import itertools
import json
import math
import re
import socket

from tests.lab.process import CommandFailed, run
from tests.lab.steelyard import BUILD, SANITIZED
from tests.lab.wait import wait_until

LINK = BUILD / "tests/link/steelyard-link"
UNITS = ("ns", "us", "ms", "s", "kbit", "mbit", "gbit")
_count = itertools.count()


def words(parameters):
    """Formats {"delay_ms": 5, "ecn": True} as steelyard-link parses it: "delay 5ms ecn on"."""
    made = []
    for name, value in parameters.items():
        stem, _, unit = name.rpartition("_")
        if stem and unit in UNITS:
            made += [stem, f"{value}{unit}"]
        elif isinstance(value, bool):
            made += [name, "on" if value else "off"]
        else:
            made += [name, value]
    return " ".join(map(str, made))


def predict(packets, seed=1, **parameters):
    """Predicts the random outcomes of so many packets each way, in the form of stats(): only those
    that do not depend on arrival times."""
    argv = [LINK, "--predict", packets, "--seed", seed, "--set", f"both {words(parameters)}"]
    return json.loads(run(argv, env=SANITIZED))


class Link:
    """A context manager. Parameters are those of `steelyard-link --help`, with units as suffixes of
    names; those of one direction are in the dictionaries `ab` and `ba`.

    a: a host, whose cable (of `interface`) becomes the link; or with b one end of a new cable, an
    interface `link<N>` on both hosts. options: further words of steelyard-link's command line."""

    def __init__(
        self,
        lab,
        a,
        b=None,
        interface="eth0",
        seed=1,
        ab=None,
        ba=None,
        cable_mtu=1500,
        options=(),
        **both,
    ):
        self.lab, self.a, self.b, self.interface, self.seed = lab, a, b, interface, seed
        self.parameters = {"both": both, "ab": ab or {}, "ba": ba or {}}
        self.number = next(_count)
        self.name = f"link{self.number}"
        self.cable_mtu, self.options = cable_mtu, list(options)
        self.socket = lab.dir / f"{self.name}.sock"
        self.process = self.bridge = self.control = None

    # ---- cables ----------------------------------------------------------------------------------

    def _splice(self):
        """Removes the host's cable from its bridge, and puts a new one in between."""
        switch, cable = self.lab["switch"].ns, f"{self.a}-{self.interface}"
        (told,) = json.loads(switch.run(["ip", "-j", "link", "show", "dev", cable]))
        self.bridge = told["master"]
        switch.ip(f"link set {cable} netns {self.ns.name} name end-a")
        switch.ip(f"link add {self.name} mtu {told['mtu']} type veth peer name end-b"
                  f" mtu {told['mtu']} netns {self.ns.name}")  # fmt: skip
        switch.ip(f"link set {self.name} master {self.bridge} up")

    def _connect(self):
        """Makes a cable between two hosts, with addresses: see address()."""
        for end, name in (("a", self.a), ("b", self.b)):
            host = self.lab[name].ns
            host.ip(f"link add {self.name} mtu {self.cable_mtu} type veth peer name end-{end}"
                    f" mtu {self.cable_mtu} netns {self.ns.name}")  # fmt: skip
            host.ip(f"link set {self.name} up")
            host.ip(f"address add {self.address(end, 4)}/24 dev {self.name}")
            host.ip(f"address add {self.address(end, 6)}/64 dev {self.name} nodad")
            # The link takes frames as on a wire: complete, and no longer than the MTU.
            host.run(["ethtool", "-K", self.name, "tx", "off", "tso", "off", "gso", "off"])

    def address(self, end, family=4):
        """Returns the address of end "a" or "b" of a new cable."""
        net, host = 100 + self.number % 100, 1 if end == "a" else 2
        return f"10.{net}.0.{host}" if family == 4 else f"fd00:{net}::{host}"

    def _unsplice(self):
        """Undoes _splice(), even if it failed halfway."""
        switch, cable = self.lab["switch"].ns, f"{self.a}-{self.interface}"
        switch.ip(f"link del {self.name}", check=False)
        if switch.ip(f"link show dev {cable}", check=False).returncode:  # it does not exist
            self.ns.ip(f"link set end-a netns {switch.name} name {cable}")
        switch.ip(f"link set {cable} master {self.bridge} up")

    # ---- begin and end ---------------------------------------------------------------------------

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind, error, trace):
        if kind and self.process:
            print(self.process.describe())
        self.close()

    def start(self):
        self.ns = self.lab.network.add_host(self.name).ns
        for scope in ("all", "default"):
            # The host's kernel must not use this end.
            self.ns.sysctl(f"ipv6.conf.{scope}.disable_ipv6", 1)
        if self.b is None:
            self._splice()
        else:
            self._connect()
        self.ns.ip("link set end-a up")
        self.ns.ip("link set end-b up")
        self.start_program()
        return self

    def start_program(self):
        """Starts steelyard-link, also again after it was killed."""
        argv = [LINK, "--a", "end-a", "--b", "end-b", "--seed", self.seed, "--socket", self.socket]
        for way, parameters in self.parameters.items():
            argv += ["--set", f"{way} {words(parameters)}"] if parameters else []
        name = f"steelyard-{self.name}"
        self.process = self.lab.start(self.name, name, [*argv, *self.options], SANITIZED)
        self.process.wait_for("is ready")
        self.control = socket.socket(socket.AF_UNIX)
        self.control.settimeout(60)
        self.control.connect(str(self.socket))
        self.answers = self.control.makefile()

    def close(self):
        """Ends the link and restores the host's cable. A second call does nothing."""
        if self.control:
            self.answers.close()
            self.control.close()
            self.control = None
        if self.process and self.process.alive():
            self.process.stop()
        if self.name in self.lab.network.hosts:
            try:
                if self.bridge:
                    self._unsplice()
            finally:
                self.lab.network.remove_host(self.name)

    # ---- commands --------------------------------------------------------------------------------

    def command(self, line):
        """Sends one command; returns the answer."""
        self.control.sendall(line.encode() + b"\n")
        answer = self.answers.readline().rstrip("\n")
        if not answer or answer.startswith("error: "):
            raise CommandFailed(f"{line}: {answer or self.process.describe()}")
        return answer

    def set(self, way="both", **parameters):
        """Changes parameters of a direction for later packets."""
        self.command(f"set {way} {words(parameters)}")

    def reset(self):
        """Restores the initial state: no packet in flight, a good link, and counters of zero."""
        self.set(defaults="")
        self.hurry()
        self.settle()
        self.command("clear")
        self.set_seed(self.seed)

    def set_seed(self, seed):
        """Restarts all random draws with this seed."""
        self.command(f"seed {seed}")

    def hurry(self):
        """Delivers all packets in flight now."""
        self.command("hurry")

    def stats(self, way=None):
        stats = json.loads(self.command("stats"))
        return stats[way] if way else stats

    def settle(self):
        """Waits until no packet is in flight, as long as their number falls; returns stats()."""
        left = math.inf

        def fewer():
            stats = self.stats()
            now = sum(stats[way]["on_the_way"] for way in ("ab", "ba"))
            return (stats, now) if now < left or now == 0 else None

        while left:
            stats, left = wait_until(fewer, "nothing is on its way")
        return stats


def balance(way):
    """Returns packets of one direction that its counters do not explain: 0."""
    came = way["arrived"] + way["answers"] + way["duplicated"] + way["fragments"]
    return came - way["fragmented"] - way["delivered"] - way["dropped"] - way["on_the_way"]


def path_mtu(host, address):
    """Returns the MTU that a host's kernel has learned for an address, or None."""
    found = re.search(r"\bmtu (\d+)", host.ns.ip(f"route get {address}"))
    return int(found[1]) if found else None
