"""Letters that refer to other letters: what to put where a message id is due, or why it cannot be put there."""

import msgspec

from peik.core.call import fill_reference
from peik.core.letter import Letter, State
from peik.ports import Store


class Parked(msgspec.Struct, frozen=True):
    """The other letter has not been sent yet."""


class Orphaned(msgspec.Struct, frozen=True):
    """The other letter will never have a message id."""

    reason: str


class _Message(msgspec.Struct):
    message_id: int


_decode = msgspec.json.Decoder(_Message | list[_Message]).decode


async def resolve(letter: Letter, store: Store) -> Letter | Parked | Orphaned:
    """The letter with the message id filled in, if the one that it refers to has arrived."""
    assert letter.awaits is not None
    other = await store.letter(letter.awaits)
    while (
        other is not None and other.state is State.COMPLETED and other.result is None and other.merged_into is not None
    ):
        # It completed when a newer edit took its place, as it once was: that one has the answer.
        other = await store.letter(other.merged_into)
    if other is None:
        return Orphaned(f"it refers to letter {letter.awaits}, which is not here any more")
    if not other.state.is_final:
        return Parked()
    if other.state is not State.COMPLETED or other.result is None:
        return Orphaned(f"it refers to letter {other.id}, which was not sent ({other.failed_reason or other.state})")
    try:
        message = _decode(other.result)
    except msgspec.DecodeError:
        return Orphaned(f"it refers to letter {other.id}, whose answer has no message id")
    first = message[0] if isinstance(message, list) else message
    filled = fill_reference(letter.params, first.message_id)
    return msgspec.structs.replace(letter, params=filled, awaits=None)
