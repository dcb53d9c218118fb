# SPDX-License-Identifier: Apache-2.0
"""A server that passes each connection to a child process: forking.py ADDRESS PORT.

test_run_fork.py runs it on Linux's sockets and on the stack, and compares the output. The first
line of a connection orders the parent how to pass it on; the second line orders the child what to
do."""

import array
import contextlib
import ctypes
import errno
import hashlib
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile

FAMILY = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
LIMIT = 300_000_000
SYS_CLONE, CLONE_NEWIPC = 56, 0x08000000  # of x86-64
STATES = (1, 8)  # established; the peer has already closed


def say(*facts):
    """Writes the line at once, because children write at the same time."""
    os.write(1, (" ".join(map(str, facts)) + "\n").encode())


def line_of(one):
    text = b""
    while not text.endswith(b"\n") and (byte := one.recv(1)):
        text += byte
    return text.decode().split()


def all_of(one):
    digest, size = hashlib.sha256(), 0
    while part := one.recv(65536):
        digest.update(part)
        size += len(part)
    return f"{size} {digest.hexdigest()}"


# ---- what children do ----------------------------------------------------------------------------


def names(one):
    """Addresses, options and facts."""
    before = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)
    level = socket.IPPROTO_IPV6 if one.family == socket.AF_INET6 else socket.IPPROTO_IP
    tos = socket.IPV6_TCLASS if one.family == socket.AF_INET6 else socket.IP_TOS
    one.setsockopt(level, tos, 0x10)
    facts = [before, one.getpeername()[1] > 0, one.getpeername()[0], one.getsockname()[:2]]
    for name in ("SO_TYPE", "SO_ERROR", "SO_KEEPALIVE", "SO_DOMAIN", "SO_PROTOCOL"):
        facts.append(one.getsockopt(socket.SOL_SOCKET, getattr(socket, name)))
    facts.append(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
    facts.append(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
    facts.append(one.getsockopt(level, tos))
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    facts.append(info[0] in STATES)
    facts.append(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) > 500)
    one.sendall(str(facts).encode())


def echo(one):
    while part := one.recv(65536):
        one.sendall(part)


def sink(one):
    """Reports the number of bytes it read until the peer closed."""
    one.sendall(all_of(one).encode())


def source(one, size):
    """Its last bytes are still being sent when the child has exited."""
    one.sendall(bytes(range(256)) * (int(size) // 256))


def half(one):
    """Closes its sending side first and keeps reading."""
    one.sendall(b"bye")
    one.shutdown(socket.SHUT_WR)
    say("half", all_of(one))


def die(one):
    os.kill(os.getpid(), signal.SIGKILL)


def die_unread(one):
    """Exits with unread bytes: Linux then resets the connection."""
    one.recv(1, socket.MSG_PEEK)
    os.kill(os.getpid(), signal.SIGKILL)


def linger(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def outlast(one):
    """Waits until the peer resets the connection."""
    one.sendall(b"ready")
    try:
        said = one.recv(100)
    except OSError as error:
        said = errno.errorcode[error.errno]
    say("outlast", said)


def wait(one):
    """Prints readiness as poll() reports it: none, bytes, end of stream."""
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLRDHUP)
    said = [poll.poll(0)]
    one.sendall(b"ready")
    poll.poll()
    said.append([bits for _, bits in poll.poll()])
    said.append(one.recv(100))
    one.sendall(b"again")
    poll.poll()
    said.append([bits for _, bits in poll.poll()])
    said.append(one.recv(100))
    one.sendall(str(said).encode())


def confined(one):
    """Changes its user, and its root to an empty folder."""
    folder = tempfile.mkdtemp()
    os.chroot(folder)
    os.chdir("/")
    os.setgid(65534)
    os.setuid(65534)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.sendall(f"{one.getpeername()[0]} {os.getuid()}".encode())


def limited(one):
    """Limits the address space: mappings of the preloaded library do not count against it."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    one.sendall(str(len(bytes(LIMIT // 2))).encode())


def noisy(one):
    """Makes the connection its standard error, where the library would log."""
    os.dup2(one.fileno(), 2)
    other = socket.create_server((sys.argv[1], 0), family=FAMILY)
    other.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        other.accept()
    one.sendall(b"nothing else")


def passed(one):
    """Sends the descriptor to a third process and closes it at once."""
    near, far = socket.socketpair()
    if os.fork() == 0:
        near.close()
        one.close()
        _, control, *_ = far.recvmsg(1, socket.CMSG_SPACE(4))
        other = socket.socket(fileno=array.array("i", control[0][2])[0])
        other.sendall(other.getpeername()[0].encode())
        other.close()
        os._exit(0)
    near.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno()]))])


def executed(one):
    """Executes a program with the connection as standard streams, without the library."""
    os.dup2(one.fileno(), 0)
    os.dup2(one.fileno(), 1)
    os.execve("/bin/cat", ["cat"], {})


def again(one):
    """Executes this program again, which finds the connection by its descriptor number."""
    os.set_inheritable(one.fileno(), True)
    os.execv(sys.executable, [sys.executable, "-I", __file__, "--connection", str(one.fileno())])


# ---- how they come to it -------------------------------------------------------------------------


def by_fork(one, name, *words):
    if os.fork():
        return
    listener.close()
    with one:
        globals()[name](one, *words)
    os._exit(0)


def by_clone(one, name, *words):
    """By the system call itself, with its own namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    child = libc.syscall(SYS_CLONE, ctypes.c_long(CLONE_NEWIPC | signal.SIGCHLD), 0, 0, 0, 0)
    if child < 0:
        say("clone", errno.errorcode[ctypes.get_errno()])
    if child:
        return
    with one:
        globals()[name](one, *words)
    os._exit(0)


def by_clone_function(one, name, *words):
    """The same by the C library's clone()."""

    def child(_):
        with one:
            globals()[name](one, *words)
        return 0

    stack = ctypes.create_string_buffer(1 << 20)
    top = ctypes.c_void_p((ctypes.addressof(stack) + len(stack)) & ~15)
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(child)
    ctypes.CDLL(None).clone(run, top, CLONE_NEWIPC | signal.SIGCHLD, None)


def by_vfork(one, *_words):
    subprocess.Popen(["/bin/cat"], stdin=one.fileno(), stdout=one.fileno(), env={})


def by_spawn(one, *_words):
    actions = [(os.POSIX_SPAWN_DUP2, one.fileno(), 0), (os.POSIX_SPAWN_DUP2, one.fileno(), 1)]
    os.posix_spawn("/bin/cat", ["cat"], {}, file_actions=actions)


def by_message(one, *_words):
    """Sends the connection to a process that already exists."""
    helper.sendmsg(
        [b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno()]))]
    )


def shared(one, *_words):
    """The parent uses the connection before and after the child."""
    one.sendall(b"parent, ")
    child = os.fork()
    if child == 0:
        one.sendall(b"child, ")
        os._exit(0)
    # waitpid() still waits, although SIGCHLD is ignored
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    one.sendall(b"parent")


def leave(_one, *_words):
    """The parent exits while its children continue."""
    say("leaves")
    sys.exit()


def helper_start():
    near, far = socket.socketpair()
    if os.fork():
        far.close()
        return near
    near.close()
    while (got := far.recvmsg(1, socket.CMSG_SPACE(4)))[0]:
        with socket.socket(fileno=array.array("i", got[1][0][2])[0]) as one:
            echo(one)
    os._exit(0)


if sys.argv[1] == "--connection":
    one = socket.socket(fileno=int(sys.argv[2]))
    one.sendall(f"{one.family.name} {one.getpeername()[0]}".encode())
    sys.exit()

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
helper = helper_start()
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=FAMILY, backlog=64)
say("ready")
with contextlib.suppress(KeyboardInterrupt):
    while True:
        client = listener.accept()[0]
        order = line_of(client)
        with client:
            globals()[order[0]](client, *order[1:])
