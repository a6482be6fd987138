"""What the simulated Telegram says back: whole answers, refusals, and answers that are still to come."""

from collections.abc import Callable

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
