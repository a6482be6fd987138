"""Every invariant of the outbox speaks up when it is broken, and keeps quiet in the legitimate case next to it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from peik.core.outcome import NetworkFault, Reply
from peik.core.token import Token
from peik.outbox.store import BotRecord
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from peik.telegram.port import Enclosure, Request
from peik.testing.answer import Delivery
from peik.testing.virtual import VirtualClock, run_virtual
from simulation.clients import Draft
from simulation.judge import CHAT_BURST, GROUP_PER_MIN, Judge, WatchedLedger, draft_verdict
from simulation.network import Try
from simulation.processes import Process, WorldLoop
from simulation.promises import Promise, Promises, Row, Witness
from tests.storage.acts import BROKE_OFF, NEVER, SENT, accept, attempt, conclude, draft, find, mark
from tests.storage.places import BOT

ANN, GROUP = 1, -100
WAITS, APART, COMPLETED, FAILED, CANCELLED = range(5)
RESET = Reply(fault=NetworkFault.RESET)
UNSENT = Reply(fault=NetworkFault.REFUSED, left=False)


class Rows(Witness):
    """A store of a few rows, as the story sets them."""

    def __init__(self) -> None:
        self.all: dict[int, Row] = {}
        self.held: dict[object, int] = {}  # by chat, None for the whole bot

    def holds(self) -> list[tuple[int, int | str | None, int]]:
        return [(BOT, cast("int | None", chat), until_ms) for chat, until_ms in self.held.items()]

    def held_until(self, bot_id: int, chat: object) -> int:
        return self.held.get(chat, 0)

    def letter(self, letter_id: int) -> Row | None:
        return self.all.get(letter_id)

    def named(self, bot_id: int, chat: int, name: str) -> Row | None:
        return next((row for row in self.all.values() if row.text == name), None)

    def letters(self) -> list[Row]:
        return list(self.all.values())

    def known_ids(self) -> set[int]:
        return set(self.all)


class Scene:
    """A judge, what was promised, and a store that says what the story wants."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._steps = 0
        self.store = Rows()
        self.promises = Promises()
        self.judge = Judge(
            self.promises, self.store, now=lambda: self.now, step=self._step, wall_ms=lambda: int(self.now * 1000)
        )

    def _step(self) -> int:
        self._steps += 1
        return self._steps

    @property
    def wrong(self) -> list[str]:
        return self.judge.wrong

    def letter(self, name: str, *, is_acked: bool = True, chat: int = ANN, **details: Any) -> Promise:
        """Asked for, accepted, stored and marked."""
        promise = Promise(name=name, bot_id=BOT, chat=chat, asked_at=self._step(), **details)
        self.promises.add(promise)
        self.row(promise)
        if is_acked:
            promise.letter_id = int(name[1:])
            promise.acked_at = self._step()
        return promise

    def row(self, promise: Promise, *, phase: int = WAITS, is_marked: bool = True, **details: Any) -> None:
        """What the store has of it from now on."""
        number = int(promise.name[1:])
        whole = {"uncertain_tries": 0, "attempts_made": 0, "failed_reason": None, **details}
        self.store.all[number] = Row(id=number, text=promise.name, phase=phase, is_marked=is_marked, **whole)

    def send(
        self,
        promise: Promise,
        *,
        process: str = "node0.1",
        method: str = "sendMessage",
        files: Sequence[Path] = (),
        **params: str,
    ) -> Try:
        """A process sends it."""
        whole = msgspec.json.encode({"chat_id": promise.chat, "text": f"{promise.name} hello", **params})
        enclosures = [
            Enclosure(field="document", path=path, filename="a.txt", content_type="text/plain", size_bytes=1)
            for path in files
        ]
        token = Token(f"{BOT}:secret")
        request = Request(token=token, method=method, params=whole, enclosures=enclosures, timeout_s=30.0)
        one = Try(request, Process(process, cast(WorldLoop, None)), self.now)
        self.judge.left(one)
        return one

    def hear(self, one: Try, reply: Reply | int, *, wait_s: int | None = None) -> None:
        parameters = {} if wait_s is None else {"parameters": {"retry_after": wait_s}}
        body = msgspec.json.encode({"ok": reply == 200, **parameters})
        one.reply = Reply(status=reply, body=body) if isinstance(reply, int) else reply
        self.judge.told(one)

    def arrive(self, promise: Promise) -> None:
        self.judge.delivered(delivery(promise.name))


def delivery(text: str) -> Delivery:
    whole = {"number": 1, "at": 0.0, "thread_id": None, "message_id": 1, "method": "sendMessage", "digest": ""}
    return Delivery(bot_id=BOT, chat_id=ANN, text=f"{text} hello", **whole)


# ---- a try leaves ----


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, []),
        (None, ["L1 was sent, and the store does not know it"]),
        ({"is_marked": False}, ["L1 was sent without a mark"]),
        *(({"phase": phase}, [f"L1 was sent in phase {phase}"]) for phase in (APART, COMPLETED, FAILED, CANCELLED)),
    ],
)
@pytest.mark.parametrize("is_acked", [True, False])
def test_only_what_is_stored_waits_and_is_marked_may_leave(row: Any, said: list[str], is_acked: bool) -> None:
    scene = Scene()
    promise = scene.letter("L1", is_acked=is_acked)
    scene.store.all.clear() if row is None else scene.row(promise, **row)
    scene.send(promise)
    assert (scene.wrong, promise.tries) == (said, 1)


@pytest.mark.parametrize(
    ("content", "files", "params", "said"),
    [
        (b"L1", 1, {}, []),
        (b"L", 1, {}, ["L1 was sent with [b'L']"]),
        (b"", 0, {}, ["L1 was sent with []"]),
        (b"L1", 2, {}, ["L1 was sent with [b'L1', b'L1']"]),
        (b"", 0, {"document": "a-file-id"}, []),
    ],
)
def test_a_file_goes_with_its_letter(
    tmp_path: Path, content: bytes, files: int, params: dict[str, str], said: list[str]
) -> None:
    """Or by the id that Telegram gave it."""
    scene = Scene()
    path = tmp_path / "file"
    path.write_bytes(content)
    promise = scene.letter("L1", method="sendDocument")
    scene.send(promise, method="sendDocument", files=[path] * files, **params)
    assert scene.wrong == said


def test_calls_that_are_no_letters_are_nobody_s_business() -> None:
    scene = Scene()
    promise = scene.letter("L1")
    scene.store.all.clear()
    scene.hear(scene.send(promise, method="getUpdates"), 400)
    scene.judge.delivered(delivery("A notice of Peik's own"))
    assert (scene.wrong, promise.tries, promise.refusals) == ([], 0, 0)


@pytest.mark.parametrize(
    ("chat", "after_s", "process", "is_wrong"),
    [
        (ANN, 0.5, "node0.1", True),
        (ANN, 6.98, "node0.1", True),
        (ANN, 7.0, "node0.1", False),
        (ANN, 0.5, "node0.2", False),  # the next process has not heard of it
        (2, 0.5, "node0.1", False),
        (GROUP, 1.0, "node0.1", False),  # another thread's letter was on its way
        (GROUP, 2.0, "node0.1", True),
        (GROUP, 7.0, "node0.1", False),
    ],
)
def test_nothing_is_sent_while_a_chat_is_held(chat: int, after_s: float, process: str, is_wrong: bool) -> None:
    scene = Scene()
    held = scene.letter("L1", chat=GROUP if chat < 0 else ANN)
    scene.hear(scene.send(held), 429, wait_s=7)
    scene.now += after_s
    scene.send(scene.letter("L2", chat=chat), process=process)
    said = [f"L2 was sent to {chat} {7 - after_s:.2f} s before a hold ended"]
    assert scene.wrong == (said if is_wrong else [])


@pytest.mark.parametrize("held", [ANN, None])
@pytest.mark.parametrize(
    ("after_s", "process", "is_wrong"),
    [
        (1.0, "node0.2", True),
        (38.9, "node0.2", True),
        (39.0, "node0.2", False),  # it is over
        (1.0, "node0.1", False),  # this one began before it was stored, and may not have heard of it
    ],
)
def test_a_process_keeps_the_holds_that_were_stored_before_it_began(
    held: int | None, after_s: float, process: str, is_wrong: bool
) -> None:
    scene = Scene()
    scene.judge.began("node0.1")
    scene.now += 1.0
    scene.store.held[held] = int(scene.now * 1000) + 40_000
    scene.judge.look_at_holds()
    scene.now += 1.0
    scene.judge.began("node0.2")
    scene.now += after_s
    scene.send(scene.letter("L1"), process=process)
    whom = "the bot" if held is None else f"chat {held}"
    said = [f"L1 was sent {39_000 - round(after_s * 1000)} ms before a stored hold of {whom} ended"]
    assert scene.wrong == (said if is_wrong else [])


def test_by_a_clock_that_was_set_nobody_can_tell_how_long_a_stored_hold_lasts() -> None:
    scene = Scene()
    scene.store.held[ANN] = 10**12
    scene.judge.look_at_holds()
    scene.now += 1.0
    scene.judge.began("node0.1")
    scene.judge.has_jumped = True
    scene.send(scene.letter("L1"))
    assert scene.wrong == []


def test_a_shorter_hold_does_not_end_a_longer_one() -> None:
    scene = Scene()
    first, second = scene.send(scene.letter("L1")), scene.send(scene.letter("L2"))
    scene.hear(first, 429, wait_s=30)
    scene.hear(second, 429, wait_s=2)
    scene.now += 5.0
    scene.send(scene.letter("L3"))
    assert scene.wrong == ["L3 was sent to 1 25.00 s before a hold ended"]


@pytest.mark.parametrize(
    ("chat", "letters", "gap_s", "reply", "said"),
    [
        (ANN, CHAT_BURST, 0.0, None, None),
        (ANN, CHAT_BURST + 1, 0.0, None, "6 messages in 0.00 s to chat 1"),
        (ANN, CHAT_BURST + 1, 0.0, RESET, "6 messages in 0.00 s to chat 1"),
        (ANN, CHAT_BURST + 1, 0.0, 200, "6 messages in 0.00 s to chat 1"),
        (ANN, CHAT_BURST + 1, 0.0, UNSENT, None),
        (ANN, CHAT_BURST + 1, 0.0, 400, None),
        (ANN, 40, 1.0, None, None),
        (ANN, 40, 0.5, None, "10 messages in 4.50 s to chat 1"),
        (GROUP, GROUP_PER_MIN, 0.0, None, None),
        (GROUP, GROUP_PER_MIN + 1, 0.0, None, "21 messages in a minute to chat -100"),
        (GROUP, GROUP_PER_MIN + 1, 0.0, UNSENT, None),
        (GROUP, 60, 3.0, None, None),
        (GROUP, 60, 2.8, None, "21 messages in a minute to chat -100"),
    ],
)
@pytest.mark.parametrize("looks_often", [True, False])
def test_no_chat_gets_more_than_its_pace(
    chat: int, letters: int, gap_s: float, reply: Reply | int | None, said: str | None, looks_often: bool
) -> None:
    scene = Scene()
    for number in range(letters):
        one = scene.send(scene.letter(f"L{number}", chat=chat))
        if reply is not None:
            scene.hear(one, reply)
        if looks_often:
            scene.judge.look()
        scene.now += gap_s
    scene.judge.look()
    assert scene.wrong[:1] == ([] if said is None else [said])


def test_one_chat_s_pace_is_not_another_s() -> None:
    scene = Scene()
    for number in range(4 * CHAT_BURST):
        scene.send(scene.letter(f"L{number}", chat=1 + number % 4))
    scene.judge.look()
    assert scene.wrong == []


# ---- it takes effect ----


@pytest.mark.parametrize(
    "story",
    [
        "A is first",
        "A waits",
        "A was refused",
        "A is limited",
        "A failed",
        "A is cancelled",
        "A was not acknowledged when B was asked for",
        "A has another chat",
        "A has another priority",
        "A is scheduled",
        "B is scheduled",
        "A was sent again by hand",
    ],
)
def test_a_later_letter_overtakes_only_what_needs_no_turn(story: str) -> None:
    scene = Scene()
    details: dict[str, dict[str, Any]] = {
        "A has another chat": {"chat": 2},
        "A has another priority": {"priority": 1},
        "A is scheduled": {"send_at_ms": 1},
        "A was sent again by hand": {"is_retried": True},
    }
    first = scene.letter("L1", is_acked=not story.endswith("asked for"), **details.get(story, {}))
    second = scene.letter("L2", send_at_ms=1 if story == "B is scheduled" else None)
    match story:
        case "A is first":
            scene.arrive(first)
        case "A was refused":
            scene.hear(scene.send(first), 400)
        case "A is limited":
            scene.hear(scene.send(first), 429, wait_s=1)
        case "A failed":
            scene.row(first, phase=FAILED)
        case "A is cancelled":
            scene.row(first, phase=CANCELLED)
    scene.arrive(second)
    is_wrong = story in ("A waits", "A is limited")
    assert scene.wrong == (["L2 overtook L1 in (7, 1, 0, 0)"] if is_wrong else [])


def test_only_first_deliveries_are_ordered() -> None:
    """A try of A that was in doubt is repeated after B."""
    scene = Scene()
    first, second = scene.letter("L1"), scene.letter("L2")
    for promise in (first, second, first):
        scene.arrive(promise)
    assert (scene.wrong, scene.judge.repeats) == ([], 1)


def test_what_may_arrive_at_most_once_arrives_no_second_time() -> None:
    scene = Scene()
    strict, again = scene.letter("L1", is_at_most_once=True), scene.letter("L2", is_at_most_once=True, is_retried=True)
    for promise in (strict, again, again):
        scene.arrive(promise)
    assert scene.wrong == []
    scene.arrive(strict)
    assert scene.wrong == ["L1 may arrive at most once, and arrived 2 times"]


def test_the_ledger_tells_of_what_it_has() -> None:
    told: list[tuple[str, int]] = []
    ledger = WatchedLedger(lambda one: told.append((one.text, len(ledger))))
    ledger.add(delivery("L1"))
    assert told == [("L1 hello", 1)]


# ---- it is accepted ----


@pytest.mark.parametrize("is_acked", [True, False])  # with its number, or by the gateway, which gives none
def test_what_is_acknowledged_is_in_the_store(is_acked: bool) -> None:
    scene = Scene()
    promise = scene.letter("L1", is_acked=is_acked)
    scene.judge.acknowledged(promise)
    scene.judge.look()
    assert scene.wrong == []
    scene.store.all.clear()
    scene.judge.acknowledged(promise)
    scene.judge.look()
    gone = ["L1 was accepted as 1, and is gone"] if is_acked else []
    assert scene.wrong == ["L1 was accepted, and is not in the store", *gone]


# ---- the end ----

_HOOKED: dict[str, Any] = {"is_hooked": True}
_STRICT: dict[str, Any] = {"is_at_most_once": True}
_RETRIED: dict[str, Any] = {"is_retried": True}


def _failed(reason: str, *, uncertain_tries: int = 0) -> dict[str, Any]:
    return {"phase": FAILED, "failed_reason": reason, "uncertain_tries": uncertain_tries}


@pytest.mark.parametrize(
    ("promise", "row", "arrived", "replies", "said"),
    [
        ({}, {}, 1, [200], []),
        ({}, None, 0, [], ["L1 was accepted, and is not in the store"]),
        ({"is_acked": False}, None, 0, [], []),
        ({"is_acked": False}, None, 1, [], ["L1 was delivered, and is not in the store"]),
        ({}, {"phase": WAITS}, 1, [200], ["L1 has not ended: phase 0"]),
        ({}, {"phase": APART}, 1, [200], ["L1 has not ended: phase 1"]),
        ({}, {}, 0, [200], ["L1 is completed, and never arrived"]),
        (_RETRIED, {"phase": CANCELLED}, 0, [], []),
        (_HOOKED, {}, 1, [200], ["nobody was told how L1 ended"]),
        ({**_HOOKED, "heard": 2}, {}, 1, [200], []),
        ({}, {}, 2, [200, 200], ["L1 arrived 2 times, with 0 uncertain tries"]),
        ({}, {"uncertain_tries": 1}, 2, [RESET, 200], []),
        (_RETRIED, {}, 2, [200, 200], []),
        ({}, {"uncertain_tries": 1}, 1, [UNSENT, 200], ["L1 has 1 uncertain tries where there were 0"]),
        ({}, {"uncertain_tries": 1}, 1, [500, 200], []),
        ({}, {"uncertain_tries": 1}, 1, [429, 200], []),  # soon after a 5xx
        ({}, _failed("Teapot"), 0, [], ["L1 failed without a refusal: Teapot"]),
        ({}, _failed("Teapot"), 0, [400], []),
        ({}, _failed("Forbidden: bot was blocked"), 0, [], []),  # the chat is known to be shut
        ({}, _failed("uncertain", uncertain_tries=1), 0, [RESET], ["L1 failed as uncertain after 1 uncertain tries"]),
        (_STRICT, _failed("uncertain", uncertain_tries=1), 0, [RESET], []),
        ({}, _failed("uncertain", uncertain_tries=11), 0, [RESET] * 11, []),
        ({}, _failed("expired"), 0, [], ["L1 expired, and had no end"]),
        ({"expires_at_ms": 1}, _failed("expired"), 0, [], []),
    ],
)
def test_how_a_letter_ended_is_judged(
    promise: dict[str, Any], row: dict[str, Any] | None, arrived: int, replies: list[Reply | int], said: list[str]
) -> None:
    scene = Scene()
    one = scene.letter("L1", **promise)
    for reply in replies:
        scene.hear(scene.send(one), reply)
        scene.now += 60.0
    for _ in range(arrived):
        scene.arrive(one)
    scene.store.all.clear() if row is None else scene.row(one, **{"phase": COMPLETED, **row})
    assert scene.wrong == []
    assert list(scene.judge.verdict(deaths=0)) == said


def test_a_letter_that_nobody_took_back_is_not_cancelled() -> None:
    scene = Scene()
    scene.row(scene.letter("L1"), phase=CANCELLED)
    assert list(scene.judge.verdict(deaths=0)) == ["L1 was cancelled, and nobody asked for it"]


@pytest.mark.parametrize(
    ("arrivals", "merged", "is_wrong"),
    [
        (["L2", "L3"], [], False),
        (["L3", "L2"], [], True),
        (["L2", "L3", "L2"], [], False),  # the second L2 was in doubt, and came late
        (["L3"], ["L2"], False),
        (["L2", "L3", "L3"], [], False),
    ],
)
def test_a_message_shows_its_last_edit(arrivals: list[str], merged: list[str], is_wrong: bool) -> None:
    scene = Scene()
    scene.arrive(message := scene.letter("L1"))
    scene.row(message, phase=COMPLETED)
    edits = [scene.letter(name, method="editMessageText", target=message, priority=1) for name in ("L2", "L3")]
    for edit in edits:
        repeats = max(0, arrivals.count(edit.name) - 1)
        edit.doubts = repeats
        scene.row(edit, phase=COMPLETED, merged_into=3 if edit.name in merged else None, uncertain_tries=repeats)
    for name in arrivals:
        scene.arrive(scene.promises.by_name[name])
    scene.wrong.clear()  # of the order at Telegram, which is another matter
    said = ["L1 does not show its last edit, L3"] if is_wrong else []
    assert list(scene.judge.verdict(deaths=0)) == said


NEVER_SENT = "L2 ended with a newer edit that was never sent"
OTHERWISE = "L2 gave way, and did not end as the newer edit did"


@pytest.mark.parametrize(
    ("older", "newer", "is_touched", "said"),
    [
        ({"phase": COMPLETED}, {"phase": COMPLETED}, False, []),
        ({"phase": COMPLETED}, _failed("Bad Request: no"), False, [OTHERWISE]),
        (_failed("Bad Request: no"), _failed("Bad Request: no"), False, []),
        (_failed("Bad Request: no"), {"phase": COMPLETED}, True, []),
        ({"phase": COMPLETED}, {"phase": CANCELLED}, True, [NEVER_SENT]),
        ({"phase": COMPLETED}, _failed("expired"), True, [NEVER_SENT]),
        (_failed("expired"), _failed("expired", uncertain_tries=1), False, []),
    ],
)
def test_an_edit_that_gave_way_ends_as_the_newer_does(
    older: dict[str, Any], newer: dict[str, Any], is_touched: bool, said: list[str]
) -> None:
    scene = Scene()
    scene.arrive(message := scene.letter("L1"))
    scene.row(message, phase=COMPLETED)
    edits = [scene.letter(name, method="editMessageText", target=message, priority=1) for name in ("L2", "L3")]
    edits[1].is_retried = is_touched
    edits[1].expires_at_ms, edits[1].refusals, edits[1].doubts = 1, 1, 1
    if newer["phase"] == COMPLETED:
        scene.arrive(edits[1])
    scene.row(edits[0], merged_into=3, **older)
    scene.row(edits[1], **newer)
    assert list(scene.judge.verdict(deaths=0)) == said


def test_an_edit_gives_way_to_one_that_is_there() -> None:
    scene = Scene()
    scene.row(scene.letter("L2", method="editMessageText"), phase=COMPLETED, merged_into=3)
    assert list(scene.judge.verdict(deaths=0)) == ["L2 gave way to a letter that is not in the store"]


@pytest.mark.parametrize(
    ("details", "has_arrived", "is_wrong"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"is_retried": True}, True, False),
        ({"is_at_most_once": True}, True, False),
    ],
)
def test_a_letter_that_refers_to_another_fails_only_with_it(
    details: dict[str, Any], has_arrived: bool, is_wrong: bool
) -> None:
    scene = Scene()
    message = scene.letter("L1", **details)
    if has_arrived:
        scene.arrive(message)
    reason = "it refers to letter 1, which failed"
    scene.row(message, phase=COMPLETED if has_arrived else CANCELLED)
    message.is_retried = message.is_retried or not has_arrived
    scene.row(scene.letter("L2", target=message), **_failed(reason))
    said = [f"L2 failed although its letter arrived: {reason}"]
    assert list(scene.judge.verdict(deaths=0)) == (said if is_wrong else [])


def test_a_death_may_leave_a_try_in_doubt() -> None:
    scene = Scene()
    promise = scene.letter("L1")
    scene.arrive(promise)
    scene.row(promise, phase=COMPLETED, uncertain_tries=2)
    assert list(scene.judge.verdict(deaths=2)) == []
    assert list(scene.judge.verdict(deaths=1)) == ["L1 has 2 uncertain tries where there were 0"]


# ---- the witness ----


def test_the_witness_sees_what_is_committed(tmp_path: Path) -> None:
    """By number and by name, in every phase, while the store is open."""
    path = tmp_path / "peik.db"
    witness = Witness(path)
    assert (witness.letters(), witness.known_ids()) == ([], set())

    async def main(clock: VirtualClock) -> None:
        store = SqliteStore(path, clock=clock, executor=lambda name: InlineExecutor(), busy_ms=0)
        await store.open()
        await store.save_bot(BotRecord(bot_id=BOT, token=Token(f"{BOT}:secret")))
        ids = await accept(store, *(draft(chat, text=f"L{chat} hello") for chat in (1, 12, 3, 4)))
        marked = await find(store, ids[0])
        await mark(store, marked)
        await attempt(store, await find(store, ids[1]), NEVER)
        await attempt(store, await find(store, ids[2]), BROKE_OFF)
        seen = {row.id: (row.phase, row.is_marked, row.uncertain_tries, row.text) for row in witness.letters()}
        assert seen == {
            ids[0]: (WAITS, True, 0, "L1 hello"),
            ids[1]: (FAILED, False, 0, "L12 hello"),
            ids[2]: (WAITS, False, 1, "L3 hello"),
            ids[3]: (WAITS, False, 0, "L4 hello"),
        }
        found = witness.named(BOT, 1, "L1")
        assert found is not None
        assert found.id == ids[0]
        assert witness.named(BOT, 2, "L2") is None
        await conclude(store, marked, SENT)
        completed = witness.letter(ids[0])
        assert completed is not None
        assert (completed.phase, completed.is_marked) == (COMPLETED, False)
        assert witness.known_ids() == set(ids)
        witness.close()
        await store.close()

    run_virtual(main)


# ---- messages that are used before they are sent ----


def used(*messages: dict[str, Any], phase: int = COMPLETED, doubts: int = 0, **terms: Any) -> list[str]:
    """What is wrong with a draft whose letter is 1, and whose last text should be "D1 2"."""
    rows = Rows()
    rows.all[1] = Row(
        id=1, phase=phase, is_marked=False, uncertain_tries=doubts, attempts_made=1, failed_reason=None, text="D1 2"
    )
    draft = Draft(bot_id=BOT, chat=ANN, name="D1", message_id=2_000_000_000, letter_id=1, shown="D1 2", **terms)
    return list(draft_verdict(draft, rows, dict(enumerate(messages))))


SHOWN = {"text": "D1 2"}


def test_a_message_that_was_changed_before_it_was_sent_reads_as_the_last_change_said() -> None:
    assert used(SHOWN) == []
    assert used({"text": "D1 1"}) == ["D1 should read 'D1 2', and there is ['D1 1']"]
    assert used() == ["D1 should read 'D1 2', and there is []"]
    assert used(SHOWN, SHOWN) != []
    assert used(SHOWN, {"text": "D1 1"}, doubts=1) == [], "a second one may be there, which nobody can name"
    assert used(phase=FAILED) == [], "it is dead, and seen"
    assert used({"text": "D1 1"}, is_clear=False) == [], "nobody knows what was accepted"


def test_a_message_that_was_taken_back_is_not_there() -> None:
    assert used(is_taken_back=True) == []
    assert used(SHOWN, is_taken_back=True) == ["D1 was taken back, and is there: ['D1 2']"]
    assert used(SHOWN, is_taken_back=True, phase=CANCELLED, was_never_sent=True, is_clear=False) != []


def test_an_answer_stands_under_the_message_that_was_meant() -> None:
    assert used(SHOWN, {"text": "to D1", "reply_to_message": SHOWN}) == []
    assert used(SHOWN, {"text": "to D1", "reply_to_message": {"text": "D11 0"}}) != []
    assert used(SHOWN, {"text": "to D1"}) != []
