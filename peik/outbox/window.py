"""Keeps the lanes of one bot filled from the store: fronts of lanes that ran empty, and lanes that are not in memory yet."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from peik.clock import Clock
from peik.core.call import LetterReference, fill_references, references_in
from peik.core.lanes import Lanes, Room
from peik.core.letter import RANKS, LaneKey, Letter, State, is_edit
from peik.core.lifecycle import UNCERTAIN
from peik.core.pace import Pace
from peik.core.provisional import made_in
from peik.errors import StoreUnavailable
from peik.outbox.effects import ChatBook
from peik.outbox.store import BotRecord, LetterView, Store

PAUSE_S = 1.0  # after a look around that found nothing new, or a store that did not answer


class Windows:
    def __init__(
        self, bot_id: int, lanes: Lanes, store: Store, room: Room, *, clock: Clock, ring: Callable[[], None]
    ) -> None:
        self._bot_id = bot_id
        self._lanes = lanes
        self._store = store
        self._letters = room.letters_per_lane
        self._clock = clock
        self._ring = ring
        self._cursors: list[LaneKey | None] = [None] * RANKS
        self._not_before = [0.0] * RANKS
        self._is_sweeping = False
        self._found_nothing = [False] * RANKS

    def read(self, now: float, group: asyncio.TaskGroup) -> None:
        """Start whatever reading the lanes ask for. One sweep at a time, so that nothing is judged by two snapshots."""
        keys = self._lanes.loads()
        if keys:
            group.create_task(self._load(keys))
        if self._is_sweeping:
            return
        for rank in range(RANKS):
            if now >= self._not_before[rank] and self._lanes.is_hungry(rank, now):
                self._is_sweeping = True
                group.create_task(self._sweep(rank))
                return

    def next_at(self, now: float) -> float | None:
        """When to look again after a pause, for who has just called `read` with the same `now`."""
        if self._is_sweeping:
            return None
        later = [at for rank, at in enumerate(self._not_before) if at > now and self._lanes.may_be_beyond(rank)]
        return min(later) if later else None

    async def _load(self, keys: Sequence[LaneKey]) -> None:
        try:
            found = await self._store.fronts(self._bot_id, keys, letters=self._letters)
        except StoreUnavailable:
            await asyncio.sleep(PAUSE_S)
            self._lanes.load_failed(keys)
        else:
            for key in keys:
                front = found[key]
                self._lanes.loaded(key, front.letters, more=front.more)
        self._ring()

    async def _sweep(self, rank: int) -> None:
        after = self._cursors[rank]
        self._lanes.sweep_begins()
        try:
            room = self._lanes.sweep_room(rank)
            letters = self._lanes.sweep_letters(rank)
            found = await self._store.sweep(self._bot_id, rank, after, lanes=room, letters=letters)
        except StoreUnavailable:
            self._not_before[rank] = self._clock.mono() + PAUSE_S
        else:
            fronts = {key: (front.letters, front.more) for key, front in found.lanes.items()}
            is_whole = after is None and found.last is None
            added = self._lanes.swept(rank, fronts, is_whole=is_whole)
            self._cursors[rank] = found.last
            self._found_nothing[rank] = added == 0 and (self._found_nothing[rank] or after is None)
            if found.last is None and self._found_nothing[rank]:
                # Once around and nothing that is not here already: all of it waits for its own time.
                self._not_before[rank] = self._clock.mono() + PAUSE_S
        finally:
            self._is_sweeping = False
        self._ring()


# Letters that refer to other letters: what to put where a message id is due, or why it cannot be put there.


class Parked(msgspec.Struct, frozen=True):
    """The other letter has not been sent yet."""

    letter_id: int


class Orphaned(msgspec.Struct, frozen=True):
    """The other letter will never have a message id."""

    reason: str


async def resolve(letter: Letter, store: Store) -> Letter | Parked | Orphaned:
    """The letter with message ids filled in, if all that it refers to has arrived."""
    ids: dict[LetterReference, int] = {}
    for reference in references_in(letter.params):
        found = await _message_of(reference, store)
        if not isinstance(found, int):
            return found
        for other in await store.letters(reference.after) if reference.after else ():
            if not other.state.is_final:
                return Parked(other.id)
        ids[reference] = found
    return msgspec.structs.replace(letter, params=fill_references(letter.params, ids), awaits=None)


async def _message_of(reference: LetterReference, store: Store) -> int | Parked | Orphaned:
    """A bot that was told a provisional id hears of a message that never was from Telegram: it is asked for under that id."""
    other = await store.letter(reference.letter_id)
    while (
        other is not None and other.state is State.COMPLETED and other.result is None and other.merged_into is not None
    ):
        # It completed when a newer edit took its place, as it once was: that one has the answer.
        other = await store.letter(other.merged_into)
    if other is None:
        reason = f"it refers to letter {reference.letter_id}, which is not here any more"
        return reference.message_id or Orphaned(reason)
    if not other.state.is_final:
        return Parked(other.id)
    if is_unknown(other):
        return Orphaned(UNKNOWN if reference.message_id else f"it refers to letter {other.id}, {_NOT_KNOWN}")
    if other.state is not State.COMPLETED:
        reason = f"it refers to letter {other.id}, which was not sent ({other.failed_reason or other.state})"
        return reference.message_id or Orphaned(reason)
    made = made_in(other.result)
    if reference.item < len(made):
        return made[reference.item].message_id
    return reference.message_id or Orphaned(f"it refers to letter {other.id}, whose answer has no message id")


_NOT_KNOWN = "of which nobody knows whether it arrived, or as what"
UNKNOWN = f"Bad Request: it names a message {_NOT_KNOWN}: that is uncertain"  # in the form of Telegram's refusals


def is_unknown(view: LetterView) -> bool:
    """Whether a letter has ended, may have arrived, and left no message id."""
    if view.state is State.FAILED:
        return view.failed_reason == UNCERTAIN or view.uncertain_tries > 0
    return view.state is State.COMPLETED and view.result is None and view.merged_into is None


# Why a letter is still waiting, as a sentence. Asked by people; it reads what the sender knows and changes nothing.


def why(
    view: LetterView,
    *,
    bot: BotRecord,
    chats: ChatBook,
    pace: Pace,
    route_why: str | None,
    head: int | None,
    now: float,
    at_ms: int,
) -> str:
    """The first thing that keeps this letter from being sent, from the widest to the narrowest."""
    if view.state is State.ACTIVE:
        return "It is being sent right now; Telegram has not answered yet."
    if bot.paused:
        return f"Its bot is paused: {bot.paused}."
    if route_why is not None:
        return f"Telegram cannot be reached ({route_why}); it goes out as soon as Telegram is back."
    if pace.bot_held_until > now:
        return f"Telegram asked the whole bot to wait; {_for(pace.bot_held_until - now)} are left."
    return _of_itself(view, at_ms) or _of_its_chat(view, chats, pace, head, now, at_ms)


def _of_itself(view: LetterView, at_ms: int) -> str | None:
    if view.state is not State.DELAYED:
        return None
    if view.merged_into is not None:
        return f"A newer edit took its place: it ends as letter {view.merged_into} ends."
    if view.due_at_ms is None:
        return "It refers to another letter that has not been sent yet."
    left = _for((view.due_at_ms - at_ms) / 1000)
    if view.attempts_made > 0 or view.uncertain_tries:
        return f"Its last try did not succeed; the next one is in {left}."
    return f"It is scheduled; it joins its lane in {left}."


def _of_its_chat(view: LetterView, chats: ChatBook, pace: Pace, head: int | None, now: float, at_ms: int) -> str:
    if chats.is_moving(view.chat):
        return "Its chat has got another id; its letters are being re-addressed."
    if chats.is_shut(view.chat, at_ms):
        return "Its chat cannot be reached; it will fail in a moment."
    held_until = pace.chat_held_until(view.chat)
    if held_until > now:
        return f"Its chat is held, by Telegram or by hand; {_for(held_until - now)} are left."
    if head is not None and head != view.id:
        return f"Letter {head} goes before it in the same lane."
    ready_at = pace.chat_ready_at(view.chat, now, is_edit=is_edit(view.method))
    if ready_at > now:
        return f"The pace of its chat lets it go in {_for(ready_at - now)}."
    return "It is next in its lane; the bot's own pace or its places in flight let it go in a moment."


def _for(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 0.0):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
