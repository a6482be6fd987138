"""What the simulated Telegram says back: whole answers, refusals, and answers that are still to come."""

import hashlib
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping

import msgspec

encode = msgspec.json.encode

JSON_TYPE = ("Content-Type", "application/json")


class UploadedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file as it came with a request."""

    filename: str
    content: bytes
    content_type: str = "application/octet-stream"


class Answer(msgspec.Struct, frozen=True):
    """One whole HTTP answer. Its JSON body is Bot API's envelope, except for downloads and nginx's own pages."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (JSON_TYPE,)

    def json(self) -> dict[str, object]:
        """The body as a Python object, for tests."""
        decoded: dict[str, object] = msgspec.json.decode(self.body)
        return decoded

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def result(self) -> object:
        """What stands under `result`; None in a refusal."""
        return self.json().get("result")

    @property
    def description(self) -> str:
        return str(self.json().get("description", ""))


class Refusal(Exception):
    """A definite no. The status is both the HTTP status and `error_code` (docs/telegram.md, Requests and responses)."""

    def __init__(
        self, status: int, description: str, *, retry_after: int | None = None, migrate_to: int | None = None
    ) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.retry_after = retry_after
        self.migrate_to = migrate_to


def bad(text: str) -> Refusal:
    return Refusal(400, f"Bad Request: {text}")


def forbidden(text: str) -> Refusal:
    return Refusal(403, f"Forbidden: {text}")


def too_many(retry_after: int) -> Refusal:
    return Refusal(429, f"Too Many Requests: retry after {retry_after}", retry_after=retry_after)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A result that comes with a `description` beside it, as setWebhook's does."""

    result: object
    description: str


def success(result: object) -> Answer:
    if type(result) is Described:
        tail = b',"description":' + encode(result.description) + b"}"
        return Answer(200, b'{"ok":true,"result":' + encode(result.result) + tail)
    return Answer(200, b'{"ok":true,"result":' + encode(result) + b"}")


def failure(refusal: Refusal) -> Answer:
    body: dict[str, object] = {"ok": False, "error_code": refusal.status, "description": refusal.description}
    headers: tuple[tuple[str, str], ...] = (JSON_TYPE,)
    if refusal.retry_after is not None:
        # Both the body and the header carry it (docs/telegram.md, Too many requests).
        body["parameters"] = {"retry_after": refusal.retry_after}
        headers = (JSON_TYPE, ("Retry-After", str(refusal.retry_after)))
    elif refusal.migrate_to is not None:
        body["parameters"] = {"migrate_to_chat_id": refusal.migrate_to}
    return Answer(refusal.status, encode(body), headers)


class Pending:
    """An answer that is still to come: a parked long poll, or a 409 that Telegram holds back.

    Whoever carries it out (a server, a virtual world) asks `Telegram.ripe` at `due_at`, and is told by `moved` when
    `due_at` has become earlier.
    """

    __slots__ = ("_ask", "answer", "due_at", "moved")

    def __init__(self, *, due_at: float, answer: Answer | None = None, ask: Callable[[], Answer] | None = None) -> None:
        self.due_at = due_at
        self.answer = answer
        self.moved: Callable[[], None] | None = None
        self._ask = ask

    def hasten(self, due_at: float) -> None:
        """Make it due at that instant, if that is earlier."""
        if due_at < self.due_at:
            self.due_at = due_at
            if self.moved is not None:
                self.moved()

    def settle(self, answer: Answer, *, due_at: float) -> None:
        """Fix the answer, to be given at that instant."""
        if self.answer is None:
            self.answer = answer
            self.due_at = due_at
            if self.moved is not None:
                self.moved()

    def take(self, now: float) -> Answer | None:
        """The answer if it is due; else None."""
        if now < self.due_at:
            return None
        if self.answer is None:
            assert self._ask is not None
            self.answer = self._ask()
        return self.answer


# Reading parameters as the Bot API does: a number may come as text, an object as JSON inside a form field.
#
# See docs/telegram.md, Requests and responses.


Params = dict[str, object]
Json = dict[str, object]


def text_of(params: Params, name: str) -> str:
    """The parameter as text; "" when absent."""
    value = params.get(name)
    if type(value) is str:
        return value
    if value is None:
        return ""
    return msgspec.json.encode(value).decode()


def integer(params: Params, name: str, default: int = 0) -> int:
    """The parameter as a number. What is no number counts as absent, as at Telegram."""
    value = params.get(name)
    if type(value) is int:
        return value
    if isinstance(value, float):
        return int(value)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            leading = _LEADING.match(value)
            return int(leading[1]) if leading else default
    return default


_LEADING = re.compile(r"\s*(-?\d+)")  # Telegram reads as far as there are digits


def number(params: Params, name: str) -> float | None:
    value = params.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def flag(params: Params, name: str) -> bool:
    """True for true, yes and 1."""
    value = params.get(name)
    if isinstance(value, str):
        return value.strip().lower() in {"true", "yes", "1"}
    return value is True or value == 1


def structure(params: Params, name: str, *, what: str) -> object:
    """An object or array, given as such or as JSON text; None when absent. `what` names it in the refusal."""
    value = params.get(name)
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        raise bad(f"can't parse {what} JSON object") from None


def mapping(params: Params, name: str, *, what: str) -> Json | None:
    found = structure(params, name, what=what)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise bad(f"can't parse {what} JSON object")
    return found


def sequence(params: Params, name: str, *, what: str) -> list[object] | None:
    found = structure(params, name, what=what)
    if found is None:
        return None
    if not isinstance(found, list):
        raise bad(f"expected an Array of {what}")
    return found


def integers(params: Params, name: str, *, what: str) -> list[int]:
    """A list of ids; refuses anything else in it."""
    found = sequence(params, name, what=what) or []
    try:
        return [int(item) for item in found if isinstance(item, (int, str))]
    except ValueError:
        raise bad(f"can't parse {what} JSON object") from None


# The ledger: what was really delivered, in order, and how often what was asked. Tests judge by it, so nothing here guesses.


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message that a chat has got, or one other write that took effect."""

    number: int  # from 1, without gaps, in the order of effect
    at: float
    bot_id: int
    chat_id: int
    thread_id: int | None
    message_id: int
    method: str
    text: str  # the text or caption as the chat sees it
    digest: str  # of all parameters and files; equal digests are equal requests


class Ledger:
    """Deliveries in order. Bounded if asked; `total` counts those that were let go of too."""

    def __init__(self, size_max: int | None = None) -> None:
        self._rows: deque[Delivery] = deque(maxlen=size_max)
        self.total = 0

    def add(self, delivery: Delivery) -> None:
        self._rows.append(delivery)
        self.total += 1

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> Delivery:
        return self._rows[index]

    def where(
        self,
        *,
        bot_id: int | None = None,
        chat_id: int | None = None,
        thread_id: int | None = None,
        method: str | None = None,
        after: int = 0,
    ) -> list[Delivery]:
        """Those that match everything given; `after` is a number already seen."""
        return [
            row
            for row in self._rows
            if row.number > after
            and (bot_id is None or row.bot_id == bot_id)
            and (chat_id is None or row.chat_id == chat_id)
            and (thread_id is None or row.thread_id == thread_id)
            and (method is None or row.method.lower() == method.lower())
        ]

    def of_chat(self, chat_id: int, *, bot_id: int | None = None) -> list[Delivery]:
        return self.where(chat_id=chat_id, bot_id=bot_id)

    def texts(self, chat_id: int | None = None, *, bot_id: int | None = None) -> list[str]:
        return [row.text for row in self.where(chat_id=chat_id, bot_id=bot_id)]

    def clear(self) -> None:
        self._rows.clear()
        self.total = 0


class Counters:
    """How often what happened since the start or the last reset."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()  # by method, as Telegram spells it
        self.answers: Counter[int] = Counter()  # by status, of answers that were made, whether or not they arrived
        self.faults: Counter[str] = Counter()  # by kind
        self.limited = 0  # refused by our own limits
        self.lost_before = 0  # dropped on the way in: without effect
        self.lost_after = 0  # took effect, and the answer was lost
        self.updates_queued = 0
        self.updates_filtered = 0
        self.updates_discarded = 0  # a cap of the queue was reached
        self.updates_expired = 0
        self.downloads = 0  # of files, refused ones not counted
        self.pushes: Counter[str] = Counter()  # webhook pushes: "ok", "refused", "failed"

    def as_json(self) -> dict[str, object]:
        return {
            name: ({str(key): value for key, value in held.items()} if isinstance(held, Counter) else held)
            for name, held in vars(self).items()
        }


def digest(params: Mapping[str, object], files: Mapping[str, UploadedFile]) -> str:
    """A short fingerprint of a request, the same for the same request whatever the order of its parameters."""
    mark = hashlib.blake2b(encode(params, order="deterministic"), digest_size=8)
    for name in sorted(files):
        mark.update(name.encode())
        mark.update(files[name].content)
    return mark.hexdigest()
