# SPDX-License-Identifier: Apache-2.0
"""Makes socket calls one after the other and prints each result: calls.py PEER PORT.

test_run_calls.py runs it on Linux's sockets and on the stack, and compares the output. The peer is
the Puppet of tests/lab/run.py: the first line of a connection is its order."""

import array
import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import sys
import termios
import time

PEER = (sys.argv[1], int(sys.argv[2]))
STATE_ESTABLISHED = 1
SO_MAX_PACING_RATE = 47
PATIENCE_MS = 30_000  # deadline of expected events, on a busy machine


def say(what, *facts):
    print(what, *facts, flush=True)


def attempt(what, call, *args):
    """Prints what a call returns, or its errno."""
    try:
        answer = call(*args)
    except OSError as error:
        answer = errno.errorcode.get(error.errno, repr(error))
    say(what, answer)


def dial(order):
    family = socket.AF_INET6 if ":" in PEER[0] else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    one.connect(PEER)
    one.sendall(order.encode() + b"\n")
    return one


def all_of(one):
    parts = b""
    while part := one.recv(65536):
        parts += part
    return parts


def names_and_options():
    one = dial("hold")
    say("peer", one.getpeername()[:2] == PEER, "own", one.getsockname()[1] > 0)
    for name in ("SO_TYPE", "SO_ERROR", "SO_KEEPALIVE", "SO_DOMAIN", "SO_PROTOCOL"):
        attempt(name, one.getsockopt, socket.SOL_SOCKET, getattr(socket, name))
    for name, value in (("TCP_NODELAY", 1), ("TCP_KEEPIDLE", 33), ("TCP_KEEPCNT", 4)):
        attempt(name, one.setsockopt, socket.IPPROTO_TCP, getattr(socket, name), value)
        attempt(name, one.getsockopt, socket.IPPROTO_TCP, getattr(socket, name))
    attempt("no bound", one.getsockopt, socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8)
    attempt("rate", one.setsockopt, socket.SOL_SOCKET, SO_MAX_PACING_RATE, 5_000_000)
    attempt("rate", one.getsockopt, socket.SOL_SOCKET, SO_MAX_PACING_RATE)
    attempt("rate of 64 bits", one.getsockopt, socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8)
    attempt("no such option", one.setsockopt, socket.IPPROTO_TCP, 9999, 1)
    attempt("bad value", one.setsockopt, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 0)
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    say("TCP_INFO", info[0] == STATE_ESTABLISHED, len(info) >= 100)
    attempt("bind", one.bind, ("", 0))
    attempt("listen", one.listen)
    attempt("connect", one.connect, PEER)


def bound():
    """bind() lets the kernel choose the port: Linux's connection (docs/run.md)."""
    own = dial("hold").getsockname()[0]
    one = socket.socket(socket.AF_INET6 if ":" in PEER[0] else socket.AF_INET)
    one.bind((own, 0))
    port = one.getsockname()[1]
    attempt("bound", one.connect, PEER)
    say("port", one.getsockname()[1] == port)
    one.sendall(b"echo\nbound")
    say("echo", one.recv(5, socket.MSG_WAITALL))


def reading():
    one = dial("two parts")
    say("first", one.recv(5, socket.MSG_PEEK), one.recv(5))
    say("both", one.recv(9, socket.MSG_WAITALL))
    attempt("end", one.recv, 9)
    one = dial("hold")
    one.setblocking(False)
    say("flags", bool(fcntl.fcntl(one, fcntl.F_GETFL) & os.O_NONBLOCK))
    attempt("nothing", one.recv, 9)
    one.setblocking(True)
    say("flags", bool(fcntl.fcntl(one, fcntl.F_GETFL) & os.O_NONBLOCK))
    attempt("dontwait", one.recv, 9, socket.MSG_DONTWAIT)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50000))
    attempt("timeout", one.recv, 9)
    attempt("oob", one.recv, 9, socket.MSG_OOB)
    one = dial("say")
    one.recv(1, socket.MSG_PEEK | socket.MSG_WAITALL)
    waiting = array.array("i", [0])
    fcntl.ioctl(one, termios.FIONREAD, waiting)
    say("FIONREAD", waiting[0])
    into = [bytearray(2), bytearray(9)]
    say("recvmsg", one.recvmsg_into(into)[0], into)


def writing():
    one = dial("echo")
    one.sendmsg([b"ab", b"", b"cd"])
    os.write(one.fileno(), b"ef")
    os.writev(one.fileno(), [b"gh", b"ij"])
    with open(sys.argv[0], "rb") as file:
        size = os.fstat(file.fileno()).st_size
        sent = 0
        while sent < size:
            sent += os.sendfile(one.fileno(), file.fileno(), sent, size - sent)
        one.shutdown(socket.SHUT_WR)
        attempt("after shutdown", one.send, b"x")
        say("echo", all_of(one) == b"abcdefghij" + file.read())
    attempt("end", one.recv, 9)
    one = dial("hold")
    one.shutdown(socket.SHUT_RD)
    attempt("read side", one.recv, 9)


def descriptors():
    one = dial("echo")
    copy = os.dup(one.fileno())
    other = os.open("/dev/null", os.O_RDONLY)
    os.dup2(copy, other)
    say("inherit", os.get_inheritable(copy), os.get_inheritable(one.fileno()))
    one.close()
    os.write(copy, b"by copy")
    os.close(copy)
    again = socket.socket(fileno=other)
    say("copies", again.recv(7))
    number = fcntl.fcntl(other, fcntl.F_DUPFD_CLOEXEC, 100)
    say("number", number >= 100, bool(fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC))
    again.close()
    attempt("closed", os.write, other, b"x")
    last = socket.socket(fileno=number)
    last.shutdown(socket.SHUT_WR)
    attempt("last", last.recv, 9)


def last_parts():
    """An empty or incomplete last part does not keep the call from sending all bytes."""
    one = dial("echo")
    for _ in range(3):
        say("an empty part", one.sendmsg([b"part", b""]))
        say("comes back", one.recv(4, socket.MSG_WAITALL))
    with open(sys.argv[0], "rb") as file:
        file.seek(-9, os.SEEK_END)
        last = file.tell()
        for _ in range(3):
            say("sendfile", os.sendfile(one.fileno(), file.fileno(), last, 1 << 20))
            one.recv(9, socket.MSG_WAITALL)
        attempt("the end", os.sendfile, one.fileno(), file.fileno(), last + 9, 9)
        attempt("beyond", os.sendfile, one.fileno(), file.fileno(), last + 99, 9)
    mark = ":" if ":" in PEER[0] else "."
    dead = PEER[0].rpartition(mark)[0] + mark + "77"
    for _ in range(3):
        one = socket.socket(one.family)
        one.setblocking(False)
        say("dead", errno.errorcode[one.connect_ex((dead, 1))])
        one.close()


def nothing_asked():
    """poll() clears revents where the descriptor is negative."""
    one = dial("hold")
    libc = ctypes.CDLL(None)
    asked = ctypes.create_string_buffer(
        struct.pack("ihhihh", -1, select.POLLIN, select.POLLIN, one.fileno(), select.POLLIN, 0)
    )
    say("poll", libc.poll(asked, 2, 20), struct.unpack("ihhihh", asked.raw[:16])[2::3])


def streams():
    """The C library closes a stream's descriptor without close()."""
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = [ctypes.c_void_p]
    libc.freopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
    libc.freopen.restype = ctypes.c_void_p
    one = dial("say")
    one.recv(1, socket.MSG_PEEK)
    number = one.detach()
    stream = libc.fdopen(number, b"r")
    say("fclose", libc.fclose(stream))
    with open(sys.argv[0], "rb") as file:
        say("the number", file.fileno() == number, os.read(file.fileno(), 5))
    one = dial("say")
    one.recv(1, socket.MSG_PEEK)
    number = one.detach()
    stream = libc.freopen(os.fsencode(sys.argv[0]), b"r", libc.fdopen(number, b"r"))
    say("freopen", os.read(number, 5))
    libc.fclose(stream)


def waiting():
    one = dial("echo")
    inner, outer = os.pipe()
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLOUT)
    poll.register(inner, select.POLLIN)
    number = {one.fileno(): "socket", inner: "pipe"}

    def seen(events):
        return sorted((number[fd], event) for fd, event in events)

    say("poll: writable", seen(poll.poll(PATIENCE_MS)))
    poll.modify(one, select.POLLIN)
    say("poll: nothing", seen(poll.poll(20)))
    os.write(outer, b"x")
    say("poll: the pipe", seen(poll.poll(PATIENCE_MS)))
    one.send(b"hello")
    one.recv(1, socket.MSG_PEEK)
    say("poll: both", seen(poll.poll(PATIENCE_MS)))
    ready = select.select([one, inner], [one], [one], PATIENCE_MS / 1000)
    say("select", [len(part) for part in ready])
    one.recv(5)
    ready = select.select([one, inner], [], [], PATIENCE_MS / 1000)
    say("select: the pipe", [len(part) for part in ready])
    say("select: nothing", [len(part) for part in select.select([one], [], [], 0.02)])

    def fetch(epoll, timeout):
        # A busy stack polls the kernel's descriptors only every millisecond: docs/run.md.
        time.sleep(0.002)
        return seen(epoll.poll(timeout))

    for name, mode in (("level", 0), ("edge", select.EPOLLET), ("once", select.EPOLLONESHOT)):
        with select.epoll() as epoll:
            one.send(b"again")
            one.recv(1, socket.MSG_PEEK)
            epoll.register(one, select.EPOLLIN | mode)
            epoll.register(inner, select.EPOLLIN)
            first = fetch(epoll, PATIENCE_MS / 1000)
            say(name, first, fetch(epoll, 0.02))
            attempt("twice", epoll.register, one, select.EPOLLIN)
            epoll.modify(one, select.EPOLLIN | select.EPOLLOUT | mode)
            say(name, "modified", fetch(epoll, PATIENCE_MS / 1000))
            epoll.unregister(one)
            attempt("gone", epoll.unregister, one)
            say(name, "removed", fetch(epoll, 0.02))
            one.recv(5)
    with select.epoll() as epoll:
        epoll.register(one, select.EPOLLIN | select.EPOLLRDHUP)
        one.shutdown(socket.SHUT_WR)
        one.recv(1)
        say("the end", seen(epoll.poll(PATIENCE_MS / 1000)))


def interrupted():
    class Interrupted(Exception):
        pass

    waits = False

    def handler(*_):
        nonlocal waits
        if waits:
            waits = False
            raise Interrupted

    signal.signal(signal.SIGALRM, handler)
    one = dial("hold")
    poll = select.poll()
    poll.register(one, select.POLLIN)
    epoll = select.epoll()
    epoll.register(one, select.EPOLLIN)
    for name, call in (
        ("recv", lambda: one.recv(1)),
        ("poll", poll.poll),
        ("epoll", epoll.poll),
        ("select", lambda: select.select([one], [], [])),
    ):
        waits = True
        try:
            # Repeats the signal: on a busy machine the first one may arrive before the call waits.
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            call()
            say(name, "returned")
        except Interrupted:
            say(name, "interrupted")
        signal.setitimer(signal.ITIMER_REAL, 0)


def ends():
    one = dial("reset")
    attempt("reset", one.recv, 9)
    attempt("then", one.recv, 9)
    attempt("send", one.send, b"x")
    closed = socket.socket(one.family)
    attempt("refused", closed.connect, (PEER[0], 2))
    one = socket.socket(one.family)
    one.setblocking(False)
    say("connect", errno.errorcode[one.connect_ex(PEER)])
    say("writable", len(select.select([], [one], [], PATIENCE_MS / 1000)[1]))
    say("error", one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    attempt("connected", one.connect, PEER)
    attempt("connected", one.connect, PEER)
    early = socket.socket(one.family)
    early.setblocking(False)
    with select.epoll() as epoll:
        epoll.register(early, select.EPOLLOUT)
        early.connect_ex(PEER)
        say("watched before", [event for _, event in epoll.poll(PATIENCE_MS / 1000)])
        epoll.modify(early, select.EPOLLIN)
        early.sendall(b"say\n")
        say("watched before", [event for _, event in epoll.poll(PATIENCE_MS / 1000)])
        epoll.unregister(early)
    two = socket.socket(one.family)
    two.setblocking(False)
    two.connect_ex((PEER[0], 2))
    with select.epoll() as epoll:
        epoll.register(two, select.EPOLLOUT)
        say("refused", [event for _, event in epoll.poll(PATIENCE_MS / 1000)])
    error = two.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    say("error", errno.errorcode[error], two.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


def ends_after_bytes():
    """Bytes that arrived before the reset are read first; then one call returns the error."""

    def refused():
        one = dial("refuse")
        poll = select.poll()
        poll.register(one, 0)
        say("over", [event for _, event in poll.poll(PATIENCE_MS)])
        poll.modify(one, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
        say("ready", [event for _, event in poll.poll(PATIENCE_MS)])
        return one

    one = refused()
    say("first", one.recv(3, socket.MSG_PEEK), one.recv(3))
    say("all there is", one.recv(99, socket.MSG_WAITALL))
    attempt("reset", one.recv, 9)
    attempt("then", one.recv, 9)
    attempt("send", one.send, b"x")
    one = refused()
    into = [bytearray(5), bytearray(8), bytearray(9)]
    say("recvmsg", one.recvmsg_into(into)[0], into)
    attempt("reset", one.recv, 9)
    attempt("then", one.recv, 9)
    one = refused()
    say("error", one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    with select.epoll() as epoll:
        epoll.register(one, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP)
        say("epoll", [event for _, event in epoll.poll(PATIENCE_MS / 1000)])
    say("bytes", one.recv(99))
    attempt("then", one.recv, 9)
    one = refused()
    attempt("send", one.send, b"x")
    attempt("send", one.send, b"x")
    say("bytes", one.recv(99))
    attempt("then", one.recv, 9)


def listening():
    one = socket.socket(socket.AF_INET6 if ":" in PEER[0] else socket.AF_INET)
    own = dial("hold").getsockname()[0]
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((own, 7007))
    one.listen(5)
    attempt("taken", socket.socket(one.family).bind, (own, 7007))
    one.setblocking(False)
    attempt("no client", one.accept)
    one.setblocking(True)
    one.settimeout(0.05)
    attempt("timeout", one.accept)
    one.settimeout(None)
    order = dial(f"call {own} 7007")
    with select.epoll() as epoll:
        epoll.register(one, select.EPOLLIN)
        say("epoll", [event for _, event in epoll.poll(PATIENCE_MS / 1000)])
    caller, address = one.accept()
    say("accepted", caller.getpeername() == address, caller.getsockname()[1])
    for name in ("SO_REUSEADDR", "SO_REUSEPORT", "SO_KEEPALIVE"):
        say("inherited", name, caller.getsockopt(socket.SOL_SOCKET, getattr(socket, name)))
    say("it says", caller.recv(6, socket.MSG_WAITALL))
    attempt("listener", one.getpeername)
    no_number_left(one, own)
    attempt("listener", one.send, b"x")
    one.close()
    caller.sendall(b"answer")
    say("without a listener", all_of(caller))
    order.close()


def no_number_left(listener, own):
    """A connection stays queued while accept() has no free descriptor number."""
    order = dial(f"call {own} 7007")
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.poll()
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limit[1]))
    attempt("no number", listener.accept)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    caller = listener.accept()[0]
    say("a number", caller.recv(6, socket.MSG_WAITALL))
    caller.sendall(b"answer")
    say("it hears", all_of(caller))
    order.close()


if __name__ == "__main__":
    for part in (
        names_and_options,
        bound,
        reading,
        writing,
        descriptors,
        last_parts,
        nothing_asked,
        streams,
        waiting,
        interrupted,
        ends,
        ends_after_bytes,
        listening,
    ):
        say("#", part.__name__)
        part()
