"""What operators are told, as letters for Peik. Keys come from the task: a notice that is asked for twice is sent once."""

import json
from pathlib import Path
from typing import Any

from examples.operator_notifications.courier import Courier, File, Link
from examples.operator_notifications.report import pdf

TEXTS: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "texts.json").read_text(encoding="utf-8"))
USUAL = "ru"


def language_of(code: str | None) -> str:
    """`uz-Latn` is Uzbek; who has neither language reads Russian."""
    language = (code or "").partition("-")[0]
    return language if language in TEXTS else USUAL


class Notices:
    """Each method returns the id of its letter once Peik has it; Peik brings it to the chat, in this order."""

    def __init__(self, courier: Courier, *, results_url: str | None = None) -> None:
        self._courier = courier
        self._results_url = results_url

    async def task_assigned(self, link: Link, task: int, address: str) -> str:
        return await self._send(
            link, task, "task_assigned", "sendMessage", {"text": _said(link, "task_assigned", task, address)}
        )

    async def photo(self, link: Link, task: int, content: bytes, content_type: str) -> str:
        file = File(field="photo", name=f"task-{task}", content_type=content_type, content=content)
        return await self._send(link, task, "photo", "sendPhoto", {"caption": _said(link, "photo", task)}, file)

    async def report(self, link: Link, task: int, lines: list[str]) -> str:
        file = File(field="document", name=f"task-{task}.pdf", content_type="application/pdf", content=pdf(lines))
        return await self._send(link, task, "report", "sendDocument", {"caption": _said(link, "report", task)}, file)

    async def location(self, link: Link, task: int, *, latitude: float, longitude: float) -> str:
        place = {"latitude": latitude, "longitude": longitude}
        return await self._send(link, task, "location", "sendLocation", place)

    async def _send(
        self, link: Link, task: int, kind: str, method: str, params: dict[str, Any], file: File | None = None
    ) -> str:
        letter: dict[str, Any] = {
            "method": method,
            "params": {"chat_id": link.chat_id, **params},
            "priority": 1,  # before broadcasts and the like
            "metadata": {"user_id": link.operator, "message_type": kind},
        }
        if self._results_url is not None:
            letter["webhook_url"] = self._results_url
        return await self._courier.post(letter, key=f"task-{task}-{kind}-{link.operator}", file=file)


def _said(link: Link, name: str, task: int, address: str = "") -> str:
    return TEXTS[language_of(link.language)][name].format(task=task, address=address)
