"""A job as its function sees it: `Job` for async functions, `BlockingJob` for those in a thread or in a process of their own.

A blocking one asks Peik by messages (dicts that fit into JSON), and `answered` is Peik's side of that.
"""

import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

import peik.errors
from peik.core.letter import State
from peik.errors import BadInput, Conflict, Problem, described
from peik.jobs.hosts import HostDown, Hosts, fault_of, is_answer
from peik.jobs.model import JobRecord as Record
from peik.jobs.model import read_notice
from peik.jobs.outcome import HostShut, WorkFailed

TEXT_CHARS_MAX = 200

Message = dict[str, Any]


class JobChatPort(Protocol):
    """The chat that a job tells of: see peik.jobs.job."""

    async def send(
        self, job: Record, method: str, params: Mapping[str, Any], *, files: Mapping[str, Path], idempotency_key: str
    ) -> int:
        """The id of the letter. Raises BadInput if the job has no chat, or the call cannot be one."""


class _Facts:
    """What both kinds of jobs have."""

    id: int
    kind: str
    user: str
    params: dict[str, Any]
    attempt: int  # 1, 2 …
    metadata: dict[str, Any]
    folder: Path  # empty at the beginning of each run, and removed after it

    def __init__(self, facts: Message) -> None:
        self.id = facts["id"]
        self.kind = facts["kind"]
        self.user = facts["user"]
        self.params = facts["params"]
        self.attempt = facts["attempt"]
        self.metadata = facts["metadata"]
        self.folder = Path(facts["folder"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.kind}, attempt {self.attempt})"


def facts_of(record: Record, folder: Path) -> Message:
    """A job as a message."""
    return {
        "id": record.id,
        "kind": record.kind,
        "user": record.user,
        "params": msgspec.json.decode(record.params),
        "attempt": record.attempts_made + 1,
        "metadata": {} if record.metadata is None else msgspec.json.decode(record.metadata),
        "folder": str(folder),
    }


class Job(_Facts):
    """What an async function of a job gets."""

    def __init__(
        self,
        record: Record,
        folder: Path,
        *,
        chat: JobChatPort,
        hosts: Hosts,
        on_progress: Callable[[float | None, str | None], None],
    ) -> None:
        super().__init__(facts_of(record, folder))
        self.is_cancelling = False  # the run is to end; what does not within seconds is cut off
        self._record = record
        self._chat = chat
        self._hosts = hosts
        self._on_progress = on_progress
        self._sends = 0

    async def progress(self, done: float | None = None, text: str | None = None) -> None:
        """How far it is, from 0 to 1, and what it does. Cheap: it is kept with the next sign of life, and told at leisure."""
        if done is not None:
            done = min(max(float(done), 0.0), 1.0) if done == done else None  # the second: not a number
        self._on_progress(done, None if text is None else text[:TEXT_CHARS_MAX])

    @asynccontextmanager
    async def host(self, name: str) -> AsyncIterator[None]:
        """`async with job.host("example.com"):` around what talks to it. While the host fails for everybody, this raises
        HostShut: let it pass, and the job waits for the host, which costs it nothing."""
        try:
            async with self._hosts.of(name, self.id):
                yield
        except Exception as error:
            retry_s = None if fault_of(error) is None else self._hosts.shut_s(name)
            if retry_s is None:
                raise
            # The host is known to be down, and this was only a try whether it still is.
            raise HostShut(name, retry_s) from error

    async def send(self, method: str, /, *, key: str | None = None, **params: Any) -> int:
        """A letter to the job's chat, and its id. Files are given as Path.

        A run that comes again sends nothing twice: the n-th letter of a run is known by its number, or by a `key` of yours
        (within the job). If the n-th letter is another one than last time, it is sent."""
        self._sends += 1
        files = {name: value for name, value in params.items() if isinstance(value, Path)}
        plain = {name: value for name, value in params.items() if name not in files and value is not None}
        idempotency_key = f"job:{self.id}:{self._sends if key is None else key}"
        try:
            return await self._send(method, plain, files, idempotency_key)
        except Conflict as error:
            if key is not None or error.code != "idempotency_key_reused":
                raise
        return await self._send(method, plain, files, f"{idempotency_key}:{_digest(method, plain, files)}")

    async def _send(self, method: str, plain: Message, files: Mapping[str, Path], key: str) -> int:
        return await self._chat.send(self._record, method, plain, files=files, idempotency_key=key)

    async def send_text(self, text: str, **params: Any) -> int:
        return await self.send("sendMessage", text=text, **params)

    async def send_photo(self, photo: Path | str, **params: Any) -> int:
        return await self.send("sendPhoto", photo=photo, **params)

    async def send_document(self, document: Path | str, **params: Any) -> int:
        return await self.send("sendDocument", document=document, **params)

    async def send_video(self, video: Path | str, **params: Any) -> int:
        return await self.send("sendVideo", video=video, **params)

    async def send_audio(self, audio: Path | str, **params: Any) -> int:
        return await self.send("sendAudio", audio=audio, **params)


def _digest(method: str, params: Message, files: Mapping[str, Path]) -> str:
    """Of a letter: what makes it another one than the one under the same number last time."""
    names = {field: [path.name, path.stat().st_size] for field, path in files.items()}
    told = msgspec.json.encode([method, params, names], order="sorted")
    return hashlib.blake2b(told, digest_size=12).hexdigest()


class BlockingJob(_Facts):
    """What a function in a thread or a process gets: the same, without await. Each call returns when Peik has taken it."""

    def __init__(self, facts: Message, ask: Callable[[Message], Message]) -> None:
        super().__init__(facts)
        self._ask = ask
        self._is_cancelling = threading.Event()

    @property
    def is_cancelling(self) -> bool:
        """The run is to end. A thread cannot be killed, so look at this now and then (a process can, and is)."""
        return self._is_cancelling.is_set()

    def begin_to_end(self) -> None:
        """Peik's own: the run is to end."""
        self._is_cancelling.set()

    def progress(self, done: float | None = None, text: str | None = None) -> None:
        self._asked({"do": "progress", "done": None if done is None else float(done), "text": text})

    @contextmanager
    def host(self, name: str) -> Iterator[None]:
        place = self._asked({"do": "host", "host": name})["place"]
        try:
            yield
        except Exception as error:
            retry_s = self._asked({"do": "host_over", "place": place, **_spoken(error)})["retry_s"]
            if retry_s is None:
                raise
            raise HostShut(name, retry_s) from error
        self._asked({"do": "host_over", "place": place, "fault": None, "is_well": True})

    def send(self, method: str, /, *, key: str | None = None, **params: Any) -> int:
        files = {name: str(value.absolute()) for name, value in params.items() if isinstance(value, Path)}
        plain = {name: value for name, value in params.items() if name not in files}
        letter: int = self._asked({"do": "send", "method": method, "params": plain, "files": files, "key": key})[
            "letter"
        ]
        return letter

    def send_text(self, text: str, **params: Any) -> int:
        return self.send("sendMessage", text=text, **params)

    def send_photo(self, photo: Path | str, **params: Any) -> int:
        return self.send("sendPhoto", photo=photo, **params)

    def send_document(self, document: Path | str, **params: Any) -> int:
        return self.send("sendDocument", document=document, **params)

    def send_video(self, video: Path | str, **params: Any) -> int:
        return self.send("sendVideo", video=video, **params)

    def send_audio(self, audio: Path | str, **params: Any) -> int:
        return self.send("sendAudio", audio=audio, **params)

    def _asked(self, message: Message) -> Message:
        answer = self._ask(message)
        error = answer.get("error")
        if error is not None:
            raise _read_error(error)
        return answer


def _spoken(error: Exception) -> Message:
    """What an error says of a host."""
    fault = fault_of(error)
    told = None if fault is None else {"why": str(fault), "is_connect": fault.is_connect}
    return {"fault": told, "is_well": is_answer(error)}


class JobAnswers:
    """Peik's side of one blocking job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._open: dict[int, AsyncExitStack] = {}  # hosts that it talks to
        self._places = 0

    async def answered(self, message: Message) -> Message:
        """Never raises: what went wrong is an answer, too."""
        try:
            return await self._answered(message)
        except Exception as error:  # noqa: BLE001  it is raised again where the function waits
            return {"error": _written_error(error)}

    async def _answered(self, message: Message) -> Message:
        match message:
            case {"do": "progress", "done": done, "text": text}:
                await self._job.progress(done, text)
                return {}
            case {
                "do": "send",
                "method": str() as method,
                "params": dict() as params,
                "files": dict() as files,
                "key": key,
            }:
                lifted = {name: Path(path) for name, path in files.items()}
                return {"letter": await self._job.send(method, key=key, **params, **lifted)}
            case {"do": "host", "host": str() as host}:
                stack = AsyncExitStack()
                await stack.enter_async_context(self._job.host(host))
                self._places += 1
                self._open[self._places] = stack
                return {"place": self._places}
            case {"do": "host_over", "place": int() as place, "fault": fault, "is_well": is_well}:
                return {"retry_s": await self._leave(place, fault, is_well=is_well)}
        raise WorkFailed("It asked for something that Peik does not know.")

    async def _leave(self, place: int, fault: Message | None, *, is_well: bool) -> float | None:
        stack = self._open.pop(place)
        error: Exception | None = None
        if fault is not None:
            error = HostDown(fault["why"], is_connect=fault["is_connect"])
        elif not is_well:
            error = WorkFailed("It ended for a reason that says nothing of the host.")
        try:
            await stack.__aexit__(None if error is None else type(error), error, None)
        except HostShut as shut:
            return shut.retry_s
        return None

    async def close(self) -> None:
        """The work is over, perhaps in the middle of a talk with a host."""
        for place in list(self._open):
            await self._leave(place, None, is_well=False)


def _written_error(error: Exception) -> Message:
    match error:
        case HostShut():
            return {"type": "HostShut", "host": error.host, "retry_s": error.retry_s}
        case Problem():
            return {"type": type(error).__name__, "code": error.code, "detail": error.detail}
        case _:
            return {"type": "", "detail": described(error)}


def _read_error(error: Message) -> Exception:
    if error["type"] == "HostShut":
        return HostShut(error["host"], error["retry_s"])
    found = getattr(peik.errors, error["type"], None) if error["type"] else None
    if isinstance(found, type) and issubclass(found, Problem):
        return found(code=error["code"], detail=error["detail"])
    return WorkFailed(error["detail"])


# Letters of a job to the chat that it tells of.


class JobLettersPort(Protocol):
    """What jobs need of the outbox."""

    async def accept(
        self, bot_id: int | None, method: str, params: bytes, *, files: Mapping[str, Path], idempotency_key: str
    ) -> int:
        """The id of the letter, durable now; under a key that was used before, of the one that it was used for. `bot_id` None:
        the only bot, or the usual one. Raises BadInput, NotFound (no such bot), Conflict (`idempotency_key_reused`: the key
        was used for something else) and Unavailable."""

    async def state(self, letter_id: int) -> State | None:
        """How a letter stands; None: it is not here (any more). Raises Unavailable."""


class JobChat:
    """Sends for jobs. A job without a notice has no chat, but may name one with each letter."""

    def __init__(self, letters: JobLettersPort) -> None:
        self._letters = letters

    async def send(
        self, job: Record, method: str, params: Mapping[str, Any], *, files: Mapping[str, Path], idempotency_key: str
    ) -> int:
        """The id of the letter. Raises BadInput if the job has no chat, a file is none, or the call cannot be one; Conflict if
        the key was used for something else; and Unavailable."""
        notice = read_notice(job.notice)
        place: dict[str, Any] = {}
        if "chat_id" not in params:
            if notice is None:
                raise BadInput(code="no_chat", detail="The job was queued without a chat: name one with chat_id.")
            place["chat_id"] = notice.chat_id
            if notice.thread_id is not None:
                place["message_thread_id"] = notice.thread_id
        for field, path in files.items():
            if not path.is_file():
                raise BadInput(code="no_file", detail=f"{field}: there is no file {path.name} to send.")
        return await self._letters.accept(
            None if notice is None else notice.bot_id or None,
            method,
            _json({**place, **params}),
            files=files,
            idempotency_key=idempotency_key,
        )


def _json(params: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(params)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(code="bad_params", detail=f"The parameters cannot be written as JSON: {error}.") from None
