"""Requests to the supervisor: in pieces, given up, and from an owner that is gone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from broker.cli.attached.requests import OwnerGoneError, Requests, SupersededError

Pipes = tuple[Requests, int, int]


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    """Requests, the end of the pipe into which the owner writes, and the one from which it reads."""
    inward, owner_writes = os.pipe()
    owner_reads, outward = os.pipe()
    yield Requests(inward, outward, os.getppid()), owner_writes, owner_reads
    for descriptor in (inward, owner_writes, owner_reads, outward):
        try:
            os.close(descriptor)
        except OSError:
            continue  # the test has closed it


def test_a_request_may_come_in_pieces_and_two_at_once(pipes: Pipes) -> None:
    requests, owner, reader = pipes
    os.write(owner, b'{"id": 1, "do')
    requests.rest(0)
    os.write(owner, b'": "heal"}\n{"id": 2, "do": "stop"}\n')
    first = requests.next()
    assert first == {"id": 1, "do": "heal"}
    requests.answer(first, value=None)
    assert requests.next() == {"id": 2, "do": "stop"}
    assert json.loads(os.read(reader, 100)) == {"id": 1, "value": None}


def test_another_request_ends_the_rest_within_one(pipes: Pipes) -> None:
    requests, owner, _ = pipes
    requests.rest(0)
    os.write(owner, b'{"id": 2, "do": "stop"}\n')
    with pytest.raises(SupersededError):
        requests.rest(30)
    assert requests.next()["id"] == 2


def test_an_owner_that_is_gone_is_noticed(pipes: Pipes) -> None:
    requests, owner, reader = pipes
    os.close(reader)
    with pytest.raises(OwnerGoneError):
        requests.answer({"id": 1}, value=None)
    os.close(owner)
    with pytest.raises(OwnerGoneError):
        requests.next()


def test_an_orphan_notices_it_while_somebody_holds_the_pipe_open() -> None:
    inward, owner = os.pipe()
    try:
        with pytest.raises(OwnerGoneError):
            Requests(inward, -1, os.getpid()).next()
    finally:
        os.close(inward)
        os.close(owner)
