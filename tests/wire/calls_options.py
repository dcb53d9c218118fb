# SPDX-License-Identifier: Apache-2.0
"""Continues calls.py: options, counters and MSG_PEEK. calls_options.py PEER PORT."""

import array
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import termios
import time

from calls import PEER, all_of, attempt, dial, say

SIOCOUTQNSD, SIOCATMARK, SIOCGIFINDEX = 0x894B, 0x8905, 0x8933
SO_MARK, IP_MINTTL, MSG_MORE, MSG_NOSIGNAL = 36, 21, 0x8000, 0x4000
SO_BINDTOIFINDEX, IP_TRANSPARENT = 62, 19
SOON_S = 0.003  # Linux may send a tail loss probe after 4 ms
LIBC = ctypes.CDLL(None, use_errno=True)
V6 = ":" in PEER[0]
FAMILY = socket.AF_INET6 if V6 else socket.AF_INET
TOS = (socket.IPPROTO_IPV6, socket.IPV6_TCLASS) if V6 else (socket.IPPROTO_IP, socket.IP_TOS)


def number(one, request):
    value = array.array("i", [0])
    fcntl.ioctl(one, request, value)
    return value[0]


def facts(one):
    """TCP_INFO: sent segment, unacknowledged, path, cwnd, acked, received, least and mean rtt."""
    raw = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    names = {"mss": 16, "unacked": 24, "pmtu": 60, "rtt": 68, "cwnd": 80, "least": 148}
    found = {name: struct.unpack_from("I", raw, at)[0] for name, at in names.items()}
    found["acked"], found["received"] = struct.unpack_from("QQ", raw, 120)
    return found


def fill(one):
    """Sends until nothing more fits for as long as the timeout: the peer does not read."""
    while True:
        one.send(bytes(4096))


def unacknowledged():
    one = dial("deaf")
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    say("deaf", one.recv(1))
    one.send(bytes(3000))
    say("sent", number(one, termios.TIOCOUTQ), number(one, SIOCOUTQNSD), facts(one)["unacked"])
    # Holds even after the first segment was retransmitted and counts as lost.
    while one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[2] < 2:
        select.select([], [], [], 0.01)
    say("again", number(one, termios.TIOCOUTQ), number(one, SIOCOUTQNSD), facts(one)["unacked"])
    one = dial("deaf")
    one.recv(1)
    before = facts(one)  # after a lost SYN, the window is one segment
    one.send(bytes(53000))
    sent = 53000 - number(one, SIOCOUTQNSD)
    say("sent in part", number(one, termios.TIOCOUTQ), sent == before["cwnd"] * before["mss"])


def counted():
    one = dial("echo")
    one.sendall(bytes(5000))
    one.recv(5000, socket.MSG_WAITALL)
    # Linux counts its SYN as sent data.
    while not 5005 <= facts(one)["acked"] <= 5006:
        select.select([], [], [], 0.01)
    seen = facts(one)
    say("mss", seen["mss"], "pmtu", seen["pmtu"], "received", seen["received"])
    say("cwnd", seen["cwnd"] >= 10, "rtt", 0 < seen["least"] <= seen["rtt"] < 1_000_000)


def without_a_value():
    """Linux treats 0 as "no value"."""
    one = socket.socket(FAMILY)
    for level, name in ((socket.IPPROTO_IPV6, socket.IPV6_V6ONLY), TOS):
        say(name, LIBC.setsockopt(one.fileno(), level, name, None, 4))


def set_before():
    """Options are usually set before connect() and listen()."""
    one = socket.socket(FAMILY)
    one.setsockopt(*TOS, 0x2E << 2)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30000)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 700)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    one.connect(PEER)
    for name in ("SO_SNDBUF", "SO_RCVBUF", "SO_PRIORITY"):
        attempt(name, one.getsockopt, socket.SOL_SOCKET, getattr(socket, name))
    say("tos", one.getsockopt(*TOS), "cork", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK))
    one.send(b"mss\n")
    say("corked", number(one, SIOCOUTQNSD))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    say("the peer's segment", all_of(one), "its own", facts(one)["mss"])
    one = dial("hold")
    for name, value in (("SO_SNDBUF", 1), ("SO_RCVBUF", 1), ("SO_SNDBUF", 1 << 28)):
        one.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        attempt(name, one.getsockopt, socket.SOL_SOCKET, getattr(socket, name))
    attempt("tos", one.getsockopt, *TOS)
    one.setsockopt(*TOS, 0x13)
    attempt("tos", one.getsockopt, *TOS)
    attempt("too large", one.setsockopt, socket.IPPROTO_TCP, socket.TCP_MAXSEG, 40000)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 7, 3))
    say("linger", struct.unpack("ii", one.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)))
    for name, value in (("no time", (1, 1000000)), ("over at once", (-1, 0))):
        option = (socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", *value))
        attempt(name, one.setsockopt, *option)
        say(struct.unpack("ll", one.getsockopt(*option[:2], 16)))
    attempt("receive timeout", one.recv, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50000))
    attempt("send timeout", fill, one)


def followed_by_linux():
    """Options that only Linux supports turn a socket into Linux's (docs/run.md): the first two of
    these, and the listening one."""
    front = socket.if_nametoindex("front")
    for level, name, *values in (
        (socket.SOL_SOCKET, SO_MARK, 1),
        (socket.IPPROTO_IP, IP_MINTTL, 3),
        (socket.SOL_SOCKET, SO_MARK, 1, 0),
        (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"front"),
        (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo", b""),
        (socket.SOL_SOCKET, SO_BINDTOIFINDEX, front),
        (socket.SOL_SOCKET, SO_BINDTOIFINDEX, 0),
        (socket.IPPROTO_IP, IP_TRANSPARENT, 0),
        (socket.SOL_SOCKET, SO_MARK),
    ):
        one = socket.socket(FAMILY)
        for value in values:
            one.setsockopt(level, name, value)
        one.connect(PEER)
        one.sendall(b"echo\nhello")
        say(name, one.recv(5, socket.MSG_WAITALL))
    own = one.getsockname()[0]
    one = socket.socket(FAMILY)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, SO_MARK, 1)
    one.bind((own, 7009))
    one.listen(5)
    order = dial(f"call {own} 7009")
    caller = one.accept()[0]
    say("it says", caller.recv(6, socket.MSG_WAITALL))
    caller.sendall(b"answer")
    say("it hears", all_of(caller))
    order.close()
    elsewhere(own)


def elsewhere(own):
    """A socket bound to another device does not receive the connection."""
    one = socket.socket(FAMILY)
    one.setsockopt(socket.SOL_SOCKET, SO_BINDTOIFINDEX, socket.if_nametoindex("lo"))
    one.bind((own, 7010))
    one.listen(5)
    say("elsewhere", dial(f"knock {own} 7010").recv(99))


def looking():
    """MSG_PEEK reads across segments; MSG_TRUNC discards."""
    one = dial("echo")
    one.sendall(bytes(range(250)) * 40)
    while number(one, termios.FIONREAD) < 10000:
        select.select([], [], [], 0.01)
    seen = one.recv(20000, socket.MSG_PEEK)
    say("peek", len(seen), seen == bytes(range(250)) * 40)
    into = [bytearray(3), bytearray(6000), bytearray(9000)]
    say("peek", one.recvmsg_into(into, 0, socket.MSG_PEEK)[0], into[1][:3], into[2][:3])
    say("peek", LIBC.recv(one.fileno(), None, 9999, socket.MSG_PEEK | socket.MSG_TRUNC))
    say("thrown away", LIBC.recv(one.fileno(), None, 9998, socket.MSG_TRUNC))
    say("left", one.recv(9))


def parts():
    """One call takes at most 1024 parts."""
    one = dial("echo")
    for count in (1024, 1025):
        attempt("writev", os.writev, one.fileno(), [b"x"] * count)
        attempt("sendmsg", one.sendmsg, [b"y"] * count)
    one.recv(2047, socket.MSG_PEEK | socket.MSG_WAITALL)
    for count in (1024, 1025):
        attempt("readv", lambda n=count: os.readv(one.fileno(), [bytearray(1)] * n) > 0)
        attempt("recvmsg", lambda n=count: one.recvmsg_into([bytearray(1)] * n)[0] > 0)


def sending():
    one = dial("echo")
    one.sendall(b"all is acknowledged")
    one.recv(19, socket.MSG_WAITALL)
    one.send(b"more ", MSG_MORE)
    say("more", number(one, SIOCOUTQNSD))
    one.send(b"comes")
    say("it comes", one.recv(10, socket.MSG_WAITALL))
    one.shutdown(socket.SHUT_WR)
    attempt("no signal", one.send, b"x", MSG_NOSIGNAL)


def waiting_behind():
    """Returns how many bytes the stack holds back for more: never bytes that were sent before
    MSG_MORE."""
    nodelay, cork = ((socket.IPPROTO_TCP, name) for name in (socket.TCP_NODELAY, socket.TCP_CORK))
    look = (None, 0)  # until its first poll iteration, the stack keeps all bytes in one segment
    cases = {
        "more": [("more", MSG_MORE)],
        "more, behind what was sent": [("sent", 0), ("more", MSG_MORE), ("again", MSG_MORE)],
        "more, behind what waits": [("sent", 0), look, ("waits", 0), ("more", MSG_MORE)],
        "no more": [("more", MSG_MORE), ("all", 0)],
        "a cork, behind what was sent": [("sent", 0), (cork, 1), ("corked", 0)],
        "a cork, behind what waits": [("sent", 0), look, ("waits", 0), (cork, 1), ("c", 0)],
        "no cork": [("more", MSG_MORE), (cork, 0)],
        "no delay, behind a cork": [(cork, 1), ("corked", 0), (nodelay, 1)],
        "no delay, and then a cork": [(nodelay, 1), (cork, 1), ("corked", 0)],
        "no delay, and then more": [("sent", 0), (nodelay, 1), ("sent", 0), ("more", MSG_MORE)],
        "urgent, behind a cork": [(cork, 1), ("urgent", socket.MSG_OOB)],
        "full segments, behind a cork": [(cork, 1), ("x" * 3000, 0)],
    }
    for name, steps in cases.items():
        say(name, promptly(steps))
    one = dial("echo")
    one.send(b"sent, ")
    one.send(b"and more", MSG_MORE)
    say("it comes", one.recv(14, socket.MSG_WAITALL))


def promptly(steps):
    """Returns how many bytes these steps leave unsent while the peer acknowledges nothing. A timer
    sends them in the end: tries again if the steps took too long."""
    while True:
        one = dial("deaf")
        one.recv(1)
        began = time.monotonic()
        for what, value in steps:
            if what is None:
                number(one, SIOCOUTQNSD)
            elif isinstance(what, str):
                one.send(what.encode(), value)
            else:
                one.setsockopt(*what, value)
        count = number(one, SIOCOUTQNSD)
        if time.monotonic() - began < SOON_S:
            return count


def marks():
    one = dial("urgent")
    one.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    poll = select.poll()
    poll.register(one, select.POLLPRI)
    say("urgent", [event for _, event in poll.poll(5000)])
    while number(one, termios.FIONREAD) < 4:
        select.select([], [], [], 0.01)
    say("at the mark", LIBC.sockatmark(one.fileno()), number(one, SIOCATMARK))
    say("before it", one.recv(9))
    say("at the mark", LIBC.sockatmark(one.fileno()), number(one, SIOCATMARK))
    say("after it", one.recv(9))
    asked = fcntl.ioctl(one, SIOCGIFINDEX, struct.pack("16si12x", b"lo", 0))
    say("interface", struct.unpack("16xi12x", asked))
    attempt("unknown", fcntl.ioctl, one, 0x54FF, b"")
    for size in (4, 0, -1):
        for value in (None, ctypes.create_string_buffer(4)):
            say("size", size, asked_for(one, value, ctypes.byref(ctypes.c_int(size))))
    say("no size", asked_for(one, ctypes.create_string_buffer(4), None))
    for request in (termios.FIONREAD, termios.TIOCOUTQ, SIOCATMARK, termios.FIONBIO):
        say("no address", LIBC.ioctl(one.fileno(), request, None), ctypes.get_errno())


def asked_for(one, value, size):
    """Returns what getsockopt() stores into buffers of this value and size."""
    done = LIBC.getsockopt(one.fileno(), socket.SOL_SOCKET, socket.SO_TYPE, value, size)
    return done, done and ctypes.get_errno()


def epolls():
    """epoll_pwait2(), and the flags of accept4()."""
    own = dial("hold").getsockname()[0]
    one = socket.socket(FAMILY)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
    one.setsockopt(*TOS, 0x20)
    one.bind((own, 7008))
    one.listen(5)
    order = dial(f"call {own} 7008")
    with select.epoll() as epoll:
        epoll.register(one, select.EPOLLIN)
        event = ctypes.create_string_buffer(12)
        wait = struct.pack("ll", 5, 0)
        say("epoll_pwait2", LIBC.epoll_pwait2(epoll.fileno(), event, 1, wait, None))
        say("event", struct.unpack("Iq", event.raw[:4].ljust(8, b"\0") + event.raw[4:])[0])
    flags = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    fd = LIBC.accept4(one.fileno(), None, None, flags)
    caller = socket.socket(fileno=fd)
    say("nonblock", bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK))
    say("cloexec", bool(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC))
    say("flags", LIBC.accept4(one.fileno(), None, None, 1), errno.errorcode[ctypes.get_errno()])
    attempt("inherited", caller.getsockopt, socket.SOL_SOCKET, socket.SO_RCVBUF)
    attempt("inherited", caller.getsockopt, *TOS)
    caller.setblocking(True)
    say("it says", caller.recv(6, socket.MSG_WAITALL))
    caller.sendall(b"answer")
    say("it hears", all_of(caller))
    order.close()
    ended(one, own)


def ended(one, own):
    """shutdown() of a listening socket, then listen() again."""
    attempt("write side", one.shutdown, socket.SHUT_WR)
    attempt("read side", one.shutdown, socket.SHUT_RD)
    attempt("again", one.shutdown, socket.SHUT_RD)
    one.setblocking(False)
    attempt("accept", one.accept)
    order = dial(f"call {own} 7008")
    order.settimeout(60)
    attempt("refused", order.recv, 1)
    one.setblocking(True)
    one.listen(5)
    attempt("no mark", one.setsockopt, socket.SOL_SOCKET, SO_MARK, 0)
    order = dial(f"call {own} 7008")
    caller = one.accept()[0]
    # Linux shut it for reading, like the listener: the read does not wait for later bytes.
    while number(caller, termios.FIONREAD) < 6:
        select.select([], [], [], 0.01)
    say("it says", caller.recv(6, socket.MSG_WAITALL))


def both_kinds():
    """One poll() of a connection, a UDP socket and a Unix socket."""
    one = dial("echo")
    udp, sender = (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        socket.socket(type=socket.SOCK_DGRAM),
    )
    udp.bind(("127.0.0.1", 0))
    near, far = socket.socketpair()
    names = {one.fileno(): "tcp", udp.fileno(): "udp", near.fileno(): "unix"}
    poll = select.poll()
    for fd in names:
        poll.register(fd, select.POLLIN)
    say("nothing", poll.poll(20))
    sender.sendto(b"x", udp.getsockname())
    say("one", sorted(names[fd] for fd, _ in poll.poll(5000)))
    far.send(b"y")
    say("two", sorted(names[fd] for fd, _ in poll.poll(5000)))
    one.send(b"z")
    one.recv(1, socket.MSG_PEEK)
    say("all", sorted(names[fd] for fd, _ in poll.poll(5000)))


for part in (
    unacknowledged,
    counted,
    without_a_value,
    set_before,
    followed_by_linux,
    looking,
    parts,
    sending,
    waiting_behind,
    marks,
    epolls,
    both_kinds,
):
    say("#", part.__name__)
    part()
say("done")
