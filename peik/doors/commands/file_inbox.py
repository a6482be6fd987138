"""What came in, read from the store itself. Nothing is handed on by it: the nodes of the store do that."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from peik.clock import SystemClock
from peik.config import Config
from peik.desk import Desk
from peik.doors.bodies import decode, parse_id
from peik.doors.commands.counter import Document, Filters
from peik.doors.inbox_views import (
    arrival_view,
    consumer_view,
    inbox_stats,
    inbox_view,
    recovery_view,
    tally_view,
    whole_arrival_view,
)
from peik.doors.queries import arrival_filter_of
from peik.doors.rest_arrivals import AckBody, ReplayBody, SeenBody, acknowledge, replay, seen_messages
from peik.doors.rest_consumers import ConsumerBody, set_consumer
from peik.doors.traces import answers_to, wanted_of
from peik.errors import Conflict
from peik.events import Events
from peik.inbox.desk import InboxDesk
from peik.inbox_ports import ArrivalView
from peik.store.choosing import AnyStore


class FileInbox:
    def __init__(
        self,
        config: Config,
        *,
        store: AnyStore,
        desk: Desk,
        run: Callable[[Coroutine[object, object, Any]], Any],
        owner: Callable[[], str | None],
    ) -> None:
        self._config = config
        self._desk = desk
        self._run = run
        self._owner = owner
        self._inbox = InboxDesk(
            store=store.inbox, clock=SystemClock(), events=Events(), missed_after_s=config.missed_after
        )

    def arrivals(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        wanted = arrival_filter_of(dict(filters))
        before = None if cursor is None else parse_id(cursor, "cursor")
        views = self._run(self._inbox.arrivals(wanted, before=before, limit=limit))
        more = str(views[-1].arrival.id) if len(views) == limit else None
        return _plain(
            {"arrivals": [arrival_view(view, consumer=wanted.consumer) for view in views], "next_cursor": more}
        )

    def arrival(self, arrival_id: str) -> Document:
        return self._whole(self._run(self._inbox.arrival(parse_id(arrival_id, "arrival_id"))))

    def _whole(self, view: ArrivalView) -> Document:
        return _plain(whole_arrival_view(view, self._run(answers_to(self._desk, wanted_of(view.arrival)))))

    def retry(self, arrival_id: str, consumer: str | None) -> Document:
        return self._whole(self._run(self._inbox.retry(parse_id(arrival_id, "arrival_id"), consumer)))

    def retry_dead(self, filters: Filters) -> Document:
        return {"retried": self._run(self._inbox.retry_dead(arrival_filter_of(dict(filters))))}

    def clear_dead(self, filters: Filters) -> Document:
        return {"cleared": self._run(self._inbox.clear_dead(arrival_filter_of(dict(filters))))}

    def replay(self, wanted: Document) -> Document:
        body = decode(ReplayBody, msgspec.json.encode(wanted))
        return dict(self._run(replay(self._inbox, self._bot_id(body.bot_id), body)))

    def acknowledge(self, wanted: Document) -> Document:
        body = decode(AckBody, msgspec.json.encode(wanted))
        return dict(self._run(acknowledge(self._inbox, self._bot_id(body.bot_id), body)))

    def note_seen(self, wanted: Document) -> Document:
        messages = seen_messages(body := decode(SeenBody, msgspec.json.encode(wanted)))
        matched = self._run(self._inbox.note_handled(self._bot_id(body.bot_id), messages))
        return {"noted": len(messages), "matched": matched}

    def inbox(self, bot_id: str | None) -> Document:
        bots = self._desk.bots() if bot_id is None else [self._desk.bot(parse_id(bot_id, "bot_id"))]
        return _plain({"bots": [inbox_view(bot, self._run(self._inbox.inbox(bot.bot_id))) for bot in bots]})

    def stats(self) -> Document:
        """The inbox's part of GET /v1/stats."""
        return inbox_stats(self._run(self._inbox.tallies()))

    # ---- consumers ----

    def consumers(self, bot_id: str | None) -> Document:
        tallies = self._run(self._inbox.tallies(None if bot_id is None else self._bot_id(bot_id)))
        return _plain({"consumers": [tally_view(tally) for tally in tallies]})

    def set_consumer(self, bot_id: str, name: str, wanted: Document) -> Document:
        body = decode(ConsumerBody, msgspec.json.encode(wanted))
        return _plain(consumer_view(self._run(set_consumer(self._inbox, self._bot_id(bot_id), name, body))))

    def remove_consumer(self, bot_id: str, name: str) -> None:
        self._run(self._inbox.remove_consumer(self._bot_id(bot_id), name))

    # ---- recovery ----

    def recover(self, bot_id: str) -> Document:
        """Fetch in the place of a node, for this one pass. Nothing is sent and nothing is handed on meanwhile."""
        bot = self._desk.bot(parse_id(bot_id, "bot_id"))
        owner = self._owner()
        if owner is not None:
            raise Conflict(
                code="store_owned",
                detail=f"{owner} has the store and fetches updates itself. Ask it, with --url, or end it first.",
            )
        from peik.app import recover_once

        return recovery_view(self._run(recover_once(self._config, bot.bot_id)))

    def _bot_id(self, asked: int | str | None) -> int:
        return self._desk.bot(parse_id(asked, "bot_id") if isinstance(asked, str) else asked).bot_id


def _plain(document: object) -> Document:
    """With what stays as bytes as values, as they come over the wire."""
    return dict(msgspec.json.decode(msgspec.json.encode(document)))
