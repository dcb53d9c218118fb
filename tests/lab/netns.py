# SPDX-License-Identifier: Apache-2.0
"""One network namespace.

Commands enter it by nsenter --net, never by `ip netns exec`: that mounts a fresh /sys, which hides
the BPF file system, so a link pinned there would end with its process.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import socket
import struct
from pathlib import Path

from tests.lab.process import run
from tests.lab.wait import wait_until

CLONE_NEWNET = 0x40000000
SIOCGIFHWADDR = 0x8927
_libc = ctypes.CDLL(None, use_errno=True)


def _setns(fd):
    if _libc.setns(fd, CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


def link_address(interface):
    """MAC address of an interface of this thread's namespace; SIOCGIFHWADDR, see netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        request = struct.pack("256s", interface.encode())
        answer = fcntl.ioctl(one, SIOCGIFHWADDR, request)
    return ":".join(f"{byte:02x}" for byte in answer[18:24])


def is_over(pid):
    """Whether a process that was killed has ended: a zombie's other threads may still run, and
    hold its locks."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return len(threads) <= 1 and status.rpartition(")")[2].split()[0] == "Z"


class Namespace:
    """A namespace known to `ip netns` by `name`; created by create(), removed by delete()."""

    def __init__(self, name):
        self.name = name
        self.path = Path("/run/netns") / name

    def create(self):
        run(["ip", "netns", "add", self.name])
        # The kernel reuses inode numbers: existing files belong to a namespace that no longer
        # exists.
        self.remove_files()
        # Makes addresses usable at once, and suppresses unsolicited packets.
        for scope in ("all", "default"):
            self.sysctl(f"ipv6.conf.{scope}.accept_dad", 0)
            self.sysctl(f"ipv6.conf.{scope}.router_solicitations", 0)
            self.sysctl(f"ipv6.conf.{scope}.accept_ra", 0)
        self.ip("link set lo up")
        return self

    def kill_all(self):
        """Kills every process inside, and waits until they are gone."""
        killed = self.pids()
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        wait_until(
            lambda: not self.pids() and all(map(is_over, killed)),
            f"the processes of {self.name} are gone",
        )

    def remove_files(self):
        """Steelyard's pins and files that are named after this namespace."""
        inode = self.inode()
        for pattern in (f"sys/fs/bpf/*/{inode}-*", f"run/steelyard/*-{inode}-*"):
            for path in Path("/").glob(pattern):
                path.unlink(missing_ok=True)
        Path(f"/run/steelyard/claims-{inode}").unlink(missing_ok=True)

    def delete(self):
        self.kill_all()
        self.remove_files()
        run(["ip", "netns", "del", self.name])

    def inode(self):
        return self.path.stat().st_ino

    def pids(self):
        """Processes in this namespace, except this one."""
        inode, found = self.inode(), []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            # A zombie no longer has a namespace.
            with contextlib.suppress(OSError):
                if (entry / "ns/net").stat().st_ino == inode:
                    found.append(int(entry.name))
        return found

    @property
    def enter(self):
        """The prefix that a person types to run a command inside."""
        return f"nsenter --net={self.path}"

    def command(self, argv):
        """The argv to run inside."""
        return [*self.enter.split(), "--", *map(str, argv)]

    def run(self, argv, **options):
        """Runs argv inside and returns its standard output; see process.run()."""
        return run(self.command(argv), **options)

    def ip(self, text, **options):
        """Runs one `ip` command, written as on the command line."""
        return run(["ip", "-n", self.name, *text.split()], **options)

    @contextlib.contextmanager
    def entered(self):
        """Moves this thread inside; files under /proc/sys/net and new sockets belong to the
        namespace."""
        with open("/proc/thread-self/ns/net") as home, open(self.path) as inside:
            _setns(inside.fileno())
            try:
                yield self
            finally:
                _setns(home.fileno())

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_STREAM, protocol=0):
        """A socket of this namespace, usable from anywhere."""
        with self.entered():
            return socket.socket(family, kind, protocol)

    def sysctl(self, name, value, missing_ok=False):
        path = Path("/proc/sys/net", *name.split("."))
        with self.entered():
            if path.exists() or not missing_ok:
                path.write_text(f"{value}\n")

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

    def counters(self):
        """The kernel's protocol counters (nstat): {"TcpInCsumErrors": 0, …}."""
        found = {}
        with self.entered():
            for file in ("snmp", "netstat"):
                lines = Path("/proc/thread-self/net", file).read_text().splitlines()
                for head, values in zip(lines[::2], lines[1::2], strict=True):
                    group, *names = head.split()
                    found |= {
                        group.rstrip(":") + name: int(value)
                        for name, value in zip(names, values.split()[1:], strict=True)
                    }
            for line in Path("/proc/thread-self/net/snmp6").read_text().splitlines():
                name, value = line.split()
                found[name] = int(value)
        return found
