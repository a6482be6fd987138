"""What the stores share when people look for letters: how many are looked at, who is still open, what letters died of."""

import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from peik.core.letter import Chat, Letter, State, cause_of, priority_of
from peik.core.lifecycle import EXPIRED, UNCERTAIN, Move, Try
from peik.erasure.model import ErasedPerson, scrubbed
from peik.errors import Conflict, NotFound
from peik.inbox.store import Consumer
from peik.outbox.store import Cause, LetterFilter, LetterPage, LetterView, Stub
from peik.secrets.seals import Seals, place_of_consumer
from peik.storage.sqlite.rows import PHASE_APART, PHASE_IN_LANE

# A page that most letters fit is full after the first look. One that few fit costs what the second costs, and says where to go
# on: nobody waits for a walk through a million letters, and no engine waits behind it.
LOOKED_FIRST = 1_000
LOOKED_MAX = 50_000
CAUSES_LOOKED_MAX = 50_000
CLOCK_SLACK_MS = 3600 * 1000  # clocks are set back now and then: ids rise with time only so far

Death = tuple[str | None, str, int, int, int]  # reason, method, how many, the newest id, when the last of them died


# Ways that ask each bot for its own. Where very many letters stand there, the newest of all letters are looked at before: they
# nearly always make a page, however many bots there are.
BOT_BY_BOT = ("newest_waiting", "newest_delayed")

ENDS = (State.COMPLETED, State.FAILED, State.CANCELLED)


def way_of(wanted: LetterFilter) -> str:
    """The query that walks the letters of this state, the newest first. Both SQL stores name them alike."""
    if wanted.trace is not None:
        return "newest_traced"
    match wanted.state:
        case None:
            return "newest"
        case State.ACTIVE:
            return "newest_active"
        case State.WAITING:
            return "newest_waiting" if wanted.chat is None else "newest_waiting_of_chat"
        case State.DELAYED:
            return "newest_delayed"
        case _:
            return "newest_ended"


async def find(
    page: Callable[..., Awaitable[LetterPage]], wanted: LetterFilter, *, before: int | None, limit: int
) -> list[LetterView]:
    """Letters by a filter, page after page until there are enough, so that others are served in between."""
    found: list[LetterView] = []
    while True:
        one = await page(wanted, before=before, limit=limit - len(found))
        found += one.letters
        if len(found) >= limit or one.cursor is None:
            return found
        before = one.cursor


async def find_open(
    page: Callable[..., Awaitable[LetterPage]], wanted: LetterFilter, *, limit: int
) -> list[LetterView]:
    """Letters of a filter that somebody could still take back."""
    found: list[LetterView] = []
    for state in (State.WAITING, State.DELAYED):
        if wanted.state in (None, state) and len(found) < limit:
            narrowed = msgspec.structs.replace(wanted, state=state)
            found += await find(page, narrowed, before=None, limit=limit - len(found))
    return found


ABOVE_ALL = (2**63 - 1, 2**63 - 1)  # the place in the message log that every line is below


def turned(letters: list[LetterView], *, limit: int, oldest_looked: int | None) -> LetterPage:
    """A page of what was found. `oldest_looked`: where the look ended for its bound; None: it saw the end."""
    if len(letters) >= limit:
        return LetterPage(letters=letters, cursor=letters[-1].id)
    return LetterPage(letters=letters, cursor=oldest_looked, is_cut=oldest_looked is not None)


def grouped(deaths: Iterable[Death], *, limit: int) -> list[Cause]:
    """What letters died of, the most frequent first."""
    methods: dict[str, Counter[str]] = defaultdict(Counter)
    newest: dict[str, tuple[int, int]] = {}
    for reason, method, letters, newest_id, newest_at_ms in deaths:
        cause = cause_of(reason)
        methods[cause][method] += letters
        newest[cause] = max(newest.get(cause, (0, 0)), (newest_at_ms, newest_id))
    causes = [
        Cause(
            reason=cause,
            is_uncertain=cause == UNCERTAIN,
            letters=counts.total(),
            methods=tuple(method for method, _ in counts.most_common()),
            newest_id=newest[cause][1],
            newest_at_ms=newest[cause][0],
        )
        for cause, counts in methods.items()
    ]
    return sorted(causes, key=lambda one: (-one.letters, one.reason))[:limit]


# Which letters a filter means, for the stores that say it in SQL: the conditions, and what is bound to them.


_STATE_SQL = {
    State.WAITING: "l.phase = 0 AND m.letter_id IS NULL AND (l.due_at IS NULL OR l.due_at <= :now)",
    State.DELAYED: "m.letter_id IS NULL AND (l.phase = 1 OR (l.phase = 0 AND l.due_at > :now))",
    State.ACTIVE: "m.letter_id IS NOT NULL",
    State.COMPLETED: "l.phase = 2",
    State.FAILED: "l.phase = 3",
    State.CANCELLED: "l.phase = 4",
}


class Dialect(NamedTuple):
    """What the two say in their own ways. A chat and a set of ids are bound as `chat` and `numbers` make them."""

    finds: str  # a function: where a text stands in another, 0 if it does not
    cause: str  # of a letter's death
    among: Callable[[str], str]  # what is bound under a name
    chat: Callable[[Chat], Any]
    numbers: Callable[[Iterable[int]], Any]


def where(wanted: LetterFilter, at_ms: int, dialect: Dialect) -> tuple[str, dict[str, Any]]:
    finds = dialect.finds
    terms = ["true"]
    bound: dict[str, Any] = {"now": at_ms}
    if wanted.state is not None:
        terms.append(f"({_STATE_SQL[wanted.state]})")
    plain: tuple[tuple[str, object, str], ...] = (
        ("these", None if wanted.ids is None else dialect.numbers(wanted.ids), f"l.id {dialect.among('these')}"),
        ("bot_id", wanted.bot_id, "l.bot_id = :bot_id"),
        (
            "bot_ids",
            None if wanted.bot_ids is None else dialect.numbers(wanted.bot_ids),
            f"l.bot_id {dialect.among('bot_ids')}",
        ),
        ("chat", None if wanted.chat is None else dialect.chat(wanted.chat), "l.chat = :chat"),
        ("user_id", wanted.user_id, "l.user_id = :user_id"),
        ("message_type", wanted.message_type, "l.message_type = :message_type"),
        ("method", wanted.method, "l.method = :method"),
        ("trace", wanted.trace, "l.trace IN (:trace, '~' || :trace)"),
        ("since", wanted.since_ms, "l.created_at >= :since"),
        ("until", wanted.until_ms, "l.created_at <= :until"),
        ("error", wanted.error, f"{finds}(lower(l.failed_reason), lower(:error)) > 0"),
        ("cause", wanted.cause, f"{dialect.cause} = :cause"),
    )
    for name, value, term in plain:
        if value is not None:
            terms.append(term)
            bound[name] = value
    if wanted.text is not None:
        ways = {f"text{index}": way for index, way in enumerate(ways_of(wanted.text))}
        terms.append("(" + " OR ".join(f"{finds}(lower(l.params), lower(:{name})) > 0" for name in ways) + ")")
        bound |= ways
    return " AND ".join(terms), bound


# What may become of a letter, and what becomes of one that somebody changes while it waits: decided here for all stores.


class ChangePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where the letter stands from now on. `joins`: it takes the next number of its bot's order."""

    phase: int
    due_at_ms: int | None
    joins: bool = False


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What a change did to the letter's lane: it left, it stands there otherwise, or it came to its end. At most one of them."""

    left: Stub | None = None
    stands: Stub | None = None
    came: Letter | None = None


def must_be_known(view: LetterView | None, letter_id: int) -> LetterView:
    """Raises NotFound."""
    if view is None:
        raise NotFound(code="unknown_letter", detail=f"There is no letter {letter_id} here (any more).")
    return view


def must_be_dead(view: LetterView) -> None:
    """Raises Conflict."""
    if view.state is not State.FAILED:
        raise Conflict(code="not_dead", detail=f"Letter {view.id} is {view.state}; only dead letters are sent again.")


def must_be_uncertain(view: LetterView) -> None:
    """Raises Conflict."""
    if view.state is not State.FAILED or view.failed_reason != UNCERTAIN:
        raise Conflict(code="not_uncertain", detail=f"Letter {view.id} is not uncertain; there is nothing to resolve.")


def must_be_empty(bot_id: int, waiting: int) -> None:
    """Raises Conflict for a bot of which letters wait."""
    if waiting:
        raise Conflict(
            code="letters_waiting",
            detail=f"Bot {bot_id} still has {waiting} letters to send. Let them go out, or cancel them first.",
        )


def must_be_open(view: LetterView) -> None:
    """Raises Conflict for a letter that is in flight or has ended."""
    if view.state is State.ACTIVE:
        detail = f"Letter {view.id} is being sent right now; it cannot be taken back or changed."
        raise Conflict(code="in_flight", detail=detail)
    if view.state.is_final:
        raise Conflict(code="already_ended", detail=f"Letter {view.id} has ended already: it is {view.state}.")


def must_be_changeable(view: LetterView) -> None:
    """The same for one that gave way to a newer edit: it has no place that could be changed."""
    must_be_open(view)
    if view.merged_into is not None:
        raise Conflict(
            code="merged", detail=f"Letter {view.id} gave way to letter {view.merged_into}: change that one instead."
        )


def must_be_untried(view: LetterView) -> None:
    """Raises Conflict unless the letter waits and no try of it can have reached Telegram."""
    must_be_changeable(view)
    if view.attempts_made > 0 or view.uncertain_tries:
        raise Conflict(
            code="tried", detail=f"Letter {view.id} was tried already: what it made must be changed instead."
        )


def must_be_as_seen(view: LetterView, seen: int) -> None:
    """Raises Conflict if somebody has changed the letter since it was looked at."""
    must_be_untried(view)
    if view.attempts_made != seen:
        raise Conflict(
            code="changed", detail=f"Letter {view.id} was changed in the meantime. Look at it, and try again."
        )


def planned(*, phase: int, was_due_at_ms: int | None, due_at_ms: int | None, at_ms: int) -> ChangePlan:
    """For a letter in `phase`; `due_at_ms` None: its time stays. What waits for another letter goes on doing so."""
    if due_at_ms is None:
        return ChangePlan(phase=phase, due_at_ms=was_due_at_ms)
    if due_at_ms > at_ms:
        return ChangePlan(phase=PHASE_APART, due_at_ms=due_at_ms)
    if phase == PHASE_APART and was_due_at_ms is None:
        return ChangePlan(phase=PHASE_APART, due_at_ms=None)
    return ChangePlan(phase=PHASE_IN_LANE, due_at_ms=None, joins=phase == PHASE_APART)


def retry_line(at_ms: int) -> str:
    return _line(at_ms, str(Move.RETRY), "sent again by hand")


def arrived_line(at_ms: int) -> str:
    return _line(at_ms, str(Move.RESOLVE), "somebody saw that it had arrived")


def expiry_line(at_ms: int) -> str:
    return _line(at_ms, str(Move.EXPIRE), EXPIRED)


def _line(at_ms: int, outcome: str, words: str) -> str:
    return msgspec.json.encode(Try(at=at_ms, outcome=outcome, words=words)).decode()


def line_of(*, rank: int | None, due_at_ms: int | None, at_ms: int) -> str:
    """The line of the letter's history that tells of it."""
    outcome = "change"
    if due_at_ms is not None:
        outcome = str(Move.DEFER if due_at_ms > at_ms else Move.JOIN)
    words = "by hand" if rank is None else f"by hand, priority {priority_of(rank)}"
    return _line(at_ms, outcome, words)


REVISED = "an edit changed it before it was sent"


def revised_line(at_ms: int) -> str:
    return msgspec.json.encode(Try(at=at_ms, outcome="change", words=REVISED)).decode()


def changed(view: LetterView, plan: ChangePlan, *, phase: int, came: Letter | None = None) -> Changed:
    """What the engines must hear, for a letter that stood in `phase` before."""
    if came is not None:
        return Changed(came=came)
    stub = Stub(letter_id=view.id, bot_id=view.bot_id, lane=(view.chat, view.thread))
    if phase == PHASE_IN_LANE:
        return Changed(left=stub) if plan.phase == PHASE_APART else Changed(stands=stub)
    return Changed()


# What is left of the failures of an arrival whose person is forgotten: the same in every store.


def scrubbed_story(
    person: ErasedPerson, reason: str | None, history: str, *, is_theirs: bool
) -> tuple[str | None, str]:
    """Its reason and its history (a JSON array). Tracebacks quote what was handled, so that of the person's own nothing stays."""
    if is_theirs:
        return None, "[]"
    return None if reason is None else scrubbed(person, reason), scrubbed(person, history)


def scrubbed_lines(person: ErasedPerson, lines: list[str], *, is_theirs: bool) -> list[str]:
    """The same of a history that is kept as lines of JSON."""
    return [] if is_theirs else [scrubbed(person, line) for line in lines]


# How secrets of records are sealed and opened on their way into a store and out of it, the same in all three.


def sealed(consumer: Consumer, seals: Seals) -> Consumer:
    if consumer.secret is None:
        return consumer
    secret = seals.seal(consumer.secret, place=place_of_consumer(consumer.bot_id, consumer.name))
    return msgspec.structs.replace(consumer, secret=secret)


def opened(consumer: Consumer, seals: Seals) -> Consumer:
    if consumer.secret is None:
        return consumer
    secret = seals.open(consumer.secret, place=place_of_consumer(consumer.bot_id, consumer.name))
    return msgspec.structs.replace(consumer, secret=secret)


# JSON knows several ways to write a text, and what was accepted is kept as it came: a text is looked for in all of
# them.


def ways_of(text: str) -> list[str]:
    """A text as it may stand within JSON: as it is, or with its characters as \\uXXXX, as Python writes them by default.

    Stores compare without regard to the case of ASCII alone, so words of other alphabets are looked for as they were given, in
    small letters, and with a capital.
    """
    spelled = {text} if text.isascii() else {text, text.lower(), text.capitalize(), text.upper()}
    written = {json.dumps(one, ensure_ascii=is_ascii)[1:-1] for one in spelled for is_ascii in (False, True)}
    return sorted(written | {one.replace("/", "\\/") for one in written})
