# SPDX-License-Identifier: Apache-2.0
"""A client, a forwarder and a server on one host, by memif and by the kernel.

    client ══ forwarder [FNAT] ══ server     memif: rings in memory; each has a stack of its own
    client ══ router [nft dnat] ══ server    veth; client on AF_XDP, server on the kernel's TCP

The client has the first core, what it asks the second. Of the kernel's, receive packet steering
brings both of router's and server's receiving there.
"""

import ipaddress
import signal

from bench import machine
from bench.bed import Pair
from bench.stack_bed import FIRST, KERNEL, LOAD, RING, StackBed, memory
from bench.testbed import FORWARDER, Forwarder
from tests.lab import reap
from tests.lab.api import forwarder as pb
from tests.lab.process import Process
from tests.lab.wait import wait_until

PORT, SOURCES, LOCALS = 7, 8, 8
SESSIONS = 100_000
VIP, CLIENTS, SERVER, LOCAL = "10.80.0.1", "10.66.8", "10.66.9.2", "10.66.9.200"
GATES = "10.66.8.1", "10.66.9.1"  # of the client's and the server's link, to the forwarder
MACS = {"client": "02:00:00:00:08:02", "server": "02:00:00:00:09:02"}
FORWARDERS = "02:00:00:00:08:01", "02:00:00:00:09:01"


class ChainBed(StackBed):
    arms = ("memif", "kernel")

    def build(self):
        self.generator, self.server, self.router = self.namespaces("client", "server", "router")
        self.plug_kernel()
        self.steer(True)
        self.serve_kernel()
        self.forwarder = self.start_forwarder()
        self.serve_memif()
        self.open.callback(self.pause, False)  # before they are to end
        self.pause(True)

    # ---- the kernel's ----------------------------------------------------------------------------

    def plug_kernel(self):
        near = Pair(self.generator, self.router, ("g0", "r0"), CLIENTS)
        near.know((2,), range(FIRST, FIRST + SOURCES))
        Pair(self.router, self.server, ("r1", "s0"), "10.66.9").know((2,), (1,))
        self.router.sysctl("ipv4.ip_forward", 1)
        self.router.run(["nft", "-f", "-"], stdin=RULES)
        self.server.ip("route add default via 10.66.9.1")
        self.server.sysctl("core.somaxconn", 65535)

    def steer(self, steered):
        mask = 1 << self.far if steered else 0
        for ns, name in ((self.router, "r0"), (self.router, "r1"), (self.server, "s0")):
            self.steer_one(ns, name, mask)

    def serve_kernel(self):
        argv = ["taskset", "-c", self.far, KERNEL, "--port", PORT, "--echo"]
        self.begin("steelyard-kernel-server", argv, self.dir / "kernel.log", "^serving")

    # ---- by memif --------------------------------------------------------------------------------

    def memif(self, number, role, side):
        socket = self.dir / f"{side}.sock"
        return f"net_memif{number};role={role};socket={socket};socket-abstract=no"

    def start_forwarder(self):
        ns, socket = self.router, self.dir / "control.sock"
        place = ["--instance", self.dir.name, "--socket", socket, "--state", self.dir / "state"]
        argv = [FORWARDER, *place, "--cores", self.far, "--sessions", SESSIONS]
        argv += ["--memory", 128, "--log", "warn"]
        for number, side in enumerate(MACS):
            name, mac = f"net_memif{number}", FORWARDERS[number]
            device = self.memif(number, "server", side)
            prefix = f"10.66.{8 + number}"
            argv += ["--port", f"{name},backend=ethdev,mac={mac},dev={device}"]
            argv += ["--route", f"{prefix}.0/24,port={name},via={prefix}.254"]
            argv += ["--neighbour", f"{prefix}.254,port={name},mac={MACS[side]}"]
        reap.note_cleanup(self.dir, "forwarder", [FORWARDER, *place, "--cleanup"])
        log = self.dir / "forwarder.log"
        process = Process("steelyard-forwarder", machine.ahead(ns.command(argv)), log)
        self.open.callback(process.stop)
        peer = Forwarder(process, socket)
        wait_until(lambda: socket.exists() or not process.alive(), "the forwarder's socket", 60)
        if not process.alive():
            raise machine.Failed(process.describe())
        answer = peer.ask(apply=pb.ApplyRequest(changes=changes(), commit=True))
        if answer.HasField("error"):
            raise machine.Failed(answer.error.text)
        return peer

    def link(self, number, side):
        """Options of a stack at the end of a link."""
        device, gate = self.memif(0, "client", side), GATES[number]
        argv = ["--port", f"net_memif0,backend=ethdev,mac={MACS[side]},dev={device},ring=1024"]
        argv += ["--route", f"0.0.0.0/0,port=net_memif0,via={gate}"]
        return argv + ["--neighbour", f"{gate},port=net_memif0,mac={FORWARDERS[number]}"]

    def serve_memif(self):
        argv = [LOAD, *self.link(1, "server"), "--cores", self.far, *memory(), "--echo"]
        argv += ["--connections", self.capacity, "--time-wait", "10ms"]
        argv += ["--serve", f"{SERVER}:{PORT}"]
        log = self.dir / "memif-server.log"
        self.memif_server = self.begin("steelyard-load-server", argv, log, "^serving")

    def pause(self, paused):
        """What is not asked takes no time of the core."""
        for process in (self.forwarder.process, self.memif_server):
            process.send(signal.SIGSTOP if paused else signal.SIGCONT)

    # ---- asking ----------------------------------------------------------------------------------

    def ask(self, arm, **options):
        self.pause(arm == "kernel")
        try:
            if arm == "kernel":
                link, to = ["--port", f"g0,ring={RING}"], f"{CLIENTS}.2"
            else:
                link, to = self.link(0, "client"), VIP
            argv = [LOAD, *link, "--cores", self.near, *memory(), "--json", "-", "--quiet"]
            argv += ["--protocol", "echo", "--to", f"{to}:{PORT}"]
            argv += ["--source", f"{CLIENTS}.{FIRST}-{CLIENTS}.{FIRST + SOURCES - 1}"]
            for name, value in options.items():
                argv += ["--" + name.replace("_", "-"), value]
            return self.result("steelyard-load", argv)
        finally:
            self.pause(True)


def changes():
    """FNAT from the VIP to the one server."""
    first = ipaddress.ip_address(LOCAL)
    for number in range(LOCALS):
        yield pb.Change(put_local_address=pb.LocalAddress(address=(first + number).packed))
    vip = ipaddress.ip_address(VIP).packed
    key = pb.ServiceKey(protocol=pb.PROTOCOL_TCP, vip=vip, port=PORT)
    yield pb.Change(
        put_service=pb.Service(
            key=key,
            name="chain",
            mode=pb.MODE_FNAT,
            scheduler=pb.SCHEDULER_RR,
            timeouts=pb.Timeouts(time_wait_s=1),
        )
    )
    server = pb.Server(
        address=ipaddress.ip_address(SERVER).packed,
        port=PORT,
        weight=1,
        state=pb.SERVER_STATE_UP,
    )
    yield pb.Change(put_server=pb.Change.ServerOf(service=key, server=server))


RULES = f"""table ip bench {{
    chain prerouting {{
        type nat hook prerouting priority dstnat
        ip daddr {CLIENTS}.2 tcp dport {PORT} dnat to {SERVER}:{PORT}
    }}
}}
"""
