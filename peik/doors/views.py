"""What the REST door shows of letters, bots and counts. Ids are strings, times are RFC 3339, tokens never appear."""

from collections.abc import Mapping

import msgspec

from peik.engine.route import RouteStatus
from peik.ports import BotRecord, Cause, ChatRecord, LaneView, Tally
from peik.shown import letter_view as letter_view
from peik.shown import rfc3339 as rfc3339


def bot_view(bot: BotRecord) -> dict[str, object]:
    return {
        "bot_id": str(bot.bot_id),
        "username": bot.username,
        "is_account": bot.token.is_account,
        "inbound": bot.inbound,
        "missed": bot.missed,
        "paused": bot.paused,
        "limits": None if bot.limits is None else msgspec.structs.asdict(bot.limits),
        "created_at": rfc3339(bot.created_at_ms),
    }


def route_view(status: RouteStatus, *, is_in_use: bool) -> dict[str, object]:
    return {
        "name": status.name,
        "kind": status.kind,
        "state": status.state,
        "in_use": is_in_use,
        "failures": status.failures,
        "why": status.why or None,
        "since": rfc3339(status.since_ms),
        "probe_at": rfc3339(status.probe_at_ms),
    }


def tally_view(tally: Tally) -> dict[str, int]:
    return {
        "waiting": tally.waiting,
        "active": tally.active,
        "completed": tally.completed,
        "failed": tally.failed,
        "delayed": tally.delayed,
        "cancelled": tally.cancelled,
    }


def stats_view(tallies: Mapping[int, Tally]) -> dict[str, object]:
    bots = {str(bot_id): tally_view(tally) for bot_id, tally in tallies.items()}
    total: dict[str, object] = {name: sum(counts[name] for counts in bots.values()) for name in tally_view(Tally())}
    return {**total, "bots": bots}


def lane_view(lane: LaneView, why: str | None) -> dict[str, object]:
    return {
        "bot_id": str(lane.bot_id),
        "chat_id": str(lane.chat),
        "thread_id": str(lane.thread) if lane.thread else None,
        "waiting": lane.waiting,
        "head": str(lane.head),
        "why": why,
    }


def cause_view(cause: Cause) -> dict[str, object]:
    return {
        "reason": cause.reason,
        "is_uncertain": cause.is_uncertain,
        "count": cause.letters,
        "methods": list(cause.methods),
        "newest_id": str(cause.newest_id),
        "newest_at": rfc3339(cause.newest_at_ms),
    }


def chat_view(chat: ChatRecord) -> dict[str, object]:
    return {
        "bot_id": str(chat.bot_id),
        "chat_id": str(chat.chat),
        "same_as": None if chat.same_as is None else str(chat.same_as),
        "reachable": chat.shut_reason is None,
        "reason": chat.shut_reason,
        "refused_at": rfc3339(chat.shut_at_ms),
        "held_until": rfc3339(chat.held_until_ms),
    }
