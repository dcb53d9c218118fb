# SPDX-License-Identifier: Apache-2.0
"""An unprivileged program on the user-space stack attacks its privileged parent: it keeps resources
that it received, and sends requests that no library would send (docs/design/0060)."""

import errno
import sys

import pytest

from tests.lab.process import run
from tests.lab.run import MESSAGE_VERSION, PORT, Puppet, kernel_connections, run_command

UNPRIVILEGED = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]

# Shared by the attackers: requests to the parent, and parsing of its answers.
REQUESTS = (
    f"VERSION = {MESSAGE_VERSION}"
    + """
import array, ctypes, errno, fcntl, mmap, os, socket, struct, sys
name, _, secret = os.environ["STEELYARD_RUN"].partition(":")
CONFIG, START, BOUND, LISTEN = 1, 2, 3, 4
libc = ctypes.CDLL(None, use_errno=True)
def connect():
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.connect(chr(0) + name)
    return one
def request(one, kind, address=bytes(16), port=0, fds=()):
    text = struct.pack("=II16sHH4x", VERSION, kind, address, socket.htons(port), 0)
    socket.send_fds(one, [bytes.fromhex(secret) + text], fds)
    answer, control, *_ = one.recvmsg(4096, 4096)
    given = array.array("i", control[0][2] if control else b"")
    return struct.unpack_from("=i", answer)[0], given
def sockets(given):
    return [fd for fd in given if domain(fd) == 44]  # AF_XDP
def domain(fd):
    value = ctypes.c_int()
    libc.getsockopt(fd, socket.SOL_SOCKET, 39, ctypes.byref(value), ctypes.byref(ctypes.c_int(4)))
    return value.value
def target(fd):
    return os.readlink(f"/proc/self/fd/{fd}")
def memory(given):
    return next(fd for fd in given if "steelyard-packets" in target(fd))
def code():
    return errno.errorcode[ctypes.get_errno()]
"""
)


def attack(stack, script, *options):
    """Runs the script; returns the words that it prints."""
    argv = [*UNPRIVILEGED, sys.executable, "-c", REQUESTS + script]
    return run(stack["forwarder"].ns.command(run_command(argv, *options))).split()


KEEP_MEMORY = """
kept, mapped = [], []
for turn in range(6):
    with connect() as one:
        rc, given = request(one, START)
        assert rc == 0, (turn, rc)
        kept.append(memory(given))
        mapped.append(mmap.mmap(kept[-1], 2 << 20))
        for fd in given:
            if fd != kept[-1]:
                os.close(fd)
with connect() as one:
    request(one, CONFIG)  # the last region is released
    print(*(os.fstat(fd).st_blocks for fd in kept))
    for change in (
        lambda fd: os.ftruncate(fd, 2 << 20),
        lambda fd: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK),
    ):
        try:
            change(kept[0])
            print("done")
        except OSError as error:
            print(errno.errorcode[error.errno])
"""


def test_regions_that_a_process_keeps_are_freed(stack):
    """It reconnects, and keeps descriptors and mappings of all earlier regions."""
    assert attack(stack, KEEP_MEMORY) == ["0"] * 6 + ["EPERM", "EPERM"]


KEEP_SOCKETS = """
one = connect()
rc, kept = request(one, START)
print(rc)
one.close()
with connect() as one:
    rc, given = request(one, START)
    print(errno.errorcode[-rc], len(given))
for fd in kept:
    os.close(fd)
with connect() as one:
    print(request(one, START)[0])
"""


def test_sockets_that_a_process_keeps_cost_one_region(stack):
    """Their pages stay locked. While the queue has such a socket, it gets no other region."""
    assert attack(stack, KEEP_SOCKETS) == ["0", "EADDRINUSE", "0", "0"]


BIND = """
one = connect()
rc, given = request(one, START)
for fd in sockets(given):
    for interface in ("lo", "front"):
        to = struct.pack("=HHIII", 44, 0, socket.if_nametoindex(interface), 0, 0)
        print("done" if libc.bind(fd, to, len(to)) == 0 else code())
    umem = struct.pack("=QQIIII", 0, 0, 2048, 0, 0, 0)
    print("done" if libc.setsockopt(fd, 283, 4, umem, len(umem)) == 0 else code())
"""


def test_sockets_cannot_be_bound_again(stack):
    """Neither to another interface nor to other memory."""
    assert attack(stack, BIND) == ["EBUSY"] * 6  # of two queues


PORTS = """
address = socket.inet_pton(socket.AF_INET6, "::ffff:10.0.0.1")
def listen(port, device=None, user=0):
    os.seteuid(user)
    it = socket.socket()
    os.seteuid(0)
    it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if device:
        it.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
    it.bind(("10.0.0.1", port))
    it.listen()
    return it
mine = listen(8020)
others = listen(8021, user=1234)
on_device = listen(8022, device=b"lo")
on_interface = listen(8023, device=b"front")
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
one = connect()
for port, it in ((8020, mine), (8021, others), (8022, on_device), (8023, on_interface)):
    print(request(one, LISTEN, address, port, [it.fileno()])[0])
# Linux lets two sockets listen at one port of two devices.
again = socket.socket()
again.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
again.bind(("10.0.0.1", 8023))
again.listen()
print(request(one, LISTEN, address, 8023, [again.fileno()])[0])
"""


def test_foreign_sockets_steer_no_port(stack):
    argv = run_command([sys.executable, "-c", REQUESTS + PORTS])
    done = run(stack["forwarder"].ns.command(argv), check=False)
    refused = str(-errno.EACCES)
    assert done.stdout.split() == ["0", refused, refused, "0", refused], done.stderr
    warnings = done.stderr.count("Linux serves it")
    assert warnings == 2, "one for each connection: the library's and the script's"
    assert "port 8021 is not steered to the stack: its socket is of another user" in done.stderr


# Part of the attacked program: a process that opens a connection, as any later process does. The
# attackers live until it has ended.
VICTIM = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
    one.sendall(b"echo\\nhello")
    print(one.recv(5, socket.MSG_WAITALL), flush=True)
"""
SLOTS = """
import signal, subprocess
COUNT = 140
victim, *where = sys.argv[1:]
def dial():
    subprocess.run([sys.executable, victim, *where], check=True)
def crowd(each):
    # Children, each of which has called `each` and lives.
    pids = []
    ready, said = os.pipe()
    for number in range(COUNT):
        pid = os.fork()
        if not pid:
            held = each(number)
            os.write(said, b".")
            signal.pause()
        pids.append(pid)
    while number >= 0:
        number -= len(os.read(ready, 4096))
    return pids
def end(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
def ask():
    one = connect()
    return one, request(one, CONFIG)
"""
CROWDS = {
    "connections of one process": "kept = [ask() for _ in range(COUNT)]\ndial()\n",
    "children": "pids = crowd(lambda _: ask())\ndial()\nend(pids)\n",
    "connections of children that have ended": """
left, right = socket.socketpair()
kept = []
for _ in range(COUNT):
    pid = os.fork()
    if not pid:
        one, _ = ask()
        socket.send_fds(left, [b"."], [one.fileno()])
        os._exit(0)
    kept += socket.recv_fds(right, 1, 1)[1]
    os.waitpid(pid, 0)
dial()
""",
}


def dialled(stack, script):
    """Runs the script with a peer to which victims connect. Returns their output, and how many of
    the connections Linux had."""
    puppet = Puppet(stack["client"], stack["client"].v4)
    before = kernel_connections(stack["forwarder"])
    victim = stack.dir / "victim.py"
    victim.write_text(VICTIM)
    argv = [*UNPRIVILEGED, sys.executable, "-c", REQUESTS + SLOTS + script]
    command = run_command([*argv, victim, stack["client"].v4, PORT])
    try:
        done = run(stack["forwarder"].ns.command(command), check=False)
    finally:
        puppet.close()
    assert done.returncode == 0, done.stderr
    return done, kernel_connections(stack["forwarder"]) - before


@pytest.mark.parametrize("crowd", CROWDS)
def test_processes_and_connections_exhaust_no_foreign_slots(stack, crowd):
    done, of_linux = dialled(stack, CROWDS[crowd])
    assert done.stdout.split() == [f"{b'hello'}"]
    assert of_linux == 0, done.stderr


PORTS_OF_CROWD = """
def listen(number):
    it = socket.create_server(("10.0.0.1", 10000 + number))
    address = socket.inet_pton(socket.AF_INET6, "::ffff:10.0.0.1")
    one = connect()
    try:
        return it, one, request(one, LISTEN, address, 10000 + number, [it.fileno()])
    except OSError:  # there is no slot
        return it
pids = crowd(listen)
dial()
end(pids)
dial()
"""


def test_process_without_a_slot_is_reported(stack):
    """Processes with ports use all slots. When they exit, the slots are free again."""
    done, of_linux = dialled(stack, PORTS_OF_CROWD)
    assert done.stdout.split() == [f"{b'hello'}"] * 2
    assert of_linux == 1, done.stderr
    assert "128 processes of the program are workers or have ports" in done.stderr
    assert "Linux serves this one until others end" in done.stderr
