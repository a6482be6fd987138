"""Hands letters of a broadcast over to the outbox, a batch at a time: note which, accept them, write down that it is done.

If the process dies after the note, the same batch is accepted again under the same keys, which accepts nothing twice. If it
was halted meanwhile, its keys are taken all the same, by letters that cannot leave before they are taken back: whoever noted it
may be frozen, or its commit still on its way, and must find nothing left to accept. Keys are kept for 48 hours; after 40 the
letters are looked for instead.
"""

import html
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from peik.broadcasts.model import (
    Broadcast,
    BroadcastLettersPort,
    DispatchBatch,
    LedgerEntry,
    Open,
    OutgoingBroadcast,
    Phase,
    PhaseStep,
    Recipient,
    RecipientCounts,
    RecipientState,
)
from peik.broadcasts.repository import BroadcastRepository, FencedUpdate
from peik.clock import Clock
from peik.core.letter import Chat, Priority
from peik.errors import BadInput, Conflict, NotFound, Problem

# What each recipient is sent: the call of the broadcast with its chat, and {placeholders} filled in.


FILLED = ("text", "caption")
CONTACT_COLUMNS = ("name", "username", "language")
DELETED_AT_ONCE = 100  # by one deleteMessages
_PLACEHOLDER = re.compile(r"\{(\{)?([A-Za-z_][A-Za-z0-9_]*)\}(?(1)\})")  # {{name}} is {name}, plainly
_MARKDOWN = re.compile(r"([_*`\[])")
_MARKDOWN_V2 = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")


def label_of(broadcast_id: str) -> str:
    """The message_type of its letters."""
    return f"broadcast:{broadcast_id}"


def recall_label_of(broadcast: Broadcast) -> str:
    return f"{label_of(broadcast.id)}{_recall(broadcast)}"


def _recall(broadcast: Broadcast) -> str:
    """What tells letters of one recall from those of another: a letter of an earlier one is no letter of this."""
    return f":recall{broadcast.recalls or ''}"


def letter_to(broadcast: Broadcast, entry: LedgerEntry, recipient: Recipient) -> OutgoingBroadcast:
    """The same for the same turn, whenever it is made: a repeat under its key must be the same call."""
    return OutgoingBroadcast(
        method=broadcast.method,
        params=params_for(broadcast, recipient.chat, recipient.values),
        key=_key(broadcast.id, entry, ""),
        label=label_of(broadcast.id),
        number=entry.number,
        round=entry.round,
        priority=Priority.BULK,
        on_uncertain=broadcast.on_uncertain,
    )


def preview_of(broadcast: Broadcast, chat: Chat, recipient: Recipient | None) -> OutgoingBroadcast:
    values = None if recipient is None else recipient.values
    return OutgoingBroadcast(
        method=broadcast.method, params=params_for(broadcast, chat, values), priority=Priority.HIGH
    )


def deletion_of(broadcast: Broadcast, entry: LedgerEntry, recipient: Recipient) -> OutgoingBroadcast:
    """The letter that takes its messages back."""
    ids = recipient.messages[:DELETED_AT_ONCE]
    method, what = (
        ("deleteMessage", {"message_id": ids[0]}) if len(ids) == 1 else ("deleteMessages", {"message_ids": ids})
    )
    return OutgoingBroadcast(
        method=method,
        params=msgspec.json.encode({"chat_id": recipient.chat, **what}),
        key=_key(broadcast.id, entry, _recall(broadcast)),
        label=recall_label_of(broadcast),
        number=entry.number,
        round=entry.round,
        priority=Priority.BULK,
    )


def _key(broadcast_id: str, entry: LedgerEntry, what: str) -> str:
    return f"peik-broadcast:{broadcast_id}:{entry.number}{what}" + (f":{entry.round}" if entry.round else "")


def params_for(broadcast: Broadcast, chat: Chat, values: Mapping[str, str] | None) -> bytes:
    params = msgspec.json.decode(broadcast.params, type=dict[str, object])
    params["chat_id"] = chat
    if broadcast.paid is not None:
        params["allow_paid_broadcast"] = True
    escaped = _escape(params.get("parse_mode"))
    for name in FILLED:
        text = params.get(name)
        if isinstance(text, str):
            params[name] = _filled(text, values or {}, escaped)
    return msgspec.json.encode(params)


def _filled(text: str, values: Mapping[str, str], escaped: Callable[[str], str]) -> str:
    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:-1]
        value = values.get(found[2])
        return found[0] if value is None else escaped(value)

    return _PLACEHOLDER.sub(fill, text)


def _escape(parse_mode: object) -> Callable[[str], str]:
    """A value is text, whatever is in it: somebody's name must not break the markup."""
    match str(parse_mode or "").lower():
        case "html":
            return lambda text: html.escape(text, quote=True)
        case "markdownv2":
            return lambda text: _MARKDOWN_V2.sub(r"\\\1", text)
        case "markdown":
            return lambda text: _MARKDOWN.sub(r"\\\1", text)
        case _:
            return lambda text: text


def check_placeholders(params: Mapping[str, object], columns: Sequence[str]) -> None:
    """Raises BadInput for one that no column fills: it would be sent as it stands, to everybody."""
    known = f"there is no such column. There are: {', '.join(columns)}" if columns else "there are no columns"
    for name in FILLED:
        text = params.get(name)
        for is_plain, found in _PLACEHOLDER.findall(text) if isinstance(text, str) else ():
            if not is_plain and found not in columns:
                raise BadInput(
                    code="unknown_placeholder",
                    detail=f"{name} has {{{found}}}, and {known}. If it is meant as it stands, write {{{{{found}}}}}.",
                )


KEYS_SURE_MS = 40 * 3_600_000
PARKED_MS = 30 * 86_400_000  # so late is the time of a letter that is accepted to be taken back
LOOK_MORE = 50  # letters of other batches that may have come after a batch
WORDS_MAX = 500


class _Labels(msgspec.Struct):
    user_id: str = ""
    round: int = 0


_read_labels = msgspec.json.Decoder(_Labels).decode


class BroadcastDispatch:
    def __init__(
        self, *, book: BroadcastRepository, pen: FencedUpdate, letters: BroadcastLettersPort, clock: Clock
    ) -> None:
        self._book = book
        self._pen = pen
        self._letters = letters
        self._clock = clock

    async def hand(self, seen: Broadcast, entries: Sequence[LedgerEntry], *, next_number: int) -> Broadcast:
        """A new batch. Raises Overtaken."""
        batch = DispatchBatch(entries=tuple(entries), next=next_number, at_ms=self._clock.wall_ms())
        noted = await self._pen.write(seen, lambda old: replace(old, batch=batch))
        return await self.finish(noted)

    async def finish(self, seen: Broadcast) -> Broadcast:
        """What was noted is done, now or by somebody who died after it. Raises Overtaken."""
        batch = seen.batch
        if batch is None:
            return seen
        rows = await self._book.those(seen.id, [entry.number for entry in batch.entries])
        if self._clock.wall_ms() - batch.at_ms < KEYS_SURE_MS:
            return await self._accept(seen, batch, rows)
        return await self._look_for(seen, batch, rows)

    async def _accept(self, seen: Broadcast, batch: DispatchBatch, rows: Mapping[int, Recipient]) -> Broadcast:
        make = deletion_of if seen.recall_next else letter_to
        letters = [make(seen, entry, rows[entry.number]) for entry in batch.entries]
        if not _is_wanted(seen):
            assert seen.is_withdrawing, seen.phase
            send_at_ms = self._clock.wall_ms() + PARKED_MS
            letters = [replace(letter, send_at_ms=send_at_ms) for letter in letters]
        ended: dict[LedgerEntry, str] = {}
        try:
            ids = await self._letters.accept(seen.bot_id, letters)
            taken = dict(zip(batch.entries, ids, strict=True))
        except NotFound as problem:
            return await self._give_up(seen, problem)
        except (BadInput, Conflict):
            taken, ended = await self._accept_each(seen, batch, letters)
        return await self._write_down(seen, batch, rows, taken, ended)

    async def _accept_each(
        self, seen: Broadcast, batch: DispatchBatch, letters: Sequence[OutgoingBroadcast]
    ) -> tuple[dict[LedgerEntry, int], dict[LedgerEntry, str]]:
        """One of them cannot be a letter. The others can."""
        taken: dict[LedgerEntry, int] = {}
        refused: dict[LedgerEntry, str] = {}
        accepted: dict[LedgerEntry, int] | None = None
        for entry, letter in zip(batch.entries, letters, strict=True):
            try:
                (taken[entry],) = await self._letters.accept(seen.bot_id, [letter])
            except BadInput as problem:
                refused[entry] = problem.detail[:WORDS_MAX]
            except Conflict as problem:  # it was accepted, in the words of another version of Peik
                accepted = await self._found(seen, batch) if accepted is None else accepted
                if entry in accepted:
                    taken[entry] = accepted[entry]
                else:
                    refused[entry] = problem.detail[:WORDS_MAX]
        return taken, refused

    async def _give_up(self, seen: Broadcast, problem: Problem) -> Broadcast:
        """There is no such bot any more: nothing of the batch was accepted."""
        was_wanted = _is_wanted(seen)
        seen = await self._pen.write(seen, lambda old: replace(old, batch=None))
        if not was_wanted:
            return seen
        step = PhaseStep.STOP if seen.phase.is_sending else PhaseStep.CANCEL
        return await self._pen.move(seen, step, reason=problem.detail)

    async def _look_for(self, seen: Broadcast, batch: DispatchBatch, rows: Mapping[int, Recipient]) -> Broadcast:
        """Whether the letters were accepted."""
        taken = await self._found(seen, batch)
        if not taken:
            return await self._pen.write(seen, lambda old: replace(old, batch=None))
        return await self._write_down(seen, batch, rows, taken, {})

    async def _found(self, seen: Broadcast, batch: DispatchBatch) -> dict[LedgerEntry, int]:
        """Letters of the batch. They are the newest of this broadcast."""
        label = recall_label_of(seen) if seen.recall_next else label_of(seen.id)
        views = await self._letters.labelled(seen.bot_id, label, limit=len(batch.entries) + LOOK_MORE)
        wanted = set(batch.entries)
        found: dict[LedgerEntry, int] = {}
        for view in views:
            labels = _read_labels(view.metadata or "{}")
            entry = LedgerEntry(int(labels.user_id or 0), labels.round)
            if entry in wanted:
                found.setdefault(entry, view.id)
        return found

    async def _write_down(
        self,
        seen: Broadcast,
        batch: DispatchBatch,
        rows: Mapping[int, Recipient],
        taken: Mapping[LedgerEntry, int],
        refused: Mapping[LedgerEntry, str],
    ) -> Broadcast:
        at_ms = self._clock.wall_ms()
        is_recall = seen.recall_next > 0
        lines = [
            (entry.number, _queued(rows[entry.number], letter_id, is_recall, at_ms))
            for entry, letter_id in taken.items()
        ]
        lines += [(entry.number, _refused(rows[entry.number], why, is_recall, at_ms)) for entry, why in refused.items()]
        opened = tuple(Open(entry.number, entry.round, letter_id) for entry, letter_id in taken.items())
        left = tuple(entry for entry in batch.entries if entry not in taken and entry not in refused)

        def change(old: Broadcast) -> Broadcast:
            new = replace(
                old,
                batch=None,
                open=old.open + opened,
                again=tuple(entry for entry in old.again if entry not in set(batch.entries)) + left,
            )
            if is_recall:
                return replace(new, recall_next=batch.next, unrecalled=old.unrecalled + len(refused))
            counts: RecipientCounts = old.counts.moved(RecipientState.FAILED, len(refused))
            return replace(new, next=batch.next, counts=counts)

        return await self._pen.write(seen, change, lines)


def _is_wanted(seen: Broadcast) -> bool:
    """Whether letters of it may go out now."""
    return seen.phase.is_sending or (seen.phase is Phase.RECALLING and seen.recall_next > 0)


def _queued(row: Recipient, letter_id: int, is_recall: bool, at_ms: int) -> Recipient:
    if is_recall:
        return replace(row, recall_letter_id=letter_id)
    return replace(row, state=RecipientState.QUEUED, letter_id=letter_id, queued_at_ms=at_ms)


def _refused(row: Recipient, why: str, is_recall: bool, at_ms: int) -> Recipient:
    if is_recall:
        return replace(row, error=f"It could not be recalled: {why}"[:WORDS_MAX])
    return replace(row, state=RecipientState.FAILED, error=why, ended_at_ms=at_ms)
