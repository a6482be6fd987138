"""Webhook receivers in virtual time. They obey the port of the real poster and check what they get as a stranger would."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

from peik.outbox.store import Posted
from peik.testing.virtual import VirtualClock

TOLERANCE_S = 300  # Standard Webhooks: five minutes
HANGS = -1  # instead of a status: no answer, ever


def verified(secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float) -> dict[str, Any]:
    """The message, if its signature is right by the rules of Standard Webhooks."""
    message_id, at, signatures = (headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    assert abs(now_s - int(at)) <= TOLERANCE_S
    key = base64.b64decode(secret.removeprefix("whsec_"))
    wanted = base64.b64encode(
        hmac.new(key, b".".join((message_id.encode(), at.encode(), body)), hashlib.sha256).digest()
    )
    versions = [one.split(",", 1) for one in signatures.split(" ")]
    assert any(version == "v1" and hmac.compare_digest(given.encode(), wanted) for version, given in versions)
    message = json.loads(body)
    assert set(message) == {"type", "timestamp", "data"}
    return dict(message)


class Heard:
    """One message as it came in."""

    def __init__(self, at_s: float, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.at_s = at_s
        self.url = url
        self.id = headers["webhook-id"]
        self.headers = dict(headers)
        self.body = body
        self.message = json.loads(body)

    @property
    def letter_id(self) -> int:
        return int(self.message["data"]["id"])


class Receivers:
    """A `Poster`. `answer` says what comes back: a status, or HANGS."""

    def __init__(self, clock: VirtualClock, answer: Callable[[Heard], int] = lambda heard: 200) -> None:
        self._clock = clock
        self.answer = answer
        self.heard: list[Heard] = []
        self.at_once: dict[str, int] = {}
        self.at_once_max: dict[str, int] = {}
        self.all_at_once_max = 0
        self.came = asyncio.Event()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> Posted:
        heard = Heard(self._clock.mono(), url, headers, body)
        self.heard.append(heard)
        self.came.set()
        host = url.split("/")[2]
        self.at_once[host] = self.at_once.get(host, 0) + 1
        self.at_once_max[host] = max(self.at_once_max.get(host, 0), self.at_once[host])
        self.all_at_once_max = max(self.all_at_once_max, sum(self.at_once.values()))
        try:
            status = self.answer(heard)
            await asyncio.sleep(timeout_s if status == HANGS else 0.05)
        finally:
            self.at_once[host] -= 1
        return Posted(why="no answer") if status == HANGS else Posted(status=status)

    def of(self, host: str) -> list[Heard]:
        return [one for one in self.heard if one.url.split("/")[2] == host]
