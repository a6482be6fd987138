"""Records of the inbox as Redis keeps them, both ways: see arrivals.lua and consumers.lua."""

import msgspec

from peik.store.moving.records import Arrived, Story, history_of, lines_of
from peik.store.redis.records import chat_key, chat_of, encode


class _UpdateRow(msgspec.Struct, array_like=True, frozen=True):
    bot: str
    type: str
    lane: str
    user_id: int | None
    message_id: int | None
    sent_at: int | None
    digest: str
    payload: str


_decode_update = msgspec.msgpack.Decoder(_UpdateRow).decode


def arrival_row(one: Arrived) -> bytes:
    """A line of what we know of it, then the update as it came; see arrivals.lua."""
    update = _UpdateRow(
        str(one.bot_id),
        one.type,
        chat_key(one.lane),
        one.user_id,
        one.message_id,
        one.sent_at,
        one.digest.hex(),
        one.payload,
    )
    size_bytes = len(one.payload.encode())
    words = (one.number, one.epoch, one.received_at, one.replay_of or 0, one.only_for, one.update_id, size_bytes)
    return " ".join(map(str, words)).encode() + b"\n" + encode(update)


def arrival_of(arrival_id: int, raw: bytes) -> Arrived:
    line, _, rest = raw.partition(b"\n")
    number, epoch, received_at, replay_of, only_for, update_id, _ = (int(word) for word in line.split(b" "))
    update = _decode_update(rest)
    return Arrived(
        id=arrival_id,
        bot_id=int(update.bot),
        number=number,
        epoch=epoch,
        update_id=update_id,
        type=update.type,
        lane=chat_of(update.lane),
        user_id=update.user_id,
        message_id=update.message_id,
        sent_at=update.sent_at,
        received_at=received_at,
        digest=bytes.fromhex(update.digest),
        payload=update.payload,
        replay_of=replay_of or None,
        only_for=only_for,
    )


class ReaderRow(msgspec.Struct, omit_defaults=True, frozen=True):
    bot: str
    name: str
    kind: str
    connections: int
    at: int
    url: str | None = None
    secret: str | None = None
    allowed: str | None = None


decode_reader = msgspec.msgpack.Decoder(ReaderRow).decode
decode_progress = msgspec.msgpack.Decoder(tuple[int, tuple[tuple[int, int], ...]]).decode


class _StoryRow(msgspec.Struct, omit_defaults=True, frozen=True):
    p: int = -1
    t: int = -1
    d: int | None = None
    r: str | None = None
    s: int | None = None
    h: tuple[str, ...] | None = None


_decode_story = msgspec.msgpack.Decoder(_StoryRow).decode


def story_row(story: Story) -> bytes:
    lines = tuple(lines_of(story.history))
    return encode(
        _StoryRow(p=story.phase, t=story.tries, d=story.due_at, r=story.failed_reason, s=story.settled_at, h=lines)
    )


def story_of(consumer_id: int, number: int, raw: bytes) -> Story:
    one = _decode_story(raw)
    return Story(consumer_id, number, one.p, one.t, one.d, one.r, one.s, history_of(one.h or ()))


class OutageRow(msgspec.Struct, omit_defaults=True, frozen=True):
    bot: str
    began: int
    ended: int
    last: int
    settled: int | None = None


decode_outage = msgspec.msgpack.Decoder(OutageRow).decode
