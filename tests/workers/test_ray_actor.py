"""The far side of a cluster, without the cluster: what a keeper of a worker does by itself."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from callgate.workers import ray_actor
from callgate.workers.channel import CONTROL, FRAME, Offer, connect, parcel
from callgate.workers.frames import Frames, pack
from callgate.workers.ray_actor import GROUPS, Keeper

METHODS = ("begin", "listen", "ended", "send", "control", "end", "has_children", "receive")


def test_a_keeper_that_is_imported_by_its_name_has_its_groups() -> None:
    # As over ray://, where the class goes by its name: a send that waited for a pending receive would take a second.
    keeper = pickle.loads(pickle.dumps(Keeper))
    groups = {name: getattr(keeper, name).__ray_concurrency_group__ for name in METHODS}
    assert set(groups.values()) == set(GROUPS)
    assert len({groups["send"], groups["receive"], groups["control"]}) == 3


def test_a_worker_whose_program_asks_for_nothing_any_more_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actor, "TURN_S", 0.01)
    monkeypatch.setattr(ray_actor, "ORPHAN_S", 0.05)
    keeper = Keeper()
    try:
        assert keeper.begin([], [], None)
        keeper.receive()
        until = time.monotonic() + 60
        while not keeper._process.gone and keeper._process._process.poll() is None:
            assert time.monotonic() < until, "the worker lives on"
            time.sleep(0.01)
    finally:
        keeper.end(0.0)
        keeper._process.close()


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    made = Keeper()
    made.begin([], [], None)
    yield made
    made.end(0.0)
    made._process.close()


def offered(keeper: Keeper) -> Offer:
    offer = keeper.listen("127.0.0.1")
    assert offer is not None
    return offer


def heard(sock: socket.socket, op: str) -> dict[str, object]:
    sock.settimeout(60)
    frames = Frames()
    while data := sock.recv(4096):
        for message in frames.feed(data):
            if message["op"] == op:
                return message
    raise AssertionError(f"no {op!r} came")


def test_frames_pass_by_the_direct_connection_and_the_worker_ends_with_it(keeper: Keeper, gone) -> None:
    sock = connect(offered(keeper))
    assert sock is not None
    with sock:
        heard(sock, "ready")
        sock.sendall(parcel(CONTROL, pack({"op": "cancel", "id": 7})) + parcel(FRAME, pack({"op": "ping"})))
        heard(sock, "pong")
    assert gone([keeper._process.pid])


def test_the_direct_connection_says_how_the_worker_died(keeper: Keeper) -> None:
    sock = connect(offered(keeper))
    assert sock is not None
    with sock:
        heard(sock, "ready")
        keeper._process._process.kill()
        assert heard(sock, "died")["how"] == "killed by signal 9, SIGKILL."
        assert sock.recv(1) == b""


def test_a_stranger_without_the_secret_gets_no_connection_and_the_program_still_does(keeper: Keeper) -> None:
    offer = offered(keeper)
    assert connect(replace(offer, secret=b"x" * 32)) is None
    with socket.create_connection((offer.host, offer.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + b" " * 100)
    sock = connect(offer)
    assert sock is not None
    sock.close()


def test_nobody_can_connect_once_frames_pass_through_ray(keeper: Keeper) -> None:
    offer = offered(keeper)
    keeper.receive()
    assert connect(offer) is None


def test_there_is_no_direct_connection_in_a_cluster_that_encrypts_its_own(keeper: Keeper, monkeypatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    assert keeper.listen("127.0.0.1") is None


def test_an_address_that_cannot_be_listened_on_is_no_error(keeper: Keeper) -> None:
    assert keeper.listen("192.0.2.77") is None
