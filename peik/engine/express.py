"""An express: a letter that is marked in the very commit that accepts it, since its lane is free and its sender may send.

What a person waits for goes out one commit sooner. Whoever comes to the same lane meanwhile waits behind it.
"""

from peik.core.letter import Draft, Letter
from peik.engine.sender import Sender


class Expressed:
    """A kept place, until the letter that it is for goes, waits like any other, or does not come.

    A sender that has ended meanwhile is followed by one that takes up what is marked: the commit was asked for before that
    one asks what was left in flight.
    """

    def __init__(self, sender: Sender, draft: Draft, reserved_at: float) -> None:
        self.epoch = sender.lease.epoch
        self._sender = sender
        self._draft = draft
        self._reserved_at = reserved_at

    def stored(self, letter: Letter, *, is_marked: bool) -> None:
        if self._sender.is_over:
            return
        if is_marked:
            self._sender.express(letter, self._reserved_at)
        else:
            # Somebody is before it whom this process does not know yet: read them first.
            self._sender.give_up(self._draft)
            self._sender.catch_up(letter.number)

    def failed(self) -> None:
        if not self._sender.is_over:
            self._sender.give_up(self._draft)


def express_of(sender: Sender | None, draft: Draft) -> Expressed | None:
    """A place for this draft, if it may go at once."""
    if sender is None or not draft.may_go_at_once:
        return None
    reserved_at = sender.reserve(draft)
    return None if reserved_at is None else Expressed(sender, draft, reserved_at)
