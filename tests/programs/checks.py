# SPDX-License-Identifier: Apache-2.0
"""The columns of the table in docs/run.md: features of a program on the stack, verified by requests
of real clients.

The stack's counters show their connections, Linux's do not. A request is a function of a running
program and an address, which fails unless the right bytes arrive. A check is a function of a
running program."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.lab.process import CommandFailed
from tests.lab.run import kernel_connections

COLUMNS = ("serves", "proxies", "TLS", "threads", "fork", "reload")
RELOADS = 2


def serves(ask, families=None, linux=0):
    """Over each family. `linux`: further connections per request, by children."""

    def check(place):
        for address in map(place.host.address, families or place.program.families):
            with place.over_stack(linux=linux):
                ask(place, address)

    return check


def proxies(ask, opened=1):
    """Its upstream connections use the stack, too."""

    def check(place):
        for address in place.addresses:
            with place.over_stack(opened=opened):
                ask(place, address)

    return check


def opens(ask):
    """A connection that it opens without a client's request."""

    def check(place):
        with place.over_stack(accepted=0):
            ask(place)

    return check


def at_once(place, ask, clients=8, requests=2):
    """Sends requests of several clients at once. Returns the exceptions."""

    def client(number):
        for _ in range(requests):
            ask(place, place.addresses[number % len(place.addresses)])

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))


def threads(ask, least, clients=8):
    """Several threads of one process serve many clients."""

    def check(place):
        with place.over_stack(accepted=clients):
            at_once(place, ask, clients)
        # The library has two threads: for time, and for relays.
        most = max(int(place.status(pid, "Threads")) for pid in place.pids())
        assert most >= least, most

    return check


def workers(ask, clients=8):
    """Each serving process is a child of another process of the program."""

    def check(place):
        with place.over_stack(accepted=clients):
            at_once(place, ask, clients)
        for pid in stack_pids(place):
            assert int(place.status(pid, "PPid")) in place.pids(), pid

    return check


def children(ask, hold, clients=8, linux=0):
    """A child for each connection, which a relay serves: `hold` opens one, as a context manager."""

    def check(place):
        with place.over_stack(accepted=clients, linux=linux * clients):
            at_once(place, ask, clients, 1)
        with place.over_stack(), hold(place):
            place.wait(place.relays, "a relay serves the child")
        place.wait(lambda: not place.relays(), "all relays have ended")

    return check


def stack_pids(place):
    """Returns the living processes that have had a stack, from the parent's log."""
    lines = [line for line in place.process.output().splitlines() if " is worker " in line]
    pids = {int(line.split("pid ")[1].split()[0]) for line in lines}
    return pids & place.pids()


class Requests:
    """Clients that send requests one after the other within the block."""

    def __init__(self, place, ask, clients=2):
        self.place, self.ask = place, ask
        self.count, self.failures, self.ended = 0, [], threading.Event()
        self.pool = ThreadPoolExecutor(clients)
        self.clients = [self.pool.submit(self._run) for _ in range(clients)]

    def _run(self):
        while not self.ended.is_set():
            try:
                self.ask(self.place, self.place.host.v4)
                self.count += 1
            except (OSError, AssertionError) as error:
                self.failures.append(f"after {self.count}: {error}"[-300:])

    def more(self, number=10):
        """Waits for so many more answers."""
        wanted = self.count + number
        self.place.wait(lambda: self.count >= wanted, "answers come")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.pool.shutdown()
        for client in self.clients:
            client.result()


def replaced(place):
    """Returns whether all processes that had a stack have exited after the reload."""
    before = stack_pids(place) if place.stack else set()
    return lambda: not before & place.pids()


def in_place(place):
    """Its processes stay."""
    return lambda: True


def reload(ask, number, done=in_place, loses=False):
    """Requests succeed during repeated reloads by a signal, except if it `loses` some: the table
    says why. Afterwards the program is on the stack."""

    def check(place):
        with Requests(place, ask) as requests:
            for _ in range(RELOADS):
                requests.more()
                over = done(place)
                os.kill(place.process.pid, number)  # the parent forwards it
                place.wait(over, "it has reloaded")
                requests.more()
        assert loses or not requests.failures, (requests.count, requests.failures)
        back_on_stack(place, ask)

    return check


def left_to_linux(ask):
    """The program works, and Linux's TCP has its connections: the table says why."""

    def check(place):
        before = kernel_connections(place.host)
        for address in place.addresses:
            ask(place, address)
        assert not place.stack or kernel_connections(place.host) > before

    return check


def back_on_stack(place, ask):
    """New processes get their queues a moment after their predecessors have exited."""

    def is_back():
        try:
            with place.over_stack():
                ask(place, place.host.v4)
        except CommandFailed:
            raise
        except AssertionError:
            return False
        return True

    place.wait(is_back, "the stack serves again")
