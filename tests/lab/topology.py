# SPDX-License-Identifier: Apache-2.0
"""The networks of the lab: hosts, their connections and addresses.

Two-armed, as most tests use it:

    client 10.0.0.10 ───┐                                       ┌─── s1 10.1.0.11
      far 10.9.0.10     ├─ bridge ─ front [forwarder] back ─ bridge ─ s2 10.1.0.12
          └─ router ────┘        10.0.0.1         10.1.0.1      └─── s3 10.1.0.13
             10.0.0.2

One-armed: the forwarder has `front` alone, and the servers are on the front network.
With `pair`, a second forwarder host, `standby`, is 10.0.0.3 and 10.1.0.3 beside the first one.
IPv6 likewise: 10.N.0.X is fd00:N::X (X read as hexadecimal digits).
"""

from dataclasses import dataclass, field

from tests.lab.netns import Namespace, create_all, delete_all

FRONT, BACK, FAR = 0, 1, 9


def v4(net, host):
    return f"10.{net}.0.{host}"


def v6(net, host):
    return f"fd00:{net}::{host}" if net else f"fd00::{host}"


@dataclass
class Host:
    """A namespace with one interface, eth0; router and forwarder have more."""

    name: str
    ns: Namespace
    v4: str = ""
    v6: str = ""

    def address(self, family):
        return self.v4 if family == 4 else self.v6

    def __str__(self):
        return self.name


@dataclass
class Network:
    """Builds the hosts of one lab. `prefix` makes the namespaces' names unique."""

    prefix: str
    arms: int = 2
    servers: int = 3
    queues: int = 1  # of the forwarder's interfaces: receive and transmit
    server_mtu: int = 1500  # of the back network
    stacked: str = ""  # macvlans as ports: "two" on both interfaces, or both on the "one"
    pair: bool = False  # with the host `standby`
    offload: tuple = ()  # hosts whose transmit checksum offload stays on
    hosts: dict = field(default_factory=dict)
    unfinished: list | None = None  # interfaces of a network that is being built

    @property
    def ports(self):
        """Returns the forwarder's interfaces, the client side first."""
        if self.stacked:
            return ("front.10", "back.20")
        return ("front", "back")[: self.arms]

    @property
    def back_net(self):
        return BACK if self.arms == 2 else FRONT

    @property
    def router(self):
        """Returns the router's addresses on the front network."""
        return v4(FRONT, 2), v6(FRONT, 2)

    def build(self):
        """Builds all hosts in few commands; the switch's come first: they create the cables."""
        servers = [f"s{n}" for n in range(1, self.servers + 1)]
        for name in ("switch", *self.others(), *servers):
            self._record(name)
        namespaces = [host.ns for host in self.hosts.values()]
        create_all(namespaces)
        for ns in namespaces:
            ns.collected = []
        self.unfinished = []
        self._wire(servers)
        for ns in namespaces:
            ns.run_collected()
        for host, interface in self.unfinished:
            self._finish(host, interface)
        self.unfinished = None
        return self

    def others(self):
        """Returns the names of the hosts other than switch and servers."""
        return ("forwarder", *["standby"] * self.pair, "router", "far", "client")

    def _wire(self, servers):
        self._bridges(*("front", "back", "far") if self.arms == 2 else ("front", "far"))
        forwarder = self["forwarder"]
        self.plug(forwarder, "front", "front", FRONT, 1, self.queues)
        if self.arms == 2:
            self.plug(forwarder, "back", "back", BACK, 1, self.queues, self.server_mtu)
        if self.stacked:
            self._stack(forwarder)
        forwarder.v4, forwarder.v6 = v4(FRONT, 1), v6(FRONT, 1)

        if self.pair:
            self.plug(self["standby"], "front", "front", FRONT, 3, self.queues)
            if self.arms == 2:
                self.plug(self["standby"], "back", "back", BACK, 3, self.queues, self.server_mtu)

        self._far(FRONT, 2)
        self.plug(self["client"], "eth0", "front", FRONT, 10)

        back = "back" if self.arms == 2 else "front"
        for n, name in enumerate(servers, 1):
            self.plug(self[name], "eth0", back, self.back_net, 10 + n, mtu=self.server_mtu)
        self._routes()

    def _bridges(self, *names):
        switch = self["switch"].ns
        # A switch does not inspect IP headers; the kernel's bridges would, and would drop invalid
        # packets.
        switch.sysctl("bridge.bridge-nf-call-iptables", 0, missing_ok=True)
        switch.sysctl("bridge.bridge-nf-call-ip6tables", 0, missing_ok=True)
        for name in names:
            self._bridge(switch, name)

    def _far(self, net, number):
        """Connects the router, this number on the front network, and the host behind it."""
        router = self["router"]
        self.plug(router, "eth0", "front", net, number)
        self.plug(router, "far0", "far", FAR, 1)
        router.ns.sysctl("ipv4.ip_forward", 1)
        router.ns.sysctl("ipv6.conf.all.forwarding", 1)
        self.plug(self["far"], "eth0", "far", FAR, 10)
        self.default_route("far", v4(FAR, 1), v6(FAR, 1))

    def _routes(self):
        for text in (f"10.{FAR}.0.0/24 via {v4(FRONT, 2)}", f"{v6(FAR, '')}/64 via {v6(FRONT, 2)}"):
            self["forwarder"].ns.ip(f"route add {text}")
            if self.pair:
                self["standby"].ns.ip(f"route add {text}")
        self.default_route("client", v4(FRONT, 1), v6(FRONT, 1))
        self.default_route("router", v4(FRONT, 1), v6(FRONT, 1))

    def let_forwarder_route(self):
        """Makes the forwarders' kernels the servers' gateways, without ICMP redirects."""
        for name in ("forwarder", *["standby"] * self.pair):
            forwarder = self[name].ns
            forwarder.sysctl("ipv4.ip_forward", 1)
            forwarder.sysctl("ipv6.conf.all.forwarding", 1)
            for scope in ("all", "default", "front"):
                forwarder.sysctl(f"ipv4.conf.{scope}.send_redirects", 0)

    def default_route(self, name, via4, via6):
        self[name].ns.ip(f"route add default via {via4}")
        self[name].ns.ip(f"-6 route add default via {via6}")

    def __getitem__(self, name):
        return self.hosts[name]

    def server_hosts(self):
        return [self[f"s{n}"] for n in range(1, self.servers + 1)]

    def destroy(self):
        there = [host.ns for host in reversed(self.hosts.values()) if host.ns.path.exists()]
        if there:
            delete_all(there)

    def _record(self, name):
        """Records a host before its namespace exists: a failed creation is cleaned up, too."""
        self.hosts[name] = Host(name, Namespace(f"{self.prefix}-{name}"))
        return self.hosts[name]

    def add_host(self, name):
        """Adds a namespace without an interface."""
        host = self._record(name)
        host.ns.create()
        return host

    def remove_host(self, name):
        self.hosts.pop(name).ns.delete()

    def _bridge(self, switch, name):
        # For an hour, in 1/100 s: the bridge would flood frames to a host that was silent for long,
        # and the forwarder counts foreign frames.
        switch.ip(f"link add br-{name} type bridge mcast_snooping 0 ageing_time 360000")
        switch.ip(f"link set br-{name} up")

    def _stack(self, host):
        """Moves the forwarder's addresses to interfaces stacked on its own. Without VLANs, two of
        them on one interface receive each other's broadcasts, and must not answer them."""
        if self.stacked == "one":
            switch = self["switch"].ns
            switch.ip("link add joint type veth peer name tnioj")
            switch.ip("link set joint master br-front up")
            switch.ip("link set tnioj master br-back up")
        host.ns.sysctl("ipv4.conf.all.arp_filter", 1)
        for trunk, interface, net in zip(("front", "back"), self.ports, (FRONT, BACK), strict=True):
            below = "front" if self.stacked == "one" else trunk
            host.ns.ip(f"address flush dev {trunk}")
            host.ns.ip(f"link add link {below} name {interface} type macvlan mode bridge")
            self._address(host, interface, net, 1)

    def plug(self, host, interface, bridge, net, number, queues=1, mtu=1500):
        """Connects a host to a bridge by a veth pair and gives it its addresses."""
        switch = self["switch"].ns
        cable = f"{host.name}-{interface}"
        switch.ip(
            f"link add {cable} mtu {mtu} numrxqueues {queues} numtxqueues {queues}"
            f" type veth peer name {interface} mtu {mtu} numrxqueues {queues}"
            f" numtxqueues {queues} netns {host.ns.name}"
        )
        switch.ip(f"link set {cable} master br-{bridge} up")
        self._address(host, interface, net, number)
        if self.unfinished is None:
            self._finish(host, interface)
        else:
            self.unfinished.append((host, interface))

    def _finish(self, host, interface):
        if host.name not in self.offload:
            # Without hardware, offload leaves checksums incomplete on the wire.
            host.ns.finish_checksums(interface)

    def _address(self, host, interface, net, number):
        host.ns.ip(f"link set {interface} up")
        host.v4, host.v6 = v4(net, number), v6(net, number)
        host.ns.ip(f"address add {host.v4}/24 dev {interface}")
        host.ns.ip(f"address add {host.v6}/64 dev {interface} nodad")
