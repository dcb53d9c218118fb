# SPDX-License-Identifier: Apache-2.0
"""The control socket: no client can harm the forwarder or its traffic."""

import concurrent.futures
import contextlib
import random
import socket
import struct
import time

import pytest

from tests.lab.api import forwarder as pb
from tests.lab.clients import HttpConnection
from tests.lab.steelyard import VIP, WEB
from tests.lab.thread import stopped, threads_of
from tests.wire.control import Control, frame, request

LIMIT = 4 << 20  # maximum bytes of a frame
CLIENTS = 64
WEB4 = pb.ServiceKey(protocol=pb.PROTOCOL_TCP, vip=bytes([10, 0, 0, 80]), port=WEB)
VERSION_1 = b"\x08\x01"  # version field of a Request
UNKNOWN_BODY = b"\xba\x3e\x00"  # field 999, an empty message


@pytest.fixture
def control(stage):
    """Opens connections; afterwards the forwarder must still answer, and traffic must flow."""
    with HttpConnection(stage.client, VIP[4], WEB) as web:
        server = web.get()
        yield lambda: Control(stage.steelyard.forwarder_socket)
        assert web.get() == server
    with Control(stage.steelyard.forwarder_socket) as last:
        last.send(frame(request()))
        assert last.error_code() == 0
    assert stage.steelyard.in_sync()


def test_status_is_answered_with_its_id(control):
    with control() as one:
        one.send(frame(request(request_id=4711)))
        answer = one.receive()
        assert answer.id == 4711
        assert answer.WhichOneof("body") == "status"


STALL_S = 2  # while a worker gets no CPU


def test_listing_waits_for_stopped_workers_alone(stage, control):
    """Other clients are served meanwhile, and a waiting client may disconnect."""
    listing = frame(request(list_sessions=pb.ListSessionsRequest()))
    workers = threads_of(stage.steelyard.forwarder.pid, "sy-worker-")
    assert len(workers) == stage.workers
    with control() as one, control() as other, concurrent.futures.ThreadPoolExecutor() as pool:
        with stopped(workers):
            resume = time.monotonic() + STALL_S
            one.send(listing)
            with control() as leaving:
                leaving.send(listing)
            by_command = pool.submit(stage.steelyard.sessions)
            while time.monotonic() < resume:
                assert other.ask().WhichOneof("body") == "status"
            one.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.socket.recv(1)
            assert not by_command.done()
        one.socket.setblocking(True)
        assert one.receive().list_sessions.sessions
        assert by_command.result()


def test_pipelined_requests_are_answered_in_order(control):
    with control() as one:
        one.send(b"".join(frame(request(request_id=n)) for n in range(1, 6)))
        assert [one.receive().id for _ in range(5)] == [1, 2, 3, 4, 5]


def test_request_in_single_bytes_is_answered(control):
    with control() as one:
        for byte in frame(request()):
            one.send(bytes([byte]))
        assert one.error_code() == 0


@pytest.mark.parametrize("message", (b"\xff" * 20, b"\x08", b"\x12\x04text", b"\0" * 8))
def test_malformed_message_is_refused(control, message):
    with control() as one:
        one.send(frame(message))
        assert one.error_code() in (pb.CODE_MALFORMED, pb.CODE_UNSUPPORTED)


def test_newer_version_is_unsupported(control):
    with control() as one:
        one.send(frame(request(version=99)))
        assert one.error_code() == pb.CODE_UNSUPPORTED


def test_unknown_body_is_unsupported(control):
    with control() as one:
        one.send(frame(VERSION_1 + UNKNOWN_BODY))
        assert one.error_code() == pb.CODE_UNSUPPORTED


def test_empty_message_is_refused(control):
    with control() as one:
        one.send(frame(b""))
        assert one.error_code() in (pb.CODE_MALFORMED, pb.CODE_UNSUPPORTED)


@pytest.mark.parametrize("size", (LIMIT + 1, 0x7FFFFFFF, 0xFFFFFFFF))
def test_too_large_a_frame_is_refused(control, size):
    with control() as one:
        one.send(struct.pack("!I", size))
        assert one.error_code() == pb.CODE_TOO_LARGE


def test_incomplete_frame_delays_no_other_client(control):
    with control() as one:
        one.send(frame(request())[:-1])
        with control() as other:
            other.send(frame(request()))
            assert other.error_code() == 0


def test_incomplete_frame_at_end_of_stream_is_an_error(control):
    with control() as one:
        one.send(frame(request())[:3])
        one.socket.shutdown(socket.SHUT_WR)
        assert one.error_code() in (pb.CODE_MALFORMED, pb.CODE_TOO_LARGE)
        assert one.ended()


def test_client_that_never_reads_delays_no_other(control):
    """Answers queue up for that client; the forwarder still serves others."""
    with control() as one:
        one.socket.setblocking(False)
        try:
            for _ in range(100_000):
                one.socket.send(frame(request()))
        except BlockingIOError:
            pass
        with control() as other:
            other.send(frame(request()))
            assert other.error_code() == 0


def test_connection_limit_refuses_excess_clients(control):
    """Accepted ones are served, and the agent stays connected."""
    clients, served = [], 0
    try:
        for _ in range(CLIENTS):
            clients.append(control())
        for one in clients:
            with contextlib.suppress(ConnectionError):
                one.send(frame(request()))
                served += one.error_code() == 0
    finally:
        for one in clients:
            one.socket.close()
    assert served > 1


def test_random_bytes_are_harmless(control):
    rng = random.Random(20)
    for _ in range(200):
        with control() as one:
            data = rng.randbytes(rng.randrange(1, 400))
            one.send(frame(data) if rng.random() < 0.7 else data)


def test_mutated_requests_are_harmless(control):
    rng = random.Random(21)
    key = pb.ServiceKey(protocol=pb.PROTOCOL_TCP, vip=bytes([10, 0, 0, 80]))
    change = pb.Change(put_service=pb.Service(key=key))
    good = request(apply=pb.ApplyRequest(changes=[change]))
    for _ in range(500):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with control() as one:
            one.send(frame(bytes(data)))
            one.receive()


def test_staged_changes_are_discarded_on_close(stage, control):
    """A delete without a commit, then a close: the service still exists."""
    with control() as one:
        delete = pb.ApplyRequest(changes=[pb.Change(delete_service=WEB4)])
        assert not one.ask(apply=delete).HasField("error")
    assert stage.steelyard.service("web4")["traffic"] is not None
