# SPDX-License-Identifier: Apache-2.0
"""A server that reports in which order it sees events: order.py PORT epoll|poll|select.

It answers a line with `LINE NUMBER`, where NUMBER counts the lines answered before."""

import os
import select
import socket
import sys


class Poll:
    """poll() and epoll_wait(), which return all ready descriptors at once."""

    def __init__(self, poll):
        self.poll = poll

    def add(self, fd):
        self.poll.register(fd, select.POLLIN)

    def remove(self, fd):
        self.poll.unregister(fd)

    def wait(self):
        return [fd for fd, _ in self.poll.poll()]


class Select:
    def __init__(self):
        self.fds = []

    def add(self, fd):
        self.fds.append(fd)

    def remove(self, fd):
        self.fds.remove(fd)

    def wait(self):
        return select.select(self.fds, [], [])[0]


def main(port, kind):
    kinds = {"epoll": lambda: Poll(select.epoll()), "poll": lambda: Poll(select.poll())}
    kinds["select"] = Select
    ready = kinds[kind]()
    listener = socket.create_server(("0.0.0.0", port))
    connections = {}
    ready.add(listener.fileno())
    served = 0
    print("pid", os.getpid(), flush=True)
    while True:
        for fd in ready.wait():
            if fd == listener.fileno():
                one = listener.accept()[0]
                connections[one.fileno()] = one
                ready.add(one.fileno())
                one.sendall(b"welcome\n")
                continue
            one = connections[fd]
            line = one.recv(4096)
            if line:
                one.sendall(line.strip() + b" %d\n" % served)
                served += 1
            else:
                ready.remove(fd)
                del connections[fd]
                one.close()


main(int(sys.argv[1]), sys.argv[2])
