"""A broadcast as somebody asks for it: checked, and made into one that can be stored."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from peik.broadcasts.audience import Audience, ContactAudience, ListAudience
from peik.broadcasts.moving import moved
from peik.broadcasts.records import Broadcast
from peik.broadcasts.writing import CONTACT_COLUMNS, check_placeholders, params_for
from peik.core.broadcast import Canary, Paid, Step, checked_canary, checked_paid
from peik.core.call import read_call
from peik.core.letter import OnUncertain
from peik.core.methods import MethodClass
from peik.core.problem import BadInput
from peik.core.quiet import Quiet, checked_quiet
from peik.zones import zone_of

PARAMS_BYTES_MAX = 64 * 1024
NAME_CHARS_MAX = 200
KEY_CHARS_MAX = 255
DIGESTED = 10_000
AHEAD_MS_MAX = 366 * 86_400_000  # so far a start may be put into the future

_encode = msgspec.json.Encoder(order="sorted").encode


class BroadcastRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A broadcast as somebody asks for it. The parameters are those of the method, without chat_id."""

    method: str
    params: Mapping[str, Any]
    audience: Audience
    bot_id: int | None = None
    name: str | None = None
    canary: Canary | None = None
    quiet: Quiet | None = None
    paid: Paid | None = None
    on_uncertain: OnUncertain | None = None
    start: bool = False
    start_at_ms: int | None = None
    key: str | None = None  # of idempotency, within its bot
    created_by: str | None = None


def drafted(request: BroadcastRequest, *, bot_id: int, number: int, at_ms: int) -> Broadcast:
    """The broadcast, with `number` below 100,000 in its id. Raises BadInput."""
    check_terms(request, at_ms)
    params = {name: value for name, value in request.params.items() if name not in ("chat_id", "allow_paid_broadcast")}
    encoded = msgspec.json.encode(params)
    if len(encoded) > PARAMS_BYTES_MAX:
        raise BadInput(code="params_too_large", detail=f"params holds at most {PARAMS_BYTES_MAX} bytes of JSON.")
    audience = request.audience
    draft = Broadcast(
        id=id_of(at_ms, number),
        bot_id=bot_id,
        name=request.name,
        method=request.method,
        params=encoded.decode(),
        wanted=audience.wanted if isinstance(audience, ContactAudience) else None,
        columns=audience.columns if isinstance(audience, ListAudience) else (),
        canary=request.canary,
        quiet=request.quiet,
        paid=request.paid,
        on_uncertain=request.on_uncertain,
        created_at_ms=at_ms,
        created_by=request.created_by,
        moved_at_ms=at_ms,
        total=len(audience.recipients) if isinstance(audience, ListAudience) else 0,
    )
    check_placeholders(params, CONTACT_COLUMNS if isinstance(audience, ContactAudience) else audience.columns)
    draft = msgspec.structs.replace(draft, method=(call := _checked_call(draft)).method, weight=call.weight)
    if request.start_at_ms is not None and request.start_at_ms > at_ms:
        return _surely(moved(draft, Step.SCHEDULE, at_ms=at_ms, until_ms=request.start_at_ms))
    is_due = request.start or request.start_at_ms is not None
    return _surely(moved(draft, Step.START, at_ms=at_ms)) if is_due else draft


def id_of(at_ms: int, number: int) -> str:
    """In the order of time."""
    return f"{at_ms:013d}{number:05d}"


def _surely(broadcast: Broadcast | None) -> Broadcast:
    assert broadcast is not None
    return broadcast


def check_terms(request: BroadcastRequest, at_ms: int) -> None:
    if request.canary is not None:
        checked_canary(request.canary)
    if request.quiet is not None:
        zone_of(checked_quiet(request.quiet).tz)
    if request.paid is not None:
        checked_paid(request.paid)
    elif request.params.get("allow_paid_broadcast"):
        raise BadInput(
            code="bad_paid", detail="A paid broadcast is asked for with paid: {stars_max}, so that it has a cap."
        )
    if request.name is not None and not 0 < len(request.name) <= NAME_CHARS_MAX:
        raise BadInput(code="bad_name", detail=f"name has 1 to {NAME_CHARS_MAX} characters.")
    if request.key is not None and not 0 < len(request.key) <= KEY_CHARS_MAX:
        raise BadInput(code="bad_idempotency_key", detail=f"An idempotency key has 1 to {KEY_CHARS_MAX} characters.")
    if request.start_at_ms is not None:
        check_start(request.start_at_ms, at_ms)


def check_start(start_at_ms: int, at_ms: int) -> None:
    if start_at_ms - at_ms > AHEAD_MS_MAX:
        raise BadInput(code="bad_time", detail="A broadcast starts within a year.")


class _Call(msgspec.Struct, frozen=True):
    method: str
    weight: int


def _checked_call(draft: Broadcast) -> _Call:
    """Whether it can be sent to anybody at all."""
    reading = read_call(draft.method, params_for(draft, 1, None))
    if reading.kind is not MethodClass.SEND or reading.chat != 1:
        raise BadInput(
            code="not_a_send",
            detail=f"{reading.method} does not send a message to a chat, so it cannot be a broadcast.",
        )
    if reading.awaits is not None:
        raise BadInput(code="not_a_send", detail="A broadcast cannot refer to another letter.")
    return _Call(reading.method, max(1, reading.weight))


def shelved(key: str, bot_id: int) -> str:
    return hashlib.sha256(f"{bot_id}\0{key}".encode()).hexdigest()


def digest_of(request: BroadcastRequest, bot_id: int) -> str:
    """Equal for the same broadcast, whoever asks for it and whenever."""
    audience = request.audience
    plain = msgspec.structs.replace(
        request, key=None, created_by=None, bot_id=bot_id, audience=ListAudience(recipients=())
    )
    digest = hashlib.sha256(_encode(plain))
    if isinstance(audience, ContactAudience):  # sets have no order
        wanted = msgspec.structs.asdict(audience.wanted)
        digest.update(_encode({name: _in_order(value) for name, value in wanted.items()}))
        return digest.hexdigest()
    digest.update(_encode(audience.columns))
    for first in range(0, len(audience.recipients), DIGESTED):  # a million of them are no copy of a million
        digest.update(_encode(audience.recipients[first : first + DIGESTED]))
    return digest.hexdigest()


def _in_order(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else value
