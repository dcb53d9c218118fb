# SPDX-License-Identifier: Apache-2.0
"""Shared by the test beds of benchmarks with kernel interfaces."""

import contextlib

from bench import machine
from tests.lab import reap
from tests.lab.netns import Namespace
from tests.lab.process import CommandFailed


class Bed:
    """A context manager that cleans up completely, also if build() fails, which subclasses define.
    folder: name of its folder, and prefix of its namespaces."""

    def __init__(self, folder):
        self.folder = folder
        self.open = contextlib.ExitStack()

    def __enter__(self):
        reap.reap_dead()
        try:
            self.dir = self.open.enter_context(machine.folder(self.folder))
            self.build()
        except BaseException:
            self.open.close()
            raise
        return self

    def __exit__(self, *_):
        self.open.close()

    def namespaces(self, *names):
        return [Namespace(f"{self.dir.name}-{name}").create() for name in names]

    @staticmethod
    def await_start(process, ready):
        """Raises the process's priority, and waits until it logs `ready`; None: does not wait."""
        machine.prefer(process.pid)
        try:
            if ready:
                process.wait_for(ready)
        except CommandFailed as problem:
            raise machine.Failed(str(problem)) from None
        return process


def two_cores():
    """Returns the generator's core and the server's."""
    cores = machine.cpus()
    if len(cores) < 2:
        raise machine.Failed("this benchmark needs two cores")
    return cores[:2]


class Pair:
    """A veth pair between two namespaces: addresses 10.N.M.1 and 10.N.M.2."""

    def __init__(self, near, far, names, net):
        self.near, self.far, self.names, self.net = near, far, names, net
        near.ip(
            f"link add {names[0]} numtxqueues 1 numrxqueues 1 type veth peer name {names[1]}"
            f" numtxqueues 1 numrxqueues 1 netns {far.name}"
        )
        for host, (ns, name) in enumerate(zip((near, far), names, strict=True), 1):
            ns.ip(f"address add {net}.{host}/24 dev {name}")
            ns.ip(f"link set {name} up")
            # Without hardware, offload leaves checksums incomplete on the wire.
            ns.run(["ethtool", "-K", name, "tx", "off"])

    def know(self, servers, clients):
        """Adds permanent neighbour entries, by last bytes: the workers of both ends may leave no
        CPU to the programs that would answer ARP."""
        ends = ((self.near, self.names[0]), (self.far, self.names[1]))
        macs = [ns.mac(name) for ns, name in ends]
        for (ns, name), hosts, mac in zip(ends, (servers, clients), reversed(macs), strict=True):
            for host in hosts:
                ns.ip(f"neigh replace {self.net}.{host} lladdr {mac} dev {name} nud permanent")
