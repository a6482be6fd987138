"""Letters and arrivals of the demo, and the figures of its day."""

import math
import random
from bisect import bisect_left
from typing import Any

import msgspec

from peik.core.arrival import DEFAULT_CONSUMER
from peik.core.documents import Filing
from peik.core.letter import LetterCall, OnUncertain, Priority, State
from peik.inbox.delivery import Failed, line_of
from peik.inbox.store import ArrivalFilter, Burial
from peik.monitoring.figures import COLLECTION, MINUTE_MS, PARTS_MAX, STRETCHES
from peik.monitoring.values import BOUNDS_S, COUNTED, FAMILIES, Parts, PartSums, Sums, parts_as_document
from peik.testing.faults import Kind
from tests.dashboard.demo import ALERTS, HOUR_MS, NEWS, SHOP, Demo
from tests.dashboard.demo_words import ASKED, PEOPLE, SAID, TRACE
from tests.patience import PATIENCE_S
from tests.web.accounts import until

HELD, STUCK, SILENT, BLOCKED, LOST, LONG = 40_100_201, 40_100_202, 40_100_203, 40_100_204, 40_100_205, 40_100_206
GROUP = -100_777_001
REFUSALS = (
    (LOST, 400, "Bad Request: chat not found", 9),
    (LONG, 400, "Bad Request: message is too long", 4),
    (BLOCKED, 403, "Forbidden: bot was blocked by the user", 14),
    (GROUP, 400, "Bad Request: not enough rights to send text messages to the chat", 3),
)


async def before(demo: Demo) -> None:
    """What the day had so far."""
    chance = random.Random(3)
    await _figures(demo, chance)
    await _arrivals(demo, chance)
    await _delivered(demo, chance)


async def now(demo: Demo) -> None:
    """What somebody has to look after."""
    await _refused(demo)
    await _uncertain(demo)
    await _open(demo)


async def sent(demo: Demo, text: str, *, chat: int, **terms: Any) -> int:
    """A new letter's id."""
    params = {"chat_id": chat, "text": text} | terms.pop("params", {})
    call = LetterCall(
        method=terms.pop("method", "sendMessage"),
        params=msgspec.json.encode(params),
        bot_id=terms.pop("bot_id", SHOP),
        **terms,
    )
    return (await demo.runtime.outbox.service.accept([call]))[0].letter_id


async def ended(demo: Demo, letter_id: int) -> State:
    return (await demo.runtime.outbox.service.wait(letter_id, PATIENCE_S)).state


async def _figures(demo: Demo, chance: random.Random) -> None:
    """Every minute of the last day, as another node would have filed it: a wave with two peaks, and an outage."""
    now = (demo.clock.wall_ms() + demo.clock.behind_ms) // MINUTE_MS
    filings = []
    for back in range(1, 25 * 60):
        minute = now - back
        wave = 60 + 45 * math.sin(minute / 115) + 25 * math.sin(minute / 31)
        count = max(2, round(wave * chance.uniform(0.8, 1.2)))
        is_outage = 380 < back < 400 or 22 < back < 26
        failed = chance.choice((0, 0, 0, 0, 1, 2)) + (count // 3 if is_outage else 0)
        told = {"accepted": count, "delivered": count - failed, "failed": failed, "updates": count // 2}
        told |= {
            "retried": count // 9,
            "held": 1 if chance.random() < 0.05 else 0,
            "uncertain": 1 if back % 173 == 0 else 0,
        }
        sums = Sums()
        sums.counts = [told.get(name, 0) for name in COUNTED]
        for _ in range(count):
            seconds = chance.lognormvariate(-2.2, 0.55) * (9 if is_outage else 1)
            sums.end_to_end.add(seconds * 1.3)
            sums.tries.add(seconds)
        filings.append(Filing(collection=COLLECTION, key=f"{minute:010d}:peik-2:1", body=sums.as_document()))
    await demo.runtime.store.documents.file(filings + _parts(now, chance))


def _parts(now: int, chance: random.Random) -> list[Filing]:
    """The same by bot, method and kind of jobs, for a month."""
    shares = {
        "bot": {str(SHOP): 0.7, str(NEWS): 0.3},
        "method": {
            "sendMessage": 0.55,
            "editMessageText": 0.2,
            "sendPhoto": 0.15,
            "sendDocument": 0.06,
            "pinChatMessage": 0.04,
        },
        "kind": {"download": 0.08, "report": 0.02},
    }
    filings = []
    for stretch in STRETCHES:
        for back in range(stretch.minutes, stretch.kept, stretch.minutes):
            start = (now - back) // stretch.minutes * stretch.minutes
            whole = stretch.minutes * (60 + 45 * math.sin(start / 115) + 25 * math.sin(start / 31))
            parts: Parts = {family: {} for family in FAMILIES}
            for family, named in shares.items():
                for name, share in named.items():
                    count = max(0, round(whole * share * chance.uniform(0.8, 1.2)))
                    sums = PartSums(
                        [count, count // 150, 0, count // 9, count // 400, count // 2 if family == "bot" else 0]
                    )
                    for _ in range(min(count, 12)):
                        slow = 300 if family == "kind" else 1
                        bucket = bisect_left(BOUNDS_S, chance.lognormvariate(-2.2, 0.55) * slow)
                        sums.took[bucket] = sums.took.get(bucket, 0) + 1
                    parts[family][name] = sums
            body = parts_as_document(parts, most=PARTS_MAX)
            filings.append(Filing(collection=stretch.collection, key=f"{start:010d}:peik-2:1", body=body))
    return filings


async def _arrivals(demo: Demo, chance: random.Random) -> None:
    telegram = demo.sim.telegram
    for user_id, name, language, username in PEOPLE:
        telegram.user(user_id, name, language, username)
    group = telegram.chat("supergroup", "Warehouse · انبار", chat_id=GROUP, bots=[SHOP])
    for round_number in range(3):
        demo.clock.set_ago(19 - round_number * 6.5)
        for number, (user_id, *_) in enumerate(PEOPLE):
            bot_id = SHOP if (number + round_number) % 4 else NEWS
            text = ASKED[(number * 5 + round_number) % len(ASKED)]
            telegram.write(bot_id, user_id, text, date=demo.clock.wall_ms() / 1000)
        telegram.write(SHOP, PEOPLE[5][0], "Pallet 14 is in.", chat=group, date=demo.clock.wall_ms() / 1000)
        await until(lambda count=13 * (round_number + 1): _came(demo, count))
    await _given_up(demo)


async def _came(demo: Demo, count: int) -> bool:
    return await demo.runtime.inbox.service.count(ArrivalFilter()) >= count


async def _given_up(demo: Demo) -> None:
    """A handler failed five times at these."""
    inbox, at_ms = demo.runtime.store.inbox, demo.clock.wall_ms()
    consumer = await inbox.ensure_consumer(SHOP, DEFAULT_CONSUMER, at_ms=at_ms)
    found = await inbox.find_arrivals(ArrivalFilter(bot_id=SHOP), before=None, limit=7)
    for place, words in (
        (1, "ValueError"),
        (3, "ValueError"),
        (4, "ValueError"),
        (6, "TimeoutError: orders did not answer"),
    ):
        trace = TRACE if words == "ValueError" else None
        line = line_of(Failed(words=words, trace=trace), at_ms=at_ms)
        burial = Burial(number=found[place].arrival.number, tries=5, reason=words, entry=line)
        await inbox.settle_arrivals(consumer.id, dead=[burial], at_ms=at_ms)
    demo.pages["arrival"] = f"/admin/arrivals/{found[1].arrival.id}"


async def _delivered(demo: Demo, chance: random.Random) -> None:
    for hours in (5, 4, 2.5, 1.5, 0.6, 0.1):
        demo.clock.set_ago(hours)
        ids = []
        for number in range(45):
            user_id = PEOPLE[number % len(PEOPLE)][0]
            bot_id = chance.choice((SHOP, SHOP, SHOP, ALERTS))
            text = SAID[(number * 7) % len(SAID)]
            labels = msgspec.json.encode({"user_id": f"customer-{user_id % 1000}", "type": "order"})
            ids.append(
                await sent(demo, text, chat=user_id, bot_id=bot_id, metadata=labels, priority=Priority(number % 3))
            )
        for letter_id in ids:
            await ended(demo, letter_id)
    demo.pages["letter-delivered"] = f"/admin/letters/{ids[-1]}"


async def _refused(demo: Demo) -> None:
    faults = demo.sim.telegram.faults
    for place, (chat, status, words, count) in enumerate(REFUSALS):
        demo.clock.set_ago(0.5 - place * 0.1)
        faults.add(Kind.ERROR, status=status, words=words, chat=chat)
        for number in range(count):
            letter_id = await sent(demo, SAID[(number + place) % len(SAID)], chat=chat)
            await ended(demo, letter_id)
        demo.pages.setdefault("letter-dead", f"/admin/letters/{letter_id}")
    broken = await sent(demo, "<b>Sale</i> ends today", chat=PEOPLE[6][0], params={"parse_mode": "HTML"})
    await ended(demo, broken)


async def _uncertain(demo: Demo) -> None:
    faults = demo.sim.telegram.faults
    for number in range(3):
        demo.clock.set_ago(0.15 - number * 0.04)
        faults.add(Kind.LOSE_AFTER, chat=SILENT, count=1)
        letter_id = await sent(demo, SAID[number + 3], chat=SILENT, on_uncertain=OnUncertain.HOLD)
        await ended(demo, letter_id)
    demo.pages["letter-uncertain"] = f"/admin/letters/{letter_id}"


async def _open(demo: Demo) -> None:
    """Some wait for a chat that is held, one is on its way, some are for later, two were taken back."""
    service = demo.runtime.outbox.service
    demo.clock.set_ago(0.02)
    await service.hold_chat(SHOP, HELD, demo.clock.wall_ms() + HOUR_MS)
    ids = [await sent(demo, SAID[number], chat=HELD) for number in range(6)]
    demo.pages["letter-waiting"] = f"/admin/letters/{ids[0]}"
    demo.sim.telegram.faults.add(Kind.HANG, chat=STUCK)
    await sent(demo, SAID[1], chat=STUCK)
    await sent(demo, SAID[4], chat=STUCK)
    at_ms = demo.clock.wall_ms()
    for number in range(8):
        letter_id = await sent(
            demo, SAID[number + 2], chat=PEOPLE[number][0], send_at_ms=at_ms + (number + 1) * HOUR_MS
        )
        if number > 5:
            await service.cancel(letter_id)
    demo.clock.set_ago(0)
    demo.pages["chat"] = f"/admin/chats/{SHOP}/{PEOPLE[2][0]}"
    demo.pages["bot"] = f"/admin/bots/{SHOP}"
