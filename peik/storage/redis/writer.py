"""The one writer: everything that waits at a moment goes to the server in one script call, one after the other within it.

Only when its answer is there is anybody told. With `appendfsync always` the server answers after the fsync, one for all.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from redis import exceptions

from peik.errors import BadInput, Conflict, NotFound, Problem, StoreUnavailable
from peik.outbox.store import Followed, Stub
from peik.storage.consumers import TOO_MANY
from peik.storage.executor import Finished
from peik.storage.redis.client import RedisClient, RedisGroup, refused, translate
from peik.storage.redis.records import encode, followed_of, stub_of

_WEIGHT_PER_COMMIT_MAX = 1000  # how long one call keeps the server's other clients waiting: some milliseconds
_ENOUGH_LEAST = 8  # operations: a commit of fewer is not worth its own sync while more of them come
_TROUBLE_S = 10.0  # longer than any engine waits before it tries again


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation did besides its answer."""

    superseded: tuple[Stub, ...] = ()
    joined: tuple[Stub, ...] = ()
    followed: tuple[Followed, ...] = ()
    blobs_freed: tuple[str, ...] = ()


class CommitDone(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that is durable. `superseded_here`: edits that gave way to newer ones within the very same commit."""

    value: Any
    effects: Effects
    superseded_here: frozenset[int]


class RedisWork(Protocol):
    """Something to write. `build` names it for the script and puts its records among those of the commit."""

    @property
    def weight(self) -> int: ...

    def build(self, among: list[bytes], /) -> list[Any]: ...

    def done(self, ended: Finished[CommitDone], /) -> None: ...


class RedisOperation:
    """The same, made of two functions."""

    __slots__ = ("build", "done", "weight")

    def __init__(
        self,
        build: Callable[[list[bytes]], list[Any]],
        done: Callable[[Finished[CommitDone]], None],
        *,
        weight: int = 1,
    ) -> None:
        self.build = build
        self.done = done
        self.weight = weight


class RedisWriter:
    """Collects operations and commits them in groups, one group at a time: answers come in the order of numbers."""

    def __init__(self, client: RedisClient, *, node: str) -> None:
        self._client = client
        self._node = node
        self._waiting: list[RedisWork] = []
        self._commit: asyncio.Task[None] | None = None
        self._trouble: tuple[StoreUnavailable, float] | None = None
        self._loop = asyncio.get_running_loop()
        self._is_planned = False
        self._enough = _ENOUGH_LEAST
        self.on_answered: Callable[[], None] = lambda: None  # when all of a group have been answered

    @property
    def trouble(self) -> StoreUnavailable | None:
        """Why nothing can be stored, if the last commit was not made; forgotten after a while, since one who stays away
        because of it would never learn that it is over."""
        if self._trouble is None or self._loop.time() - self._trouble[1] > _TROUBLE_S:
            return None
        return self._trouble[0]

    def submit(self, operation: RedisWork) -> None:
        self._waiting.append(operation)
        if self._commit is None and len(self._waiting) >= self._enough:
            self._start()
        else:
            self._plan()

    async def drained(self) -> None:
        """Returns when everything that was submitted has been answered, well or not."""
        while self._waiting or self._commit is not None:
            await asyncio.wait([self._commit]) if self._commit is not None else await asyncio.sleep(0)

    async def abandon(self) -> None:
        """Let go of what is under way: the process is as good as gone."""
        self._waiting = []
        if self._commit is not None:
            self._commit.cancel()
            await asyncio.wait([self._commit])

    def _plan(self) -> None:
        if self._commit is None and not self._is_planned and self._waiting:
            # Not at once: what else is written in this turn of the event loop shall come along.
            self._is_planned = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_planned = False
        if self._commit is None and self._waiting:
            operations = self._cut()
            group, broken = _build(self._node, operations)
            begun = self._begin(group)
            self._commit = self._loop.create_task(self._run(operations, group, broken, begun))

    def _begin(self, group: RedisGroup) -> "asyncio.Future[Any] | None":
        """At once and not by its task: that would run only after all callers that are still to be answered in this turn."""
        try:
            return self._client.send_commit(group) if group.names else None
        except Exception as error:  # noqa: BLE001  it is reported to the caller
            failed: asyncio.Future[Any] = self._loop.create_future()
            failed.set_exception(error)
            return failed

    def _cut(self) -> list[RedisWork]:
        weight = 0
        for index, operation in enumerate(self._waiting):
            weight += operation.weight
            if weight >= _WEIGHT_PER_COMMIT_MAX or index + 1 == self._enough:
                operations, self._waiting = self._waiting[: index + 1], self._waiting[index + 1 :]
                return operations
        operations, self._waiting = self._waiting, []
        return operations

    async def _run(
        self,
        operations: list[RedisWork],
        group: RedisGroup,
        broken: dict[int, Finished[CommitDone]],
        begun: "asyncio.Future[Any] | None",
    ) -> None:
        try:
            ended = await self._ask(group, len(operations) - len(broken), begun)
            if broken:
                answered = iter(ended)
                ended = [broken[index] if index in broken else next(answered) for index in range(len(operations))]
        finally:
            self._commit = None
            # Who is answered now will soon ask for more. Half of all those go with one commit: so the server works on one
            # half while the other is worked on here. If all went together, each side would wait for the other.
            self._enough = max(_ENOUGH_LEAST, (len(operations) + len(self._waiting) + 1) // 2)
            self._start()  # the next group first: the server works while the answers are given out
        for operation, answer in zip(operations, ended, strict=True):
            try:
                operation.done(answer)
            except Exception as error:  # noqa: BLE001  one listener's surprise must not keep the others waiting
                self.surprised(error)
        self.on_answered()

    def surprised(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": "a listener of the store failed", "exception": error})

    async def _ask(
        self, group: RedisGroup, asked: int, begun: "asyncio.Future[Any] | None"
    ) -> list[Finished[CommitDone]]:
        if not asked:
            return []
        try:
            answers = await self._client.commit(group, begun)
        except exceptions.RedisError as error:
            trouble = translate(error)
            self._trouble = (trouble, self._loop.time())
            return [Finished(None, trouble)] * asked
        except Exception as error:  # noqa: BLE001  every kind of failure is reported to the caller
            return [Finished(None, error)] * asked
        ended = _read(answers)
        told = [one.error for one in ended if isinstance(one.error, StoreUnavailable)]
        self._trouble = (told[0], self._loop.time()) if told else None
        return ended


_Built = tuple[RedisGroup, dict[int, Finished["CommitDone"]]]


def _build(node: str, operations: list[RedisWork]) -> _Built:
    """All that can be said to the server; what cannot (half a surrogate, say) fails alone, and is told by its place."""
    records: list[bytes] = []
    try:
        named = [operation.build(records) for operation in operations]
        asked = encode([node, *named])
    except Exception:  # noqa: BLE001  whose it is, is found one by one
        return _build_one_by_one(node, operations)
    return RedisGroup(names=frozenset(one[0] for one in named), asked=asked, records=records), {}


def _build_one_by_one(node: str, operations: list[RedisWork]) -> _Built:
    names: set[str] = set()
    said: list[msgspec.Raw] = []
    records: list[bytes] = []
    broken: dict[int, Finished[CommitDone]] = {}
    for index, operation in enumerate(operations):
        before = len(records)
        try:
            named = operation.build(records)
            said.append(msgspec.Raw(encode(named)))
            names.add(named[0])
        except Exception as error:  # noqa: BLE001  it is raised again where the work was asked for
            del records[before:]
            broken[index] = Finished(None, error)
    return RedisGroup(names=frozenset(names), asked=encode([node, *said]), records=records), broken


def _read(answers: list[Any]) -> list[Finished[CommitDone]]:
    effects = [QUIET if answer[-1] is None else _effects(answer) for answer in answers]
    superseded = frozenset(stub.letter_id for one in effects if one is not QUIET for stub in one.superseded)
    ended: list[Finished[CommitDone]] = []
    for answer, one in zip(answers, effects, strict=True):
        if answer[0] == _DONE:
            ended.append(Finished(CommitDone(value=answer[1], effects=one, superseded_here=superseded), None))
        elif answer[0] == _REFUSED:
            ended.append(
                Finished(None, problem(*(part.decode() if isinstance(part, bytes) else part for part in answer[1])))
            )
        else:
            ended.append(Finished(None, refused(answer[1].decode(errors="replace"))))
    return ended


_REFUSED, _DONE = 0, 1
QUIET = Effects()


def _effects(answer: list[Any]) -> Effects:
    if answer[0] != _DONE or len(answer) < 3 or answer[2] is None:
        return QUIET
    superseded, joined, freed, followed = answer[2]
    return Effects(
        superseded=tuple(stub_of(row) for row in superseded),
        joined=tuple(stub_of(row) for row in joined),
        followed=tuple(followed_of(row) for row in followed),
        blobs_freed=tuple(blob.decode() for blob in freed),
    )


def problem(code: str, subject: object = "", more: object = "") -> Problem:
    """What a script refused before it wrote anything."""
    kind, detail = _PROBLEMS[code]
    shown = "unknown_bot" if code == "no_inbox" else code
    return kind(code=shown, detail=detail.format(subject=subject, more=more))


_PROBLEMS: dict[str, tuple[type[Problem], str]] = {
    "unknown_bot": (NotFound, "Bot {subject} is not known here. Add it with its token first."),
    "no_inbox": (NotFound, "Bot {subject} has no inbox here (any more). Add the bot with its token first."),
    "unknown_letter": (NotFound, "There is no letter {subject} here (any more)."),
    "unknown_consumer": (NotFound, "There is no consumer {subject} here (any more)."),
    "already_expired": (BadInput, "expires_at is in the past."),
    "idempotency_key_reused": (
        Conflict,
        "This idempotency key was used within 48 hours for another call. Use a new key for a new call.",
    ),
    "in_flight": (Conflict, "Letter {subject} is being sent right now; it cannot be taken back or changed."),
    "already_ended": (Conflict, "Letter {subject} has ended already: it is {more}."),
    "merged": (Conflict, "Letter {subject} gave way to letter {more}: change that one instead."),
    "tried": (Conflict, "Letter {subject} was tried already: what it made must be changed instead."),
    "changed": (Conflict, "Letter {subject} was changed in the meantime. Look at it, and try again."),
    "not_dead": (Conflict, "Letter {subject} is {more}; only dead letters are sent again."),
    "not_uncertain": (Conflict, "Letter {subject} is not uncertain; there is nothing to resolve."),
    "letters_waiting": (
        Conflict,
        "Bot {subject} still has {more} letters to send. Let them go out, or cancel them first.",
    ),
    "too_many_consumers": (Conflict, TOO_MANY),
    "too_many_keys": (Conflict, "There are {subject} keys. Revoke those that nobody uses."),
    "default_consumer": (
        Conflict,
        "The default consumer stays as long as its bot, so that nothing that comes is without a reader.",
    ),
}
