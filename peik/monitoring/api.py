"""REST: how Peik stands, on one page: backlog, throughput, latency, routes, inboxes, alerts, nodes, jobs, accounts."""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.units import rfc3339
from peik.monitoring.overview import Overview, of_bots
from peik.monitoring.values import BotLine, InboxLine, OverviewView, Point
from peik.outbox.answers import LetterCountsAnswer
from peik.web.access import Access
from peik.web.openapi import ID, TIME, Json, OperationRow, nullable, shape
from peik.web.responses import Route, json_response


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
        "letters": LetterCountsAnswer.of(view.letters),
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
        "letters": LetterCountsAnswer.of(line.letters),
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


# The overview's part of the OpenAPI document, and the metrics' beside it.


_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_SECONDS: Json = {"type": "number"}
_FLAG: Json = {"type": "boolean"}
_COUNTS: Json = shape(**dict.fromkeys(("waiting", "active", "completed", "failed", "delayed", "cancelled"), _WHOLE))


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


_PERCENTILES = nullable(shape(p50_s=_SECONDS, p95_s=_SECONDS, p99_s=_SECONDS))
_POINT = shape(
    at=TIME | {"description": "When this stretch of time began."},
    seconds=_WHOLE,
    accepted=_WHOLE,
    delivered=_WHOLE,
    failed=_WHOLE,
    uncertain=_WHOLE | {"description": "Tries that may have arrived."},
    retried=_WHOLE,
    held=_WHOLE | {"description": "How often Telegram asked to wait (429)."},
    held_s=_SECONDS,
    updates=_WHOLE,
    jobs_done=_WHOLE,
    jobs_failed=_WHOLE,
    end_to_end=_PERCENTILES | {"description": "From accepted to delivered."},
    tries=_PERCENTILES | {"description": "One call of Telegram."},
)
_A_POINT: Json = {"$ref": "#/components/schemas/Figures"}

OVERVIEW_SCHEMAS: Json = {
    "Figures": _POINT,
    "Overview": shape(
        at=TIME,
        node=_TEXT | {"description": "The node that answers."},
        letters=_COUNTS,
        oldest_waiting_at=nullable(TIME),
        bots=_list(
            shape(
                bot_id=ID,
                username=nullable(_TEXT),
                is_account=_FLAG,
                paused=nullable(_TEXT),
                letters=_COUNTS,
                oldest_waiting_at=nullable(TIME),
            )
        ),
        now=_A_POINT,
        hour=_A_POINT,
        day=_A_POINT,
        last_hour=_list(_A_POINT) | {"description": "A minute each, the oldest first; the last one is not over."},
        last_day=_list(_A_POINT) | {"description": "A quarter of an hour each."},
        routes=_list({"type": "object"}),
        hosts=_list({"type": "object"}) | {"description": "Outside hosts of jobs that are not well."},
        inbox=_list({"type": "object"}),
        alerts=_list({"type": "object"}) | {"description": "Troubles that go on, the newest first."},
        nodes=_list({"type": "object"}),
        jobs={"type": "object", "additionalProperties": _COUNTS},
        sessions=nullable({"type": "object", "additionalProperties": _WHOLE}),
        missing=_list(_TEXT) | {"description": "What the store did not tell just now: it is shown as it was before."},
    ),
    "Metrics": _TEXT | {"description": "The text format of Prometheus, or OpenMetrics if it is asked for."},
}

OVERVIEW_OPERATIONS: dict[str, OperationRow] = {
    "getOverview": OperationRow(answers={200: "Overview"}),
    "getMetrics": OperationRow(
        answers={200: "Metrics"}, media_type="text/plain", other_media_types=("application/openmetrics-text",)
    ),
}
