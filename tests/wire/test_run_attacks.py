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
    refusal = "port 8021 is not steered to the stack: its socket belongs to another user"
    assert refusal in done.stderr


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


# Connections that Linux's TCP is to go on with. Without the library, which would send requests too.
EXPORT = """
EXPORT, TAKE = 9, 10
PORT = 8024
def ip(text):
    return socket.inet_pton(socket.AF_INET6, text if ":" in text else f"::ffff:{text}")
def export(one, address="10.0.0.1", port=PORT, peer="10.0.0.200", peer_port=4000, wnd=1000,
           most=1000, rcv_wnd=1000, mss=1460, scales=(7, 7), unread=b"", says=None, v6=0):
    text = struct.pack("=II16sHH4x", VERSION, EXPORT, ip(address), socket.htons(port), 0)
    text += struct.pack("=16sHH7IHBB4B", ip(peer), socket.htons(peer_port), v6, 1, 1, wnd, most,
                        rcv_wnd, 0, len(unread) if says is None else says, mss, *scales, 1, 1, 1, 0)
    one.send(bytes.fromhex(secret) + text + unread)
    answer = one.recv(4096)
    rc = struct.unpack_from("=i", answer)[0] if answer else None
    return errno.errorcode.get(-rc, rc) if answer else "closed"
def worker():
    it = socket.create_server(("10.0.0.1", PORT))
    one = connect()
    rc, given = request(one, START)
    assert rc == 0 and request(one, BOUND)[0] == 0
    for fd in given:
        os.close(fd)
    assert request(one, LISTEN, ip("10.0.0.1"), PORT, [it.fileno()])[0] == 0
    return one, it
"""


def attack_by_connections(stack, script, user=UNPRIVILEGED):
    argv = [*user, "env", "-u", "LD_PRELOAD", sys.executable, "-c", REQUESTS + EXPORT + script]
    done = run(stack["forwarder"].ns.command(run_command(argv)), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


FORGE = """
one = connect()
request(one, CONFIG)
print(export(one))
one, it = worker()
for change in (
    {"port": 22}, {"port": 0}, {"address": "10.0.0.9"}, {"address": "fd00::1"},
    {"address": "127.0.0.1"}, {"peer": "127.0.0.1"}, {"peer": "224.0.0.1"}, {"peer": "0.0.0.0"},
    {"peer": "255.255.255.255"}, {"peer": "fd00::10"}, {"peer": "::1"}, {"peer_port": 0},
):
    print(export(one, **change))
for change in (
    {"scales": (15, 7)}, {"scales": (7, 15)}, {"mss": 47}, {"wnd": 1001}, {"rcv_wnd": 0xffffffff},
    {"wnd": 0xffffffff, "most": 0xffffffff},
):
    print(export(one, **change))
print(export(one), export(one), export(one, peer_port=4001, unread=bytes(65536)))
for unread, says in ((b"x", 0), (b"x", 2), (bytes(65537), 65537), (b"", 0xffffffff)):
    it.close()
    one.close()
    one, it = worker()
    print(export(one, unread=unread, says=says))
"""


def test_connections_that_a_program_invents_are_refused(stack):
    """No process has one but at a port of its own, and Linux has each once."""
    said = attack_by_connections(stack, FORGE)
    assert said[:13] == ["EACCES"] * 13
    assert said[13:19] == ["EINVAL"] * 6
    assert said[19:22] == ["0", "EADDRNOTAVAIL", "0"]
    assert said[22:] == ["closed"] * 4


MANY = """
one, it = worker()
answers = [export(one, peer_port=1000 + number) for number in range(1100)]
print(answers.count(0), answers.count("ENOSPC"))
it.close()  # no process listens there: all of them end
while export(one, peer_port=5000) != "ECONNREFUSED":
    pass
again = socket.create_server(("10.0.0.1", PORT))
print(export(one, peer_port=5000))
"""


def test_connections_that_no_process_accepts_are_bounded(stack):
    assert attack_by_connections(stack, MANY) == ["1024", "76", "0"]


TICKETS = """
one, it = worker()
def take(*sockets):
    rc, given = request(one, TAKE, fds=[it.fileno() for it in sockets])
    return errno.errorcode.get(-rc, rc), [socket.socket(fileno=fd) for fd in given]
client = socket.create_connection(("10.0.0.1", PORT))
plain, _ = it.accept()
for sockets in ((), (it,), (client,), (plain,), (socket.socketpair()[0],)):
    print(take(*sockets)[0])
assert export(one, unread=b"hello") == 0
ticket, peer = it.accept()
# The same addresses, elsewhere.
assert libc.unshare(0x40000000) == 0, code()  # CLONE_NEWNET
os.system("ip link set lo up && ip addr add 10.0.0.1/32 dev lo")
other = socket.create_server(("10.0.0.1", PORT))
forged = socket.create_connection(("10.0.0.1", PORT), source_address=peer)
like, its_peer = other.accept()
assert its_peer == peer
print(take(like)[0])
rc, given = take(ticket)
print(rc, given[0].getpeername()[0], given[0].recv(9).decode(), take(ticket)[0])
"""


def test_a_connection_is_for_the_process_with_its_ticket(stack):
    said = attack_by_connections(stack, TICKETS, user=[])
    assert said == ["ENOENT"] * 6 + ["0", "10.0.0.200", "hello", "ENOENT"]
