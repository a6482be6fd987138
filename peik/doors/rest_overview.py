"""REST: how Peik stands, on one page: backlog, throughput, latency, routes, inboxes, alerts, nodes, jobs, accounts."""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.doors.access import Access
from peik.doors.replies import Route, json_response
from peik.doors.views import rfc3339, tally_view
from peik.ops.overview import Overview, of_bots
from peik.ops.overview_values import BotLine, InboxLine, OverviewView, Point


class OverviewRoutes:
    def __init__(self, overview: Overview, access: Access) -> None:
        self._overview = overview
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (("GET", "/v1/overview", self.get_overview, "getOverview", "health"),)

    async def get_overview(self, request: Request) -> Response:
        """How everything stands now, and what happened in the last hour and the last day."""
        caller = self._access.admit(request, "read")
        view = await self._overview.now()
        if caller.key.bot_ids is not None:
            view = of_bots(view, caller.sees)
        return json_response(overview_view(view))


# ---- showing ----


def overview_view(view: OverviewView) -> dict[str, object]:
    return {
        "at": rfc3339(view.at_ms),
        "node": view.node,
        "letters": tally_view(view.letters),
        "oldest_waiting_at": rfc3339(view.oldest_waiting_ms),
        "bots": [_bot(line) for line in view.bots],
        "now": _point(view.now),
        "hour": _point(view.hour),
        "day": _point(view.day),
        "last_hour": [_point(point) for point in view.last_hour],
        "last_day": [_point(point) for point in view.last_day],
        "routes": _timed(view.routes),
        "hosts": _timed(view.hosts),
        "inbox": [_inbox(line) for line in view.inbox],
        "alerts": [{**one, "bot_id": str(one["bot_id"]) if one["bot_id"] else None} for one in _timed(view.alerts)],
        "nodes": _timed(view.nodes),
        "jobs": view.jobs,
        "sessions": view.sessions,
        "missing": view.missing,
    }


def _bot(line: BotLine) -> dict[str, object]:
    return {
        "bot_id": str(line.bot_id),
        "username": line.username,
        "is_account": line.is_account,
        "paused": line.paused,
        "letters": tally_view(line.letters),
        "oldest_waiting_at": rfc3339(line.oldest_waiting_ms),
    }


def _inbox(line: InboxLine) -> dict[str, object]:
    shown = _times(msgspec.structs.asdict(line))
    return {**shown, "bot_id": str(line.bot_id), "consumers": _timed(line.consumers)}


def _point(point: Point) -> dict[str, object]:
    return _times(msgspec.structs.asdict(point))


def _timed(lines: Sequence[msgspec.Struct]) -> list[dict[str, object]]:
    return [_times(msgspec.structs.asdict(line)) for line in lines]


def _times(shown: dict[str, object]) -> dict[str, object]:
    """Instants as all of REST shows them: `since_ms` is `since`, and RFC 3339."""
    return {
        name.removesuffix("_ms"): rfc3339(value) if name.endswith("_ms") and isinstance(value, int | None) else value
        for name, value in shown.items()
    }
