# SPDX-License-Identifier: Apache-2.0
"""Requests of real clients; each compares the answer."""

import contextlib
import tempfile

from tests.lab.clients import connect, http_get, receive_exactly

BODY = "hello"
BULK = 3_000_000


def fetch(scheme, path, body, port=None):
    """port(program): by default the program's own."""

    def ask(place, address):
        at = place.at(address, port(place.program) if port else None)
        got = place.curl(f"{scheme}://{at}{path}")
        assert got.strip() == body, got

    return ask


def http(path="/index.html", body=BODY):
    return fetch("http", path, body)


def https(path="/index.html", body=BODY):
    return fetch("https", path, body, lambda program: program.tls)


def secure(path="/", body=BODY):
    """By HTTPS at the program's only port."""
    return fetch("https", path, body)


def quick(path="/index.html", body=BODY):
    """A request without starting a program: many per second."""

    def ask(place, address):
        got = http_get(place.client, address, place.program.port, path)
        assert got.strip() == body.encode(), got

    return ask


def bulk(path="/large", scheme="http"):
    """Megabytes, compared with the server's file."""

    def ask(place, address):
        port = place.program.port if scheme == "http" else place.program.tls
        with tempfile.NamedTemporaryFile(dir=place.lab.dir) as got:
            place.curl(f"{scheme}://{place.at(address, port)}{path}", "-o", got.name)
            assert got.read() == (place.dir / "large").read_bytes()

    return ask


def both(*asks):
    def ask(place, address):
        for one in asks:
            one(place, address)

    return ask


def talk(*lines, port=None):
    """A conversation: what the server sends first ("<text") and what the client sends (">text")."""

    def ask(place, address):
        with connect(place.client, address, port or place.program.port) as one:
            converse(place, one, lines)

    return ask


def converse(place, one, lines):
    for line in lines:
        text = place.text(line[1:]).encode()
        if line[0] == ">":
            one.sendall(text)
        else:
            assert receive_exactly(one, len(text)) == text


def held(*lines):
    """A connection that stays open after a conversation."""

    @contextlib.contextmanager
    def hold(place):
        with connect(place.client, place.host.v4, place.program.port) as one:
            converse(place, one, lines)
            yield one

    return hold


def command(*argv, answer=None, find=None):
    """A client program. {address} and {at} are the server's."""

    def ask(place, address):
        words = [
            place.text(word).replace("{address}", address).replace("{at}", place.at(address))
            for word in argv
        ]
        got = place.ask(words)
        if answer is not None:
            assert got.strip() == answer, got
        if find is not None:
            assert find in got, got

    return ask
