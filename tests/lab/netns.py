# SPDX-License-Identifier: Apache-2.0
"""One network namespace.

Commands enter it by nsenter --net, never by `ip netns exec`: that mounts a new /sys, which hides
the BPF file system, so a link pinned there would end with its process."""

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import socket
import struct
from pathlib import Path

from tests.lab.process import run
from tests.lab.wait import wait_until

CLONE_NEWNET = 0x40000000
SIOCGIFHWADDR, SIOCSIFFLAGS, SIOCETHTOOL = 0x8927, 0x8914, 0x8946
IFF_UP, IFF_RUNNING = 1, 0x40
ETHTOOL_STXCSUM, ETHTOOL_GSTRINGS, ETHTOOL_GSTATS, ETHTOOL_GSSET_INFO = 0x17, 0x1B, 0x1D, 0x37
ETH_SS_STATS, ETH_GSTRING_LEN = 1, 32
_libc = ctypes.CDLL(None, use_errno=True)


def _setns(fd):
    if _libc.setns(fd, CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


def link_address(interface):
    """Returns the MAC address of an interface of this thread's namespace; SIOCGIFHWADDR, see
    netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        request = struct.pack("256s", interface.encode())
        answer = fcntl.ioctl(one, SIOCGIFHWADDR, request)
    return ":".join(f"{byte:02x}" for byte in answer[18:24])


def _set_link(call, request):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, call, request)


def _ethtool(interface, command):
    """Calls ethtool by the ioctl, and returns the command with the kernel's answer."""
    value = ctypes.create_string_buffer(command, len(command))
    _set_link(SIOCETHTOOL, struct.pack("16sP", interface.encode(), ctypes.addressof(value)))
    return value.raw


def is_over(pid):
    """Returns whether a killed process has ended: a zombie's other threads may still run with its
    locks."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return len(threads) <= 1 and status.rpartition(")")[2].split()[0] == "Z"


def pids_in(namespaces):
    """Returns the processes in these namespaces, except this one."""
    inodes, found = {one.inode() for one in namespaces}, []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        # A zombie no longer has a namespace.
        with contextlib.suppress(OSError):
            if (entry / "ns/net").stat().st_ino in inodes:
                found.append(int(entry.name))
    return found


def kill_in(namespaces):
    """Kills every process inside, and waits until they have ended."""
    killed = pids_in(namespaces)
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    wait_until(
        lambda: not pids_in(namespaces) and all(map(is_over, killed)),
        f"the processes of {', '.join(one.name for one in namespaces)} are gone",
    )


def _netns(verb, namespaces):
    run(["ip", "-batch", "-"], stdin="".join(f"netns {verb} {one.name}\n" for one in namespaces))


def create_all(namespaces):
    """Creates several in one command: a lab needs many commands, and there are many labs."""
    _netns("add", namespaces)
    for one in namespaces:
        one.prepare()


def delete_all(namespaces):
    kill_in(namespaces)
    for one in namespaces:
        one.remove_files()
    _netns("del", namespaces)


class Namespace:
    """A namespace of `ip netns` called `name`; created by create(), removed by delete()."""

    def __init__(self, name):
        self.name = name
        self.path = Path("/run/netns") / name
        self.collected = None  # commands of ip for run_collected(); None: not collecting

    def create(self):
        create_all([self])
        return self

    def prepare(self):
        # The kernel reuses inode numbers: existing files belong to a namespace that no longer
        # exists.
        self.remove_files()
        # Makes addresses usable at once, and suppresses unsolicited packets.
        for scope in ("all", "default"):
            self.sysctl(f"ipv6.conf.{scope}.disable_ipv6", 0)  # also if the host has none
            self.sysctl(f"ipv6.conf.{scope}.accept_dad", 0)
            self.sysctl(f"ipv6.conf.{scope}.router_solicitations", 0)
            self.sysctl(f"ipv6.conf.{scope}.accept_ra", 0)
        with self.entered():
            _set_link(SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP | IFF_RUNNING))

    def kill_all(self):
        """Kills every process inside, and waits until they have ended."""
        kill_in([self])

    def remove_files(self):
        """Removes Steelyard's pins and files that are named after this namespace."""
        inode = self.inode()
        for pattern in (f"sys/fs/bpf/*/{inode}-*", f"run/steelyard/*-{inode}-*"):
            # The folder of pins is removed with its last pin, by any process.
            with contextlib.suppress(FileNotFoundError):
                for path in Path("/").glob(pattern):
                    path.unlink(missing_ok=True)
        Path(f"/run/steelyard/claims-{inode}").unlink(missing_ok=True)

    def delete(self):
        delete_all([self])

    def inode(self):
        return self.path.stat().st_ino

    def pids(self):
        """Returns the processes in this namespace, except this one."""
        return pids_in([self])

    @property
    def enter(self):
        """Returns the prefix that a person types to run a command inside."""
        return f"nsenter --net={self.path}"

    def command(self, argv):
        """Returns the argv to run inside."""
        return [*self.enter.split(), "--", *map(str, argv)]

    def run(self, argv, **options):
        """Runs argv inside and returns its standard output; see process.run()."""
        return run(self.command(argv), **options)

    def ip(self, text, **options):
        """Runs one `ip` command, written as on the command line; later if they are collected."""
        if self.collected is not None:
            self.collected.append(text)
            return None
        return run(["ip", "-n", self.name, *text.split()], **options)

    def run_collected(self):
        """Runs the collected commands, in one program for each family that they name."""
        lines, self.collected = self.collected, None
        for flag, group in itertools.groupby(lines, lambda text: text.partition(" ")[0] == "-6"):
            text = "".join(line.removeprefix("-6 ") + "\n" for line in group)
            run(["ip", *["-6"] * flag, "-n", self.name, "-batch", "-"], stdin=text)

    @contextlib.contextmanager
    def entered(self):
        """Moves this thread inside for the block; files under /proc/sys/net and new sockets belong
        to the namespace."""
        with open("/proc/thread-self/ns/net") as home, open(self.path) as inside:
            _setns(inside.fileno())
            try:
                yield self
            finally:
                _setns(home.fileno())

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_STREAM, protocol=0):
        """Returns a socket of this namespace, usable from anywhere."""
        with self.entered():
            return socket.socket(family, kind, protocol)

    def sysctl(self, name, value, missing_ok=False):
        """Sets a variable below `net`; returns its previous value."""
        path = Path("/proc/sys/net", *name.split("."))
        with self.entered():
            if missing_ok and not path.exists():
                return None
            before = path.read_text().strip()
            path.write_text(f"{value}\n")
        return before

    def finish_checksums(self, interface):
        """Like `ethtool -K INTERFACE tx off`: checksums are complete when frames leave."""
        with self.entered():
            _ethtool(interface, struct.pack("II", ETHTOOL_STXCSUM, 0))

    def statistics(self, interface):
        """Returns the interface's counters, like `ethtool -S INTERFACE`."""
        with self.entered():
            mask = 1 << ETH_SS_STATS
            answer = _ethtool(interface, struct.pack("IIQI", ETHTOOL_GSSET_INFO, 0, mask, 0))
            (count,) = struct.unpack_from("I", answer, 16)
            head = struct.pack("III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count)
            names = _ethtool(interface, head + bytes(count * ETH_GSTRING_LEN))[len(head) :]
            head = struct.pack("II", ETHTOOL_GSTATS, count)
            values = _ethtool(interface, head + bytes(8 * count))[len(head) :]
        return {
            name.rstrip(b"\0").decode(): value
            for (name,), (value,) in zip(
                struct.iter_unpack(f"{ETH_GSTRING_LEN}s", names),
                struct.iter_unpack("Q", values),
                strict=True,
            )
        }

    def mac(self, interface):
        with self.entered():
            return link_address(interface)

    def count_resets(self, sources=()):
        """Counts TCP resets that arrive from now on, from these sources or from any; see
        resets()."""
        rule = "tcp flags & rst == rst counter name resets"
        rules = [f"{'ip6' if ':' in one else 'ip'} saddr {one} {rule}" for one in sources] or [rule]
        chain = "\n".join(["type filter hook input priority 0", *rules])
        text = f"table inet lab {{\ncounter resets {{ }}\nchain input {{\n{chain}\n}}\n}}\n"
        self.run(["nft", "-f", "-"], stdin=text)

    def resets(self):
        answer = json.loads(self.run(["nft", "-j", "list", "counter", "inet", "lab", "resets"]))
        return next(one["counter"]["packets"] for one in answer["nftables"] if "counter" in one)

    def counters(self, part=""):
        """Returns the kernel's protocol counters (nstat): {"TcpInCsumErrors": 0, …}. With `part`
        only those whose names contain it, which takes a third of the time."""
        found = {}
        with self.entered():
            for file in ("snmp", "netstat"):
                lines = Path("/proc/thread-self/net", file).read_text().splitlines()
                for head, values in zip(lines[::2], lines[1::2], strict=True):
                    group, *names = head.split()
                    found |= {
                        group.rstrip(":") + name: int(value)
                        for name, value in zip(names, values.split()[1:], strict=True)
                        if part in name
                    }
            for line in Path("/proc/thread-self/net/snmp6").read_text().splitlines():
                if part in line:
                    name, value = line.split()
                    found[name] = int(value)
        return found
