"""The overview's part of the OpenAPI document, and the metrics' beside it."""

from peik.doors.openapi_shapes import ID, TIME, Json, Operation, nullable, shape

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

OVERVIEW_OPERATIONS: dict[str, Operation] = {
    "getOverview": Operation(answers={200: "Overview"}),
    "getMetrics": Operation(
        answers={200: "Metrics"}, media_type="text/plain", other_media_types=("application/openmetrics-text",)
    ),
}
