"""Letters of a job to the chat that it tells of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from peik.core.job import Job as Record
from peik.core.job_notice import read_notice
from peik.core.letter import State
from peik.core.problem import BadInput


class Letters(Protocol):
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

    def __init__(self, letters: Letters) -> None:
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
