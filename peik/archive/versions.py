"""Which versions of messages are new, and what then has to be written: pure, and the same for every archive.

An archive first tries to insert the newest version of each chain. `settle` says what to do with the chains whose message was
there already, `beside` what goes with those that were new.
"""

import enum
from collections.abc import Iterable, Sequence

import msgspec

from peik.archive_ports import Kept, Message

Key = tuple[str, int, int]


class Fate(enum.Enum):
    NEW = "new"
    EDITED = "edited"
    KNOWN = "known"


class Chain:
    """All versions of one message that were handed in together."""

    __slots__ = ("key", "places", "versions")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.versions: list[Message] = []  # the oldest first, each once
        self.places: dict[int, int] = {}  # by edit date: who handed that version in first

    @property
    def newest(self) -> Message:
        return self.versions[-1]


class Replacing(msgspec.Struct):
    """A version that is in force is put aside, then another takes its place, then those between them are put aside. In this
    order a version is in force or aside at every moment, and nobody counts one that somebody else has counted."""

    old: Message
    new: Message
    between: list[Message]


class Todo(msgspec.Struct):
    """What is left to write. What is put aside may be there already: the archive tells which were not."""

    aside: list[Message] = []
    replace: list[Replacing] = []
    fill: list[Message] = []  # the versions that are here, of which we now know more


def key_of(message: Message) -> Key:
    return message.session_id, message.chat_id, message.message_id


def chains(messages: Sequence[Message]) -> list[Chain]:
    """In the order of their keys: whoever locks rows does so in the same order."""
    found: dict[Key, Chain] = {}
    for place, message in enumerate(messages):
        key = key_of(message)
        chain = found.get(key)
        if chain is None:
            chain = found[key] = Chain(key)
        if message.edited_at_ms in chain.places:
            index = next(i for i, one in enumerate(chain.versions) if one.edited_at_ms == message.edited_at_ms)
            chain.versions[index] = filled(chain.versions[index], message)
        else:
            chain.places[message.edited_at_ms] = place
            chain.versions.append(message)
    for chain in found.values():
        if len(chain.versions) > 1:
            _put_in_order(chain)
    return sorted(found.values(), key=lambda chain: chain.key)


def _put_in_order(chain: Chain) -> None:
    chain.versions.sort(key=lambda message: message.edited_at_ms)
    whole = chain.newest
    for older in chain.versions[:-1]:
        whole = filled(whole, older)
    chain.versions[-1] = whole


def filled(message: Message, other: Message) -> Message:
    """The message, and what only the other one knew. One that was deleted stays deleted."""
    letter_id = message.letter_id if message.letter_id is not None else other.letter_id
    deleted_at_ms = message.deleted_at_ms if message.deleted_at_ms is not None else other.deleted_at_ms
    if letter_id == message.letter_id and deleted_at_ms == message.deleted_at_ms:
        return message
    return msgspec.structs.replace(message, letter_id=letter_id, deleted_at_ms=deleted_at_ms)


def beside(chain: Chain) -> list[Message]:
    """What is put aside with a message that is new."""
    return chain.versions[:-1]


def settle(todo: Todo, chain: Chain, current: Message) -> None:
    """The message of a chain is here: what does the chain bring?"""
    newer = [version for version in chain.versions if version.edited_at_ms > current.edited_at_ms]
    todo.aside += [version for version in chain.versions if version.edited_at_ms < current.edited_at_ms]
    if newer:
        taking = filled(newer[-1], current)
        # It was archived when its first version was: retention counts from there.
        taking = msgspec.structs.replace(taking, created_at_ms=current.created_at_ms)
        todo.replace.append(Replacing(current, taking, newer[:-1]))
        return
    whole = filled(current, chain.newest)
    if whole is not current:
        todo.fill.append(whole)


class Fates:
    """What became of each message that was handed in."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._fates = [Fate.KNOWN] * len(messages)

    def inserted(self, chain: Chain) -> None:
        """Its newest version is a message that was not here before."""
        self._fates[chain.places[chain.newest.edited_at_ms]] = Fate.NEW

    def kept(self, chain: Chain, edited_at_ms: int) -> None:
        """Another one of its versions was not here before."""
        self._fates[chain.places[edited_at_ms]] = Fate.EDITED

    def told(self) -> list[Fate]:
        return self._fates


def tally(fates: Iterable[Fate]) -> Kept:
    counts = dict.fromkeys(Fate, 0)
    for fate in fates:
        counts[fate] += 1
    return Kept(new=counts[Fate.NEW], edited=counts[Fate.EDITED], known=counts[Fate.KNOWN])
