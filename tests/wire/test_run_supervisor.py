# SPDX-License-Identifier: Apache-2.0
"""The supervisor, parent of a program on the user-space stack: which resources processes get."""

import errno
import re
import sys

from tests.lab import wait_until
from tests.lab.clients import http_get
from tests.lab.process import run
from tests.lab.run import MESSAGE_VERSION, PORT, Puppet, kernel_connections, run_command, start_run
from tests.wire.running import LIGHTTPD, V4, on_stack, site

# The first lines of scripts that send requests to the parent.
VERSION = f"VERSION = {MESSAGE_VERSION}"
ASK = (
    VERSION
    + """
import errno, os, socket, struct, sys
def connect(name):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.connect(chr(0) + name)
    one.settimeout(60)
    return one
def ask(one, secret, kind):
    one.send(secret + struct.pack("=II16sHH4x", VERSION, kind, bytes(16), 0, 0))
    answer = one.recv(4096)
    return struct.unpack_from("=i", answer)[0] if answer else "nothing"
told = os.environ.get("STEELYARD_RUN")
name, _, secret = told.partition(":") if told else (sys.argv[1], "", "00" * 16)
one = connect(name)
for kind in (1, 2, 2) if told else (2,):
    print(ask(one, bytes.fromhex(secret), kind), flush=True)
if not told:
    held = [connect(name) for _ in range(200)]
    print("held", flush=True)
    sys.stdin.read()
"""
)


def test_worker_gets_its_queues_once(stack):
    said = on_stack(stack, sys.executable, "-c", ASK)
    assert said.split() == ["0", "0", str(-errno.EALREADY)]


# A process that has taken over a worker has its packet socket.
LARGE = (
    VERSION
    + """
import array, os, socket, struct
name, _, secret = os.environ["STEELYARD_RUN"].partition(":")
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect(chr(0) + name)
one.send(bytes.fromhex(secret) + struct.pack("=II16sHH4x", VERSION, 2, bytes(16), 0, 0))
_, control, *_ = one.recvmsg(4096, 4096)
given = array.array("i", control[0][2])
large = socket.socket(fileno=given[-1])
print(large.family == socket.AF_PACKET)
try:
    large.setsockopt(socket.SOL_SOCKET, 27, 0)  # SO_DETACH_FILTER
except PermissionError:
    print("locked")
large.bind(("lo", 3))  # ETH_P_ALL
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
plain.bind(("127.0.0.1", 0))
plain.sendto(b"x", plain.getsockname())
print(plain.recv(9))
try:
    print(large.recv(9))
except BlockingIOError:
    print("nothing")
"""
)


def test_socket_for_large_segments_receives_nothing(stack):
    command = run_command([sys.executable, "-c", LARGE], "--large-segments")
    said = run(stack["forwarder"].ns.command(command))
    assert said.split() == ["True", "locked", "b'x'", "nothing"]


# Requests a port with no socket, and with one that listens on another port; prints the answers.
STEER = (
    VERSION
    + """
import os, socket, struct
name, _, secret = os.environ["STEELYARD_RUN"].partition(":")
def listen(port):
    it = socket.socket()
    it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    it.bind(("10.0.0.1", port))
    it.listen()
    return it
address = socket.inet_pton(socket.AF_INET6, "::ffff:10.0.0.1")
def ask(port, *fds):
    # Of a process the last connection counts; the library has one as well.
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.connect(chr(0) + name)
    request = struct.pack("=II16sHH4x", VERSION, 4, address, socket.htons(port), 0)
    socket.send_fds(one, [bytes.fromhex(secret) + request], [it.fileno() for it in fds])
    print(struct.unpack_from("=i", one.recv(4096))[0])
bound = socket.socket()
bound.bind(("10.0.0.1", 22))
own = listen(8020)
for fds in ((), (own,), (bound,)):
    ask(22, *fds)
ask(8020, own)
ask(8021, listen(8021))
"""
)


def test_worker_steers_only_ports_where_it_listens(stack):
    command = run_command([sys.executable, "-c", STEER], "--port", 8020, "--port", 22)
    said = run(stack["forwarder"].ns.command(command))
    refused = str(-errno.EACCES)
    assert said.split() == [refused, refused, refused, "0", refused]


# Requests a port with a listening socket, of the supervisor's network namespace and of one that the
# process has created.
ELSEWHERE = (
    VERSION
    + """
import ctypes, os, socket, struct
name, _, secret = os.environ["STEELYARD_RUN"].partition(":")
first = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
second = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
address = socket.inet_pton(socket.AF_INET6, "::ffff:0.0.0.0")
libc = ctypes.CDLL(None, use_errno=True)
def ask(one, port):
    it = socket.socket()
    it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    it.bind(("0.0.0.0", port))
    it.listen()
    one.connect(chr(0) + name)  # after the library: of a process the last one counts
    request = struct.pack("=II16sHH4x", VERSION, 4, address, socket.htons(port), 0)
    socket.send_fds(one, [bytes.fromhex(secret) + request], [it.fileno()])
    print(struct.unpack_from("=i", one.recv(4096))[0])
ask(first, 8020)
assert libc.unshare(0x40000000) == 0, ctypes.get_errno()  # CLONE_NEWNET
ask(second, 8021)
"""
)


def test_foreign_network_namespace_gets_no_ports(stack):
    """All ports are free there, whoever created the namespace."""
    said = on_stack(stack, sys.executable, "-c", ELSEWHERE)
    assert said.split() == ["0", str(-errno.EACCES)]


# Kills the supervisor. Then an unprivileged user takes its socket's name, and a process of the
# program sends a request.
FALSE_SUPERVISOR = """
import os, signal, socket, subprocess, sys
if len(sys.argv) > 3:
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
        one.sendall(b"echo\\nhello")
        print(one.recv(5, socket.MSG_WAITALL), flush=True)
    sys.exit()
serve = (
    "import socket, sys\\n"
    "it = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\\n"
    "it.bind(chr(0) + sys.argv[1])\\n"
    "it.listen()\\n"
    "print('listens', flush=True)\\n"
    "one = it.accept()[0]\\n"
    "print('accepted', flush=True)\\n"
    "print(one.recv(4096), flush=True)\\n"
)
name = os.environ["STEELYARD_RUN"].partition(":")[0]
supervisor = int(name.rpartition("-")[2])
os.kill(supervisor, signal.SIGKILL)
while os.getppid() == supervisor:
    pass
user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
clean = {"PATH": os.environ["PATH"]}
argv = [*user, sys.executable, "-c", serve, name]
false = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=clean)
assert false.stdout.readline() == "listens\\n"
subprocess.run([sys.executable, *sys.argv, "again"], check=True)
print(false.stdout.readline().strip(), false.stdout.readline().strip(), flush=True)
"""


def test_false_supervisor_gets_no_secret(stack):
    """The program stays with Linux."""
    puppet = Puppet(stack["client"], stack["client"].v4)
    before = kernel_connections(stack["forwarder"])
    script = stack.dir / "false_supervisor.py"
    script.write_text(FALSE_SUPERVISOR)
    argv = [sys.executable, script, stack["client"].v4, PORT]
    process = start_run(stack, "false", argv)
    try:
        wait_until(lambda: "accepted" in process.output(), "the false supervisor gets a request")
    finally:
        puppet.close()
    wait_until(lambda: f"{b'hello'}\naccepted {b''}" in process.output(), "it gets nothing")
    assert "does not answer: Operation not permitted" in process.output()
    assert kernel_connections(stack["forwarder"]) == before + 1


# A process that becomes a daemon after its parent has exited.
DAEMON = """
import os, signal, sys
if os.fork():
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"the daemon got it\\n"), os._exit(0)))
os.write(1, b"the daemon waits\\n")
while True:
    signal.pause()
"""
# In a PID namespace: another program gets the id of the program's first process.
REUSE = """
"$@" &
supervisor=$!
while ! grep -q waits "$LOG"; do sleep 0.05; done
first=$(grep -o 'first is [0-9]*' "$LOG" | cut -d' ' -f3)
echo $((first - 1)) >/proc/sys/kernel/ns_last_pid
sleep 1000 &
echo "stranger $! of $first"
kill -TERM $supervisor
wait $supervisor
kill -0 $! && echo "the stranger lives"
kill $!
"""


def test_reused_process_id_gets_no_signal(stack):
    """The program's first process has exited, and another process has its id."""
    log = stack.dir / "reuse.log"
    program = f"import os\nos.write(1, b'first is %d\\n' % os.getpid())\n{DAEMON}"
    command = run_command([sys.executable, "-c", program])
    shell = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", REUSE, "sh"]
    process = stack.start("forwarder", "reuse", [*shell, *command], env={"LOG": str(log)})
    assert process.wait() == 0
    said = process.output()
    stranger, first = re.search(r"stranger (\d+) of (\d+)", said).groups()
    assert stranger == first, "the number was not given out again"
    assert "the daemon got it" in said and "the stranger lives" in said


def test_other_users_get_nothing_from_the_supervisor(stack):
    """Another user knows the socket's name, but gets neither queues nor the program's slot."""
    folder = site(stack, "lighttpd", LIGHTTPD)
    server = ["lighttpd", "-D", "-f", folder / "conf"]
    wait = 'while [ ! -e "$0" ]; do sleep 0.05; done; exec "$@"'
    process = start_run(stack, "strange", ["sh", "-c", wait, stack.dir / "go", *server])
    host = stack["forwarder"].ns

    def names():
        words = host.run(["cat", "/proc/net/unix"]).split()
        return [word[1:] for word in words if word.startswith("@steelyard-run-")]

    wait_until(names, "the supervisor listens")
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    stranger = stack.start(
        "forwarder", "stranger", [*user, sys.executable, "-c", ASK, names()[0]], commanded=True
    )
    stranger.wait_for("held")
    assert "nothing" in stranger.output()
    (stack.dir / "go").touch()
    process.wait_for("is worker 0 of 1")
    assert http_get(stack["client"], V4, 8001, "/index.html") == b"hello"


NO_MEMORY = """
import resource, socket, subprocess, sys
def dial():
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
        one.sendall(b"echo\\nhello")
        print(one.recv(5, socket.MSG_WAITALL), flush=True)
if len(sys.argv) > 3:
    dial()
    sys.exit()
limit = resource.getrlimit(resource.RLIMIT_AS)
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20), limit[1]))
dial()
resource.setrlimit(resource.RLIMIT_AS, limit)
subprocess.run([sys.executable, *sys.argv, "again"], check=True)
"""


def test_failed_start_frees_its_slot(stack):
    """A process without memory for the stack stays with Linux; the next one gets the slot."""
    puppet = Puppet(stack["client"], stack["client"].v4)
    before = kernel_connections(stack["forwarder"])
    script = stack.dir / "no_memory.py"
    script.write_text(NO_MEMORY)
    try:
        said = on_stack(stack, sys.executable, script, stack["client"].v4, PORT)
    finally:
        puppet.close()
    assert said.splitlines() == [f"{b'hello'}"] * 2
    assert kernel_connections(stack["forwarder"]) == before + 1


NO_STACK = """
import resource, socket, sys
limit = resource.getrlimit(resource.RLIMIT_AS)
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (600 << 20), limit[1]))
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
    one.sendall(b"echo\\nhello")
    print(one.recv(5, socket.MSG_WAITALL))
with open("/proc/self/maps") as file:
    print([line for line in file if "socket:" in line or "steelyard-packets" in line])
"""


def test_failed_start_frees_its_memory(stack):
    """Queues and packets exist already when memory for four million connections is missing."""
    puppet = Puppet(stack["client"], stack["client"].v4)
    argv = [sys.executable, "-c", NO_STACK, stack["client"].v4, PORT]
    command = run_command(argv, "--connections", 4_000_000)
    try:
        done = run(stack["forwarder"].ns.command(command), check=False)
    finally:
        puppet.close()
    assert done.stdout.splitlines() == [f"{b'hello'}", "[]"], done.stderr
    assert "the stack does not start" in done.stderr


def test_linuxs_local_ports_are_refused(stack):
    host = stack["forwarder"].ns
    host.sysctl("ipv4.ip_local_port_range", "32768 61500")
    try:
        done = on_stack(stack, "true", check=False)
    finally:
        host.sysctl("ipv4.ip_local_port_range", "32768 60999")
    assert done.returncode == 2 and "Linux assigns ports 61000-61500" in done.stderr
