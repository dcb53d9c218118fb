# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs on the user-space stack (docs/run.md): servers and clients of Debian on one
side, on Linux's own TCP the other side."""

import difflib
import errno
import hashlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.clients import connect, http_get
from tests.lab.lab import Lab
from tests.lab.process import run
from tests.lab.run import PORT, Puppet, kernel_connections, run_command, start_run
from tests.lab.servers import start_nginx, wait_listening

V4, V6 = "10.0.0.1", "fd00::1"
LARGE = 3_000_000
CALLS = Path(__file__).with_name("calls.py")
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))

LIGHTTPD = """\
server.document-root = "{dir}"
server.port = 8001
server.bind = "0.0.0.0"
$SERVER["socket"] == "[::]:8001" {{ }}
mimetype.assign = ( "" => "text/plain" )
"""

NGINX = """\
worker_processes 2;
daemon off;
user www-data;
pid {dir}/pid;
error_log stderr notice;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    server {{
        listen 8002;
        listen [::]:8002;
        root {dir};
        location = /pid {{ return 200 "$pid"; }}
        location /behind/ {{ proxy_pass http://10.0.0.10:8080/; }}
    }}
}}
"""

HAPROXY = """\
global
    nbthread 1
defaults
    mode http
    timeout connect 20s
    timeout client 20s
    timeout server 20s
frontend front
    bind {v4}:8003
    default_backend back
backend back
    server one 10.0.0.10:8080
"""


@pytest.fixture(scope="module")
def lab():
    """The programs run on `forwarder`; two queues. `client` has a web server on Linux's TCP."""
    with Lab(arms=1, servers=0, queues=2) as lab:
        start_nginx(lab, "client")
        yield lab


@pytest.fixture
def stack(lab):
    """Ends what a test started; then nothing of it is left."""
    first = len(lab.processes)
    yield lab
    for process in lab.processes[first:]:
        process.kill()
    lab["forwarder"].ns.kill_all()
    wait_until(lambda: not has_program(lab), "the XDP program is gone")


def has_program(lab):
    return "xdp" in lab["forwarder"].ns.ip("link show front")


def site(lab, name, text):
    """A folder that a worker without rights can read, with a configuration and a large file."""
    folder = lab.dir / name
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / "index.html").write_text("hello")
    (folder / "large").write_bytes(bytes(os.urandom(LARGE)))
    (folder / "conf").write_text(text.format(dir=folder, v4=V4))
    return folder


def start(lab, name, argv, port, *options, workers=1):
    process = start_run(lab, name, argv, *options, workers=workers)
    wait_listening(lab["forwarder"].ns, port)
    for worker in range(workers):
        process.wait_for(rf"is worker {worker} of {workers}")
    return process


def digest(data):
    return hashlib.sha256(data).hexdigest()


def cli(host, *words):
    return host.ns.run(["redis-cli", *words]).strip()


# ---- servers -------------------------------------------------------------------------------------


def test_redis(stack):
    client, host = stack["client"], stack["forwarder"]
    before = kernel_connections(host)
    start(
        stack,
        "redis",
        ["redis-server", "--port", 8000, "--bind", V4, "127.0.0.1", "--protected-mode", "no"]
        + ["--save", "", "--dir", stack.dir],
        8000,
    )
    assert cli(client, "-h", V4, "-p", "8000", "set", "key", "value") == "OK"
    client.ns.run(
        ["redis-benchmark", "-h", V4, "-p", 8000, "-t", "get,set", "-n", 5000, "-c", 50, "-q"]
    )
    client.ns.run(
        ["redis-benchmark", "-h", V4, "-p", 8000, "-t", "get", "-n", 20000, "-P", 16, "-q"]
    )
    # A value of many segments, and a child process that writes the data while connections exist.
    client.ns.run(
        ["redis-benchmark", "-h", V4, "-p", 8000, "-t", "set", "-n", 50, "-d", 200000, "-q"]
    )
    assert "started" in cli(client, "-h", V4, "-p", "8000", "bgsave")
    wait_until(
        lambda: "rdb_bgsave_in_progress:0" in cli(client, "-h", V4, "-p", "8000", "info"), "saved"
    )
    assert "rdb_last_bgsave_status:ok" in cli(client, "-h", V4, "-p", "8000", "info")
    assert kernel_connections(host) == before
    # Both kinds in one epoll instance: a client on the host comes by Linux.
    assert cli(host, "-h", "127.0.0.1", "-p", "8000", "get", "key") == "value"
    assert cli(host, "-h", V4, "-p", "8000", "get", "key") == "value"
    assert kernel_connections(host) == before + 4


@families
def test_lighttpd(stack, family):
    folder = site(stack, "lighttpd", LIGHTTPD)
    before = kernel_connections(stack["forwarder"])
    start(stack, "lighttpd", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    address = (V4, V6)[family == 6]
    assert http_get(stack["client"], address, 8001, "/index.html") == b"hello"
    body = http_get(stack["client"], address, 8001, "/large", timeout_s=60)
    assert digest(body) == digest((folder / "large").read_bytes())
    stack["client"].ns.run(
        ["wrk", "-t1", "-c20", "-d1", "--timeout", "30s", url(address, 8001, "/index.html")]
    )
    assert kernel_connections(stack["forwarder"]) == before


def url(address, port, path):
    return (
        f"http://[{address}]:{port}{path}" if ":" in address else f"http://{address}:{port}{path}"
    )


def workers_seen(lab, wanted):
    """Asks until so many workers have answered."""
    pids = set()

    def enough():
        pids.add(int(http_get(lab["client"], V4, 8002, "/pid", timeout_s=60)))
        return len(pids) >= wanted

    wait_until(enough, f"{wanted} workers answer", 60)
    return pids


@families
def test_nginx_with_two_workers(stack, family):
    folder = site(stack, "nginx", NGINX)
    before = kernel_connections(stack["forwarder"])
    process = start(stack, "nginx", ["nginx", "-c", folder / "conf"], 8002, workers=2)
    first = workers_seen(stack, 2)
    address = (V4, V6)[family == 6]
    for _ in range(4):
        body = http_get(stack["client"], address, 8002, "/large", timeout_s=60)
        assert digest(body) == digest((folder / "large").read_bytes())
    assert kernel_connections(stack["forwarder"]) == before
    # A worker that is killed leaves its queue to its successor.
    victim = min(first)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: process.output().count("is worker") == 3, "a new worker has the queue")
    assert victim not in workers_seen(stack, 2)
    assert kernel_connections(stack["forwarder"]) == before


def test_answers_find_the_worker_that_asked(stack):
    """The connections that a worker opens have their answers spread over both queues."""
    folder = site(stack, "nginx", NGINX)
    before = kernel_connections(stack["forwarder"])
    start(stack, "nginx", ["nginx", "-c", folder / "conf"], 8002, workers=2)
    for _ in range(40):
        body = http_get(stack["client"], V4, 8002, "/behind/", timeout_s=60)
        assert body.decode().strip() == "client"
    assert kernel_connections(stack["forwarder"]) == before


def test_haproxy_opens_connections_too(stack):
    folder = site(stack, "haproxy", HAPROXY)
    before = kernel_connections(stack["forwarder"])
    start(stack, "haproxy", ["haproxy", "-db", "-f", folder / "conf"], 8003)
    for _ in range(20):
        assert http_get(stack["client"], V4, 8003).decode().strip() == "client"
    stack["client"].ns.run(["wrk", "-t1", "-c20", "-d1", "--timeout", "30s", f"http://{V4}:8003/"])
    assert kernel_connections(stack["forwarder"]) == before


def test_other_ports_stay_with_linux(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    before = kernel_connections(stack["forwarder"])
    start_nginx(stack, "forwarder", port=8010)
    process = start_run(stack, "ports", ["lighttpd", "-D", "-f", folder / "conf"], "--port", 8004)
    wait_listening(stack["forwarder"].ns, 8001)
    assert http_get(stack["client"], V4, 8010).decode().strip() == "forwarder"
    assert http_get(stack["client"], V4, 8001, "/index.html") == b"hello"
    assert kernel_connections(stack["forwarder"]) == before + 2
    assert "is worker" not in process.output()


def test_frames_for_another_mac_are_not_answered(stack):
    """As a switch floods them. Those for the right address, sent between them, are answered."""
    folder = site(stack, "lighttpd", LIGHTTPD)
    start(stack, "lighttpd", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    capture = stack.capture("client")
    mine, theirs = stack["client"].ns.mac("eth0"), stack["forwarder"].ns.mac("front")

    def ask(sport, to):
        syn = IP(src=stack["client"].v4, dst=V4) / TCP(sport=sport, dport=8001, flags="S", seq=1)
        capture.send(Ether(src=mine, dst=to) / syn)

    def answered(ports):
        return lambda packet: TCP in packet and packet[TCP].dport in ports

    for turn in range(8):
        ask(6000 + turn, "02:00:00:00:00:99")
        ask(6100 + turn, theirs)
        capture.wait_for(answered([6100 + turn]), "the answer", outgoing=False)
    assert not capture.packets(answered(range(6000, 6008)), outgoing=False)


def test_no_folder_of_eal_is_left(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    process = start(stack, "lighttpd", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    pid = re.search(r"pid (\d+) is worker", process.output())[1]
    assert not [one for one in ("/run", "/tmp") if Path(one, "dpdk", f"run-{pid}").exists()]


# ---- clients -------------------------------------------------------------------------------------


def on_stack(lab, *argv, **options):
    return run(lab["forwarder"].ns.command(run_command(argv)), **options)


@families
def test_clients(stack, family):
    peer = stack["client"]
    address = peer.address(family)
    large = stack.dir / "nginx-client" / "files" / "large"
    large.write_bytes(os.urandom(LARGE))
    before = kernel_connections(stack["forwarder"])
    assert on_stack(stack, "curl", "-sS", url(address, 8080, "/")).strip() == "client"
    copy = stack.dir / "copy"
    on_stack(stack, "curl", "-sS", "-o", copy, url(address, 8080, "/files/large"))
    assert digest(copy.read_bytes()) == digest(large.read_bytes())
    report = on_stack(
        stack, "wrk", "-t1", "-c20", "-d1", "--timeout", "30s", url(address, 8080, "/")
    )
    assert "requests in" in report and "Socket errors" not in report
    stack.start(
        "client",
        "redis-client",
        [
            "redis-server",
            "--port",
            8011,
            "--protected-mode",
            "no",
            "--save",
            "",
            "--dir",
            stack.dir,
        ],
    )
    wait_listening(peer.ns, 8011)
    assert on_stack(stack, "redis-cli", "-h", address, "-p", 8011, "ping").strip() == "PONG"
    refused = on_stack(stack, "curl", "-sS", url(address, 8012, "/"), check=False)
    assert refused.returncode == 7 and "Couldn't connect" in refused.stderr
    assert kernel_connections(stack["forwarder"]) == before


# ---- calls ---------------------------------------------------------------------------------------


@families
def test_calls_say_what_linux_says(stack, family):
    """The same list of calls on Linux's sockets and on the stack's."""
    address = stack["client"].address(family)
    command = [sys.executable, str(CALLS), address, str(PORT)]
    puppet = Puppet(stack["client"], address)
    try:
        linux = run(stack["forwarder"].ns.command(command)).splitlines()
        before = kernel_connections(stack["forwarder"])
        ours = run(stack["forwarder"].ns.command(run_command(command))).splitlines()
    finally:
        puppet.close()
    # The port of `bound` is the kernel's choice.
    assert kernel_connections(stack["forwarder"]) == before + 1
    assert ours[-1].startswith("without a listener"), ours
    difference = list(difflib.unified_diff(linux, ours, "linux", "stack", lineterm="", n=0))
    assert not difference, "\n".join(difference)


FORK = """
import os, socket, sys
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
one.sendall(b"echo\\n")
child = os.fork()
if child == 0:
    answers = []
    for call in (lambda: one.recv(1), lambda: one.send(b"x")):
        try:
            call()
        except OSError as error:
            answers.append(error.errno)
    one.close()
    os.write(1, f"child {answers}\\n".encode())
    os._exit(0)
os.waitpid(child, 0)
one.sendall(b"hello")
one.shutdown(socket.SHUT_WR)
os.write(1, b"parent " + one.recv(5, socket.MSG_WAITALL) + b"\\n")
"""


def test_a_child_does_not_share_connections(stack):
    puppet = Puppet(stack["client"], stack["client"].v4)
    try:
        said = on_stack(stack, sys.executable, "-c", FORK, stack["client"].v4, PORT)
    finally:
        puppet.close()
    assert said.splitlines() == [f"child {[errno.ENOTCONN, errno.EPIPE]}", "parent hello"]


# ---- the keeper ----------------------------------------------------------------------------------

# Says what the keeper answers to CONFIG, START, START, and to a stranger's START. Then it holds
# connections until its input ends.
ASK = """
import errno, os, socket, struct, sys
def connect(name):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.connect(chr(0) + name)
    one.settimeout(20)
    return one
def ask(one, secret, kind):
    one.send(secret + struct.pack("=II16sHH4x", 2, kind, bytes(16), 0, 0))
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


def test_a_worker_gets_its_queues_once(stack):
    said = on_stack(stack, sys.executable, "-c", ASK)
    assert said.split() == ["0", "0", str(-errno.EALREADY)]


# What the keeper answers who asks for a port with no socket, and with one that listens elsewhere.
STEER = """
import os, socket, struct
name, _, secret = os.environ["STEELYARD_RUN"].partition(":")
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect(chr(0) + name)
def listen(port):
    it = socket.socket()
    it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    it.bind(("10.0.0.1", port))
    it.listen()
    return it
address = socket.inet_pton(socket.AF_INET6, "::ffff:10.0.0.1")
def ask(port, *fds):
    request = struct.pack("=II16sHH4x", 2, 4, address, socket.htons(port), 0)
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


def test_a_worker_steers_only_where_it_listens(stack):
    command = run_command([sys.executable, "-c", STEER], "--port", 8020, "--port", 22)
    said = run(stack["forwarder"].ns.command(command))
    refused = str(-errno.EACCES)
    assert said.split() == [refused, refused, refused, "0", refused]


def test_strangers_get_nothing_from_the_keeper(stack):
    """Another user knows the socket's name. Neither does it get queues, nor the program's place."""
    folder = site(stack, "lighttpd", LIGHTTPD)
    server = ["lighttpd", "-D", "-f", folder / "conf"]
    wait = 'while [ ! -e "$0" ]; do sleep 0.05; done; exec "$@"'
    process = start_run(stack, "strange", ["sh", "-c", wait, stack.dir / "go", *server])
    host = stack["forwarder"].ns

    def names():
        words = host.run(["cat", "/proc/net/unix"]).split()
        return [word[1:] for word in words if word.startswith("@steelyard-run-")]

    wait_until(names, "the keeper listens")
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    stranger = stack.start(
        "forwarder", "stranger", [*user, sys.executable, "-c", ASK, names()[0]], commanded=True
    )
    stranger.wait_for("held")
    assert "nothing" in stranger.output()
    (stack.dir / "go").touch()
    process.wait_for("is worker 0 of 1")
    assert http_get(stack["client"], V4, 8001, "/index.html") == b"hello"


CLOSE = """
import os, socket, sys, threading, time
def dial(order):
    one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    one.sendall(order + b"\\n")
    return one
def reader(number, answers):
    try:
        answers.append(os.read(number, 5))
    except OSError as error:
        answers.append(error.errno)
for _ in range(5):
    answers = []
    one = dial(b"hold")
    threads = [threading.Thread(target=reader, args=(one.fileno(), answers)) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)  # too short: the readers are refused at once, and the test says less
    one.close()
    other = dial(b"say")
    print(other.recv(5, socket.MSG_WAITALL))
    for thread in threads:
        thread.join()
    print(answers)
"""


def test_a_closed_socket_gives_a_reader_nothing_of_the_next(stack):
    puppet = Puppet(stack["client"], stack["client"].v4)
    try:
        said = on_stack(stack, sys.executable, "-c", CLOSE, stack["client"].v4, PORT)
    finally:
        puppet.close()
    assert said.splitlines() == [f"{b'hello'}", f"{[errno.EBADF, errno.EBADF]}"] * 5


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


def test_a_failed_start_leaves_its_place(stack):
    """A process without memory for the stack stays with Linux; the next one gets the place."""
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


# ---- the end -------------------------------------------------------------------------------------


def test_kill_leaves_nothing(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    argv = ["lighttpd", "-D", "-f", folder / "conf"]
    for _ in range(3):
        process = start(stack, "killed", argv, 8001)
        with connect(stack["client"], V4, 8001) as open_one:
            open_one.sendall(b"GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n")
            assert open_one.recv(9) == b"HTTP/1.1 "
            stack["forwarder"].ns.kill_all()
        assert process.wait() == -signal.SIGKILL
        wait_until(lambda: not has_program(stack), "the XDP program is gone")


def test_signals_and_status_pass_on(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    process = start(stack, "stopped", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == 0
    done = on_stack(stack, "sh", "-c", "exit 7", check=False)
    assert done.returncode == 7
    done = on_stack(stack, "sh", "-c", "kill -9 $$", check=False)
    assert done.returncode == 128 + signal.SIGKILL


COUNT = """
import os, signal
def say(number, _):
    os.write(1, f"got {number}\\n".encode())
for number in (signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, say)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


def read_until(descriptor, wanted):
    text = ""
    while wanted not in text:
        assert select.select([descriptor], [], [], 30)[0], f"no {wanted!r} in {text!r}"
        text += os.read(descriptor, 4096).decode()
    return text


def test_a_key_of_the_terminal_comes_once(stack):
    """Ctrl-C signals the keeper and the program; the keeper does not pass it on."""
    master, slave = pty.openpty()
    command = ["setsid", "--ctty", *run_command([sys.executable, "-c", COUNT])]
    terminal = {"stdin": slave, "stdout": slave, "stderr": slave}
    with subprocess.Popen(stack["forwarder"].ns.command(command), **terminal) as process:
        os.close(slave)
        try:
            read_until(master, "ready")
            os.write(master, b"\x03")
            said = read_until(master, f"got {int(signal.SIGINT)}")
            # The keeper passes signals on in the order of their numbers.
            process.send_signal(signal.SIGUSR1)
            said += read_until(master, f"got {int(signal.SIGUSR1)}")
        finally:
            process.kill()
    os.close(master)
    assert said.count(f"got {int(signal.SIGINT)}") == 1


def test_a_second_run_is_refused(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    start(stack, "first", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    done = on_stack(stack, "true", check=False)
    assert done.returncode == 2 and "has an XDP program already" in done.stderr
