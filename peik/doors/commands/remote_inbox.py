"""What came in, asked of a running Peik over REST."""

import urllib.parse
from typing import Protocol

from peik.doors.commands.counter import Document, Filters


class Call(Protocol):
    """One request, and the document that it is answered with."""

    def __call__(
        self,
        verb: str,
        path: str,
        query: Filters | None = None,
        *,
        body: Document | None = None,
        timeout_s: float | None = 60.0,
    ) -> Document: ...


class RestInbox:
    def __init__(self, call: Call) -> None:
        self._call = call

    def arrivals(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        return self._call("GET", "/v1/arrivals", {**filters, **_some(cursor=cursor, limit=str(limit))})

    def arrival(self, arrival_id: str) -> Document:
        return self._call("GET", f"/v1/arrivals/{_quoted(arrival_id)}")

    def retry(self, arrival_id: str, consumer: str | None) -> Document:
        return self._call("POST", f"/v1/arrivals/{_quoted(arrival_id)}/retry", _some(consumer=consumer))

    def retry_dead(self, filters: Filters) -> Document:
        numbers = {name: int(value) for name, value in filters.items() if name in ("first_number", "last_number")}
        return self._call("POST", "/v1/arrivals/dead/retry", body={**filters, **numbers}, timeout_s=None)

    def clear_dead(self, filters: Filters) -> Document:
        return self._call("DELETE", "/v1/arrivals/dead", filters, timeout_s=None)

    def replay(self, wanted: Document) -> Document:
        return self._call("POST", "/v1/arrivals/replay", body=wanted, timeout_s=None)

    def acknowledge(self, wanted: Document) -> Document:
        return self._call("POST", "/v1/arrivals/ack", body=wanted)

    def note_seen(self, wanted: Document) -> Document:
        return self._call("POST", "/v1/arrivals/seen", body=wanted)

    def inbox(self, bot_id: str | None) -> Document:
        return self._call("GET", "/v1/inbox", _some(bot_id=bot_id))

    def consumers(self, bot_id: str | None) -> Document:
        return self._call("GET", "/v1/consumers", _some(bot_id=bot_id))

    def set_consumer(self, bot_id: str, name: str, wanted: Document) -> Document:
        return self._call("PUT", f"/v1/consumers/{_quoted(bot_id)}/{_quoted(name)}", body=wanted)

    def remove_consumer(self, bot_id: str, name: str) -> None:
        self._call("DELETE", f"/v1/consumers/{_quoted(bot_id)}/{_quoted(name)}")

    def recover(self, bot_id: str) -> Document:
        return self._call("POST", f"/v1/bots/{_quoted(bot_id)}/recover", timeout_s=None)


def _some(**query: str | None) -> dict[str, str]:
    return {name: value for name, value in query.items() if value is not None}


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")
