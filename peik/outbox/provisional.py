"""Provisional message ids: given to bots for messages that Telegram has not taken yet, and understood in all that comes later.

They are documents, so that they hold over restarts and on every node. What Telegram made of such a message is looked up when it
is asked for, and written down for as long as the message log is kept. A bot that was never given one pays nothing.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

import msgspec

from peik.clock import Clock
from peik.core.arrival import Arrival
from peik.core.call import DROPPED, LetterReference, MessageRole, opened, read_call, references_in, replaced
from peik.core.documents import DocumentStore, Filing
from peik.core.letter import Chat, LetterCall, State
from peik.core.methods import classify
from peik.core.provisional import (
    Place,
    edited,
    id_of,
    made_in,
    may_do_without,
    may_name_one,
    places_in,
    provisional_ids,
    provisional_in,
    retold,
    serial_of,
    wanted_of,
    was_never_tried,
    with_chats,
    with_room,
)
from peik.errors import BadInput, Conflict, InDoubt, NotFound, StoreUnavailable
from peik.outbox.store import AcceptedLetter, Did, LetterView, Store
from peik.outbox.window import UNKNOWN, is_unknown

PREFIX = "provisional:"
_IDS, _OF_LETTERS, _MESSAGES, _OPEN = (f"{PREFIX}{what}:" for what in ("ids", "letters", "messages", "open"))
_NEXT = f"{PREFIX}next"
RESERVED = 256  # ids that a process takes at once: what it has not given when it ends is skipped
LOOK_S = 1.0  # how long it takes until a node knows that another has given a bot its first
PAGE = 500
USERS_MAX = 20  # of one message, the newest
TRIES = 5  # when somebody else changes the same at the same moment


# What takes a message as it is, and what changes or removes it.
_COPYING = ("forward", "copy")
_CHANGING = ("edit", "delete", "stop")
_FOLLOWING = ("edit", *_COPYING)


class _Block(msgspec.Struct, frozen=True):
    """The ids of one letter, which follow one another. Kept under the serial number of the first. Chats are texts: numbers of
    documents are counts to whoever forgets a person."""

    letter: int
    count: int
    chat: str
    at: int
    messages: list[int] | None = None  # as Telegram made them
    home: str | None = None  # the chat in which they are
    is_named: bool = False  # some call waits for them: they must be sent, also if they are deleted afterwards
    is_followed: bool = False  # an edit or a copy waits for them: a newer edit must not come before it
    copies: list[int] = []  # letters that forward or copy them: what changes them later comes after those,
    changes: list[int] = []  # and letters that change them before what copies them later

    def before(self, method: str) -> list[int]:
        """The letters that a call has to come after."""
        if method.startswith(_COPYING):
            return self.changes
        return self.copies if method.startswith(_CHANGING) else []

    def used(self, method: str, letter_id: int) -> "_Block":
        if method.startswith(_COPYING):
            return msgspec.structs.replace(self, copies=[*self.copies, letter_id][-USERS_MAX:])
        return msgspec.structs.replace(self, changes=[*self.changes, letter_id][-USERS_MAX:])


class _Told(msgspec.Struct, frozen=True):
    """What a message of Telegram's is called here."""

    chat: str
    id: int


class _Opened(msgspec.Struct, frozen=True):
    """A block whose messages are not known yet."""

    chat: str
    letter: int
    serial: int


class ToldMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What stands behind a provisional id."""

    serial: int
    block: _Block
    item: int
    message_id: int

    @property
    def real_id(self) -> int | None:
        messages = self.block.messages
        return None if messages is None or self.item >= len(messages) else messages[self.item]


_decode_block = msgspec.json.Decoder(_Block).decode
_decode_told = msgspec.json.Decoder(_Told).decode
_decode_opened = msgspec.json.Decoder(_Opened).decode
_decode_object = msgspec.json.Decoder(dict[str, object]).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


Cancel = Callable[
    [int], Awaitable[LetterView]
]  # a letter of which no try can have arrived; raises Conflict if one may have


def as_named(bot_id: int, chat: Chat) -> Chat:
    """Where nobody knows of chats that moved."""
    return chat


class ProvisionalIds:
    def __init__(
        self,
        *,
        store: Store,
        documents: DocumentStore,
        clock: Clock,
        is_on: bool = True,
        same_chat: Callable[[int, Chat], Chat] = as_named,
    ) -> None:
        """`same_chat`: the last key of a chat of a bot."""
        self._store = store
        self._documents = documents
        self._clock = clock
        self._is_on = is_on
        self._same_chat = same_chat
        self._reserved: dict[int, tuple[int, int]] = {}  # by bot: the next serial, and the end of those taken
        self._reserving: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._bots: set[int] = set()  # that were given any
        self._open: set[int] = set()  # of those some that nobody has looked up yet
        self._fresh: set[int] = set()  # given here since the last look began
        self._look_at = float("-inf")
        self._looking = asyncio.Lock()
        self._changing: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()  # by letter

    # ---- giving ----

    async def give(self, view: LetterView, count: int) -> tuple[LetterView, int | None]:
        """The first of `count` ids for what a letter makes, which follow one another; the same whenever it is asked. None: it is
        not to be, or the store takes none. And the letter as it stands after that: it may have ended meanwhile."""
        if not self._is_on:
            return view, None
        try:
            first = await self._given(view, count)
        except (StoreUnavailable, InDoubt, Conflict):
            return view, None  # the letter is accepted: its bot hears so, as it would without this
        return await self._store.letter(view.id) or view, first

    async def _given(self, view: LetterView, count: int) -> int:
        for _ in range(TRIES):
            known = await self._serial_of(view)
            if known is not None:
                return id_of(known)
            serial = await self._take(view.bot_id, count)
            block = _Block(letter=view.id, count=count, chat=str(view.chat), at=self._clock.wall_ms())
            waiting = _Opened(chat=str(view.chat), letter=view.id, serial=serial)
            for bots in (self._bots, self._open, self._fresh):
                bots.add(view.bot_id)
            with contextlib.suppress(Conflict):  # somebody else has given it some just now
                await self._documents.file(
                    [
                        _filing(_IDS, view.bot_id, _serial_key(serial), block, version=0),
                        _filing(_OF_LETTERS, view.bot_id, str(view.id), serial, version=0),
                        _filing(_OPEN, view.bot_id, _open_key(waiting.chat, view.id), waiting),
                    ]
                )
                return id_of(serial)
        raise Conflict(code="paper_changed", detail="Too many give this letter its id at once.")

    async def _take(self, bot_id: int, count: int) -> int:
        async with self._reserving[bot_id]:
            serial, end = self._reserved.get(bot_id, (0, 0))
            serial = with_room(serial, count)
            if serial + count > end:
                serial, end = await self._reserve(bot_id, count)
            self._reserved[bot_id] = (serial + count, end)
            return serial

    async def _reserve(self, bot_id: int, count: int) -> tuple[int, int]:
        for _ in range(TRIES):
            known = await self._documents.document(_NEXT, str(bot_id))
            serial = with_room(0 if known is None else int(known.body), count)
            end = serial + max(RESERVED, count)
            version = 0 if known is None else known.version
            with contextlib.suppress(Conflict):
                await self._documents.file([Filing(collection=_NEXT, key=str(bot_id), body=str(end), version=version)])
                return serial, end
        raise Conflict(code="paper_changed", detail="Too many take ids of this bot at once.")

    async def _serial_of(self, view: LetterView) -> int | None:
        found = await self._documents.document(f"{_OF_LETTERS}{view.bot_id}", str(view.id))
        return None if found is None else int(found.body)

    async def ids_of(self, view: LetterView) -> list[int]:
        """The ids that a bot was told for what a letter makes."""
        if not await self.has(view.bot_id):
            return []
        serial = await self._serial_of(view)
        block = None if serial is None else await self._block(view.bot_id, serial)
        return [] if serial is None or block is None else [id_of(serial + item) for item in range(block.count)]

    # ---- looking up ----

    async def has(self, bot_id: int) -> bool:
        """Whether a bot was ever given one. What another node gave is known a second later. Raises StoreUnavailable if nobody
        could ever look."""
        if self._look_at == float("-inf"):
            async with self._looking:  # until it is known for the first time, everybody waits for that
                if self._look_at == float("-inf"):
                    await self._look()
        elif self._clock.mono() >= self._look_at:
            self._look_at = self._clock.mono() + LOOK_S
            with contextlib.suppress(StoreUnavailable):
                await self._look()
        return bot_id in self._bots

    async def _look(self) -> None:
        self._fresh = set()
        names = await self._documents.collections(PREFIX)
        self._bots = _bots_in(names, _IDS) | self._fresh
        self._open = _bots_in(names, _OPEN) | self._fresh
        self._look_at = self._clock.mono() + LOOK_S

    async def _block(self, bot_id: int, serial: int) -> _Block | None:
        found = await self._documents.document(f"{_IDS}{bot_id}", _serial_key(serial))
        return None if found is None else _decode_block(found.body)

    async def told(self, bot_id: int, message_id: int) -> ToldMessage | None:
        """What stands behind an id. None: it was never given, or so long ago that nobody knows."""
        following = await self._documents.document(_NEXT, str(bot_id))
        if following is None:
            return None
        serial = serial_of(message_id, newest=int(following.body) - 1)
        # Ids begin anew some day, and those that are reserved and not given yet had another meaning before.
        for one in (serial, serial - 2**31 + 2_000_000_000):
            if one >= 0 and (found := await self._holding(bot_id, one)) is not None:
                first, block = found
                return ToldMessage(serial=first, block=block, item=one - first, message_id=message_id)
        return None

    async def _holding(self, bot_id: int, serial: int) -> tuple[int, _Block] | None:
        below = await self._documents.documents(
            f"{_IDS}{bot_id}", after=_serial_key(serial + 1), limit=1, is_backwards=True
        )
        if not below:
            return None
        first, block = int(below[0].key), _decode_block(below[0].body)
        return (first, block) if serial < first + block.count else None

    async def _close(self, bot_id: int, serial: int, block: _Block, view: LetterView) -> _Block:
        """Write down what Telegram made. Whoever does it writes the same."""
        made = made_in(view.result)
        home = next((one.chat.id for one in made if one.chat is not None), None)
        if home is None and isinstance(view.chat, int):
            home = view.chat
        known = msgspec.structs.replace(
            block, messages=[one.message_id for one in made[: block.count]], home=None if home is None else str(home)
        )
        filings = [
            _filing(_IDS, bot_id, _serial_key(serial), known),
            Filing(collection=f"{_OPEN}{bot_id}", key=_open_key(block.chat, block.letter), body=None),
        ]
        if home is not None:
            filings += [
                _filing(_MESSAGES, bot_id, _place_key((home, one)), _Told(chat=str(home), id=id_of(serial + item)))
                for item, one in enumerate(known.messages or ())
            ]
        await self._documents.file(filings)
        return known

    # ---- what Telegram tells, as the bot was told it ----

    async def arrivals(self, bot_id: int, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Updates with the ids that their bot was told."""
        if not arrivals or not await self.has(bot_id):
            return list(arrivals)
        read = {one.id: value for one in arrivals if (value := _opened_update(one.payload)) is not None}
        told = await self._names(bot_id, {place for value in read.values() for place in places_in(value)})
        if not told:
            return list(arrivals)
        return [
            msgspec.structs.replace(one, payload=_encode(anew).decode())
            if one.id in read and (anew := retold(read[one.id], told)) != read[one.id]
            else one
            for one in arrivals
        ]

    async def result(self, bot_id: int, result: bytes) -> bytes:
        """A result of Telegram's in the same way."""
        if b'"message_id' not in result or not await self.has(bot_id):
            return result
        value = _decode_any(result)
        told = await self._names(bot_id, set(places_in(value)))
        return _encode(retold(value, told)) if told else result

    async def _names(self, bot_id: int, places: set[Place]) -> dict[Place, int]:
        if not places:
            return {}
        if bot_id in self._open:
            for chat in sorted({chat for chat, _ in places}):
                await self._look_up_open(bot_id, after=f"{chat}:", until=f"{chat};")
            await self._look_up_open(bot_id, after="@", until="A")  # chats by name: their numbers are known from now on
        keys = {_place_key(place): place for place in places}
        found = await self._documents.those(f"{_MESSAGES}{bot_id}", sorted(keys))
        return {keys[key]: _decode_told(one.body).id for key, one in found.items()}

    async def _look_up_open(self, bot_id: int, *, after: str | None, until: str | None) -> None:
        collection = f"{_OPEN}{bot_id}"
        while page := await self._documents.documents(collection, after=after, until=until, limit=PAGE):
            after = page[-1].key
            waiting = [_decode_opened(one.body) for one in page]
            views = {view.id: view for view in await self._store.letters([one.letter for one in waiting])}
            for one in waiting:
                await self._look_up(bot_id, one, views.get(one.letter))
            if len(page) < PAGE:
                return

    async def _look_up(self, bot_id: int, waiting: _Opened, view: LetterView | None) -> None:
        if view is not None and view.state is State.COMPLETED and view.result is not None:
            block = await self._block(bot_id, waiting.serial)
            if block is not None:
                await self._close(bot_id, waiting.serial, block, view)
                return
        elif view is not None and view.state is not State.CANCELLED:
            return  # it waits, or it is dead and may be sent again
        key = _open_key(waiting.chat, waiting.letter)
        await self._documents.file([Filing(collection=f"{_OPEN}{bot_id}", key=key, body=None)])

    # ---- calls that name one ----

    async def apply(self, call: LetterCall, bot_id: int, *, cancel: Cancel | None) -> LetterCall | AcceptedLetter:
        """A call with real ids, or with references to the letters that it has to wait for. With `cancel`, an edit or a deletion
        of what was never tried is done at once; the letter tells how it stands. Raises BadInput in Telegram's own words for
        a message that will never be there."""
        try:
            given = _decode_object(call.params)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return call  # it is refused where it is read
        method, _ = classify(call.method)
        named = provisional_ids(given)
        told = {one: await self.told(bot_id, one) for one in named}
        given = with_chats(method, given, {one: known.block.chat for one, known in told.items() if known is not None})
        asked = _Asked(call=call, bot_id=bot_id, method=method, given=given, cancel=cancel if _may_act(call) else None)
        done: AcceptedLetter | None = None
        put: dict[int, object] = {}
        cancelled: set[int] = set()
        for message_id, role in named.items():
            known = told[message_id]
            if known is None:
                continue
            if known.block.letter in cancelled:
                put[message_id] = DROPPED
                continue
            is_whole = _is_whole(known, told.values())
            found = await self._standing(asked, known, role, is_whole=is_whole)
            if isinstance(found, AcceptedLetter):
                done = found
                if role is not MessageRole.ONE_OF_MANY:
                    return done
                cancelled.add(known.block.letter)
                found = DROPPED
            put[message_id] = found
        if not put:
            return call

        def anew(value: object) -> object:
            message_id = provisional_in(value)
            return value if message_id is None else put.get(message_id, value)

        params = replaced(given, anew)
        if DROPPED in put.values() and not opened(params["message_ids"]):
            if method != "deleteMessages":
                raise _missing(method, MessageRole.ONE_OF_MANY)
            # As at Telegram, where nothing is left to be deleted.
            gone = next(one for one in told.values() if one is not None)
            return done or AcceptedLetter(letter_id=gone.block.letter, state=State.CANCELLED, did=Did.DELETE)
        return msgspec.structs.replace(call, params=_encode(params))

    async def _standing(self, asked: "_Asked", known: ToldMessage, role: MessageRole, *, is_whole: bool) -> object:
        """What to put for an id: the real one, a reference, the id itself if Telegram may say that it is missing; DROPPED; or an
        AcceptedLetter, if there is nothing left to do."""
        if self._is_elsewhere(asked, known, role):
            return self._gone(asked, role, known.message_id)
        # One after the other, so that of many edits at once all are done, and the last one counts.
        turn = self._changing.setdefault(known.block.letter, asyncio.Lock())
        async with turn:
            return await self._put(asked, known, role, is_whole=is_whole)

    async def _put(self, asked: "_Asked", known: ToldMessage, role: MessageRole, *, is_whole: bool) -> object:
        for turn in range(TRIES):
            known, view = await self._as_it_stands(asked.bot_id, known)
            if known.real_id is not None:
                return known.real_id
            if view is None or view.state.is_final:
                return self._ended(asked, view, role, known.message_id)
            try:
                done = await self._act(asked, known, view, role, is_whole=is_whole)
            except NotFound:
                continue
            except Conflict as conflict:
                if conflict.code == "already_ended" or (conflict.code == "changed" and turn < TRIES - 1):
                    continue
                done = None  # it is in flight, was tried just now, or other nodes change it again and again: it waits
            if done is not None:
                return done
            if not asked.is_deletion:
                await self._note(asked.bot_id, known.serial, _named(is_followed=asked.method.startswith(_FOLLOWING)))
            reference = LetterReference(letter_id=view.id, item=known.item, message_id=known.message_id)
            if before := known.block.before(asked.method):
                waiting = tuple(one.id for one in await self._store.letters(before) if not one.state.is_final)
                reference = msgspec.structs.replace(reference, after=waiting)
            return reference.written()
        raise Conflict(code="changed", detail=f"Letter {known.block.letter} is being changed by others. Try again.")

    async def _note(self, bot_id: int, serial: int, change: Callable[[_Block], _Block]) -> None:
        """A call waits. Never over what somebody else writes down at this moment: that is worth more."""
        for _ in range(TRIES):
            key = _serial_key(serial)
            found = await self._documents.document(f"{_IDS}{bot_id}", key)
            if found is None:
                return
            block = _decode_block(found.body)
            after = change(block)
            if after == block:
                return
            with contextlib.suppress(Conflict):
                await self._documents.file([_filing(_IDS, bot_id, key, after, version=found.version)])
                return

    async def accepted(self, call: LetterCall, bot_id: int, letter_id: int) -> None:
        """A call that `apply` gave is a letter now. What copies a message and what changes it go in the order in which they were
        asked for, though in different lanes: a copy shows what stood there then."""
        method, _ = classify(call.method)
        if not method.startswith((*_COPYING, *_CHANGING)):
            return
        with contextlib.suppress(StoreUnavailable, InDoubt):  # it is accepted all the same
            for reference in references_in(call.params.decode()):
                known = None if reference.message_id is None else await self.told(bot_id, reference.message_id)
                if known is not None:
                    await self._note(bot_id, known.serial, lambda one: one.used(method, letter_id))

    def _is_elsewhere(self, asked: "_Asked", known: ToldMessage, role: MessageRole) -> bool:
        """Whether the call looks for the message in another chat. Of chats by name nobody knows."""
        chat = _number(_chat_asked(asked.method, asked.given, role))
        if chat is None:
            return False
        ours = (_number(one) for one in (known.block.home, known.block.chat))
        numbers = {self._same_chat(asked.bot_id, one) for one in ours if one is not None}
        return bool(numbers) and self._same_chat(asked.bot_id, chat) not in numbers

    async def _as_it_stands(self, bot_id: int, known: ToldMessage) -> tuple[ToldMessage, LetterView | None]:
        """With what Telegram made of it, if that is known by now; else with the letter, if that is still here."""
        if known.block.messages is None and (block := await self._block(bot_id, known.serial)) is not None:
            known = msgspec.structs.replace(known, block=block)  # others may have begun to wait for it meanwhile
        if known.block.messages is not None:
            return known, None
        view = await self._store.letter(known.block.letter)
        if view is None or view.state is not State.COMPLETED or view.result is None:
            return known, view
        block = await self._close(bot_id, known.serial, known.block, view)
        return msgspec.structs.replace(known, block=block), view

    def _ended(self, asked: "_Asked", view: LetterView | None, role: MessageRole, message_id: int) -> object:
        """What to put for a message that will never be there."""
        if view is not None and is_unknown(view):
            raise BadInput(code="message_uncertain", detail=UNKNOWN.removeprefix("Bad Request: "))
        is_repeat = asked.is_deletion and asked.call.idempotency_key is not None
        if is_repeat and view is not None and view.state is State.CANCELLED:
            return AcceptedLetter(
                letter_id=view.id, state=view.state, did=Did.DELETE
            )  # by the first call under the key
        return self._gone(asked, role, message_id)

    async def _act(
        self, asked: "_Asked", known: ToldMessage, view: LetterView, role: MessageRole, *, is_whole: bool
    ) -> AcceptedLetter | None:
        """Do at once what is asked of a letter that was never tried. None: it has to wait. Raises Conflict if it just was."""
        is_untried = was_never_tried(
            state=view.state, attempts_made=view.attempts_made, uncertain_tries=view.uncertain_tries
        )
        if asked.cancel is None or not is_untried or role is MessageRole.REPLY:
            return None
        if asked.is_deletion and is_whole and not known.block.is_named:
            after = await asked.cancel(view.id)
            return AcceptedLetter(letter_id=view.id, state=after.state, did=Did.DELETE)
        if role is MessageRole.TARGET and not known.block.is_followed:
            params = edited(view.method, view.params, edit=asked.method, given=asked.given, item=known.item)
            if params is not None:
                read_call(view.method, params.encode())  # what is refused at the door is refused here
                await self._store.revise(view.id, params=params, seen=view.attempts_made, at_ms=self._clock.wall_ms())
                return AcceptedLetter(letter_id=view.id, state=view.state, did=Did.EDIT, item=known.item)
        return None

    def _gone(self, asked: "_Asked", role: MessageRole, message_id: int) -> object:
        if role is MessageRole.ONE_OF_MANY:
            return DROPPED  # as Telegram passes over what is not there
        if role is MessageRole.REPLY and may_do_without(asked.given):
            return message_id
        raise _missing(asked.method, role)

    async def translated(self, bot_id: int, method: str, params: bytes, *, timeout_s: float) -> bytes:
        """The parameters of a call that goes straight through, with real ids: it waits for them so long, and goes on without."""
        if not may_name_one(params):
            return params
        deadline = self._clock.mono() + timeout_s
        call = LetterCall(method=method, params=params)
        while True:
            found = await self.apply(call, bot_id, cancel=None)
            assert isinstance(found, LetterCall)
            if b'"letter"' not in found.params:
                return found.params
            if self._clock.mono() >= deadline:
                return params  # Telegram says that it is not there
            await asyncio.sleep(min(LOOK_S, timeout_s))

    # ---- upkeep ----

    async def tidy(self, *, before_ms: int) -> None:
        """Look up what has ended, before its letters leave for the log; forget what was given before that instant."""
        names = await self._documents.collections(PREFIX)
        for bot_id in sorted(_bots_in(names, _OPEN)):
            await self._look_up_open(bot_id, after=None, until=None)
        for bot_id in sorted(_bots_in(names, _IDS)):
            await self._forget(bot_id, before_ms)

    async def _forget(self, bot_id: int, before_ms: int) -> None:
        while page := await self._documents.documents(f"{_IDS}{bot_id}", limit=PAGE):
            filings: list[Filing] = []
            for document in page:
                block = _decode_block(document.body)
                if block.at >= before_ms:
                    break
                places = [(int(block.home), one) for one in block.messages or () if block.home is not None]
                gone = [
                    (_IDS, document.key),
                    (_OF_LETTERS, str(block.letter)),
                    (_OPEN, _open_key(block.chat, block.letter)),
                    *((_MESSAGES, _place_key(place)) for place in places),
                ]
                filings += [Filing(collection=f"{start}{bot_id}", key=key, body=None) for start, key in gone]
            if not filings:
                return
            for start in range(0, len(filings), PAGE):
                await self._documents.file(filings[start : start + PAGE])


def _named(*, is_followed: bool) -> Callable[[_Block], _Block]:
    return lambda one: msgspec.structs.replace(one, is_named=True, is_followed=one.is_followed or is_followed)


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A call while it is put into what it comes to."""

    call: LetterCall
    bot_id: int
    method: str
    given: dict[str, object]
    cancel: Cancel | None

    @property
    def is_deletion(self) -> bool:
        return self.method in ("deleteMessage", "deleteMessages")


def _may_act(call: LetterCall) -> bool:
    """Whether nobody waits for a letter of this very call: for its time, or to be told of its end."""
    return call.send_at_ms is None and call.expires_at_ms is None and call.hook is None and not call.enclosed


def _is_whole(known: ToldMessage, told: Iterable[ToldMessage | None]) -> bool:
    """Whether a call names everything that a letter makes."""
    items = {one.item for one in told if one is not None and one.block.letter == known.block.letter}
    return len(items) == known.block.count


def _chat_asked(method: str, given: Mapping[str, object], role: MessageRole) -> object:
    if role is MessageRole.REPLY:
        reply = opened(given.get("reply_parameters"))
        if isinstance(reply, dict) and reply.get("chat_id") is not None:
            return reply["chat_id"]
    elif method.startswith(("forward", "copy")):
        return given.get("from_chat_id")
    return given.get("chat_id")


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.removeprefix("-").isdigit() and value.isascii():
        return int(value)
    return value if isinstance(value, int) else None


def _missing(method: str, role: MessageRole) -> BadInput:
    return BadInput(code="message_not_found", detail=f"{wanted_of(method, role)} not found")


def _opened_update(payload: str) -> Any:
    """An update that tells of messages. What is nested without end came from nobody who knows of ours."""
    if '"message_id' not in payload:
        return None
    try:
        value = _decode_any(payload)
        list(places_in(value))
    except (msgspec.DecodeError, RecursionError):
        return None
    return value


def _filing(start: str, bot_id: int, key: str, body: Any, *, version: int | None = None) -> Filing:
    return Filing(collection=f"{start}{bot_id}", key=key, body=_encode(body).decode(), version=version)


def _serial_key(serial: int) -> str:
    return f"{serial:016d}"


def _open_key(chat: str, letter_id: int) -> str:
    return f"{quote(chat, safe='@:-')[:150]}:{letter_id}"


def _place_key(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _bots_in(names: Iterable[str], start: str) -> set[int]:
    return {int(name.removeprefix(start)) for name in names if name.startswith(start)}
