"""One question to the kernel for all connections of a turn, and never an answer from before something was read."""

import socket
from collections.abc import Iterator

import pytest

from peik.telegram.client import ReadableSockets

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(3)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def watching(pairs: list[Pair]) -> ReadableSockets[str]:
    stirring: ReadableSockets[str] = ReadableSockets()
    for name, (own, _) in zip("abc", pairs, strict=True):
        stirring.add(name, own.fileno())
    return stirring


def found(stirring: ReadableSockets[str]) -> list[str]:
    return [name for name in "abc" if name in stirring]


def test_a_close_and_bytes_that_nobody_read_are_seen(pairs: list[Pair]) -> None:
    stirring = watching(pairs)
    assert found(stirring) == []
    pairs[0][1].close()
    pairs[2][1].send(b"!")
    stirring.forget()
    assert found(stirring) == ["a", "c"]
    pairs[2][0].recv(1)
    stirring.forget()
    assert found(stirring) == ["a"]
    stirring.close()


def test_one_that_was_let_go_is_not_asked_any_more_though_its_number_is_used_again(pairs: list[Pair]) -> None:
    stirring = watching(pairs)
    number = pairs[0][0].fileno()
    pairs[0][1].send(b"!")
    stirring.discard("a")
    stirring.discard("a")  # it was closed, and then given up
    assert "a" not in stirring
    stirring.add("again", number)
    assert "again" in stirring
    stirring.close()
