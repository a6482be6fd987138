"""Lines of the log about updates, on their way in and on."""

import logging

from peik import events
from peik.core.letter import State
from peik.core.trace import trace_of
from peik.ops.log_pen import Pen
from peik.shown import rfc3339


def write_source(pen: Pen, event: events.Event) -> None:
    """Updates on their way in."""
    bot_id = event.bot_id
    match event:
        case events.Arrived(stored=stored, duplicates=duplicates, last_number=last):
            if pen.shows_all:
                # The numbers of one commit follow each other.
                taken = " ".join(trace_of(bot_id, number) for number in range(last - stored + 1, last + 1))
                pen.book.debug(
                    "+ arrived",
                    bot=bot_id,
                    stored=stored,
                    duplicates=duplicates,
                    last_number=last,
                    **({"trace": taken} if taken else {}),
                )
        case events.InboxRecovered():
            pen.book.info(
                "+ recovered what Telegram kept",
                bot=bot_id,
                found=event.found,
                stored=event.stored,
                duplicates=event.duplicates,
                expired="unknown" if event.expired is None else event.expired,
                took_s=round(event.took_s, 2),
                away_s="first start" if event.away_s is None else round(event.away_s, 1),
            )
        case events.UpdatesExpired(count=count):
            pen.book.error("! Telegram dropped updates before we came", bot=bot_id, count=count)
        case events.Intruder(kind=kind, detail=detail):
            pen.book.error("! somebody else uses this token", bot=bot_id, kind=kind, detail=detail)
        case events.SourceFailed(source=source, why=why, wait_s=wait_s):
            pen.book.warning("~ no updates can be had", bot=bot_id, source=source, why=why, wait_s=round(wait_s, 1))
        case events.SourceBack(source=source, away_s=away_s):
            pen.book.info("+ updates come again", bot=bot_id, source=source, away_s=round(away_s, 1))
        case events.NumberingReset(expected_id=expected, first_id=first, epoch=epoch):
            pen.book.warning(
                "# Telegram numbers updates anew", bot=bot_id, expected_id=expected, first_id=first, epoch=epoch
            )
        case events.WebhookSet():
            pen.book.info("+ Telegram pushes updates to us", bot=bot_id)
        case events.InboxNearExpiry(percent_left=percent, expires_at_ms=at_ms):
            pen.book.error(
                "! Telegram will drop updates soon", bot=bot_id, percent_left=percent, expires_at=rfc3339(at_ms)
            )
        case events.OfflineTooLong(away_s=away_s, expired=expired):
            shown = "unknown" if expired is None else expired
            pen.book.error("! offline for more than a day", bot=bot_id, away_s=round(away_s), expired=shown)


def write_arrival(pen: Pen, event: events.Event) -> None:
    """Arrivals on their way on."""
    bot_id = event.bot_id
    match event:
        case events.HandedOn(consumer=consumer, arrivals=arrivals):
            if pen.shows_all:
                pen.book.debug(
                    "-> handed on",
                    bot=bot_id,
                    consumer=consumer,
                    arrival=" ".join(str(one.id) for one in arrivals),
                    trace=" ".join(trace_of(bot_id, one.number) for one in arrivals),
                )
        case events.ArrivalSettled(state=State.FAILED):
            pen.book.warning(
                "! dead arrival",
                bot=bot_id,
                consumer=event.consumer,
                arrival=event.arrival_id,
                trace=trace_of(bot_id, event.number),
                kind=event.kind,
                tries=event.tries,
                reason=event.reason,
            )
        case events.ArrivalSettled(consumer=consumer, arrival_id=arrival_id, kind=kind):
            if pen.shows_all:
                pen.book.debug(
                    "<- handled",
                    bot=bot_id,
                    consumer=consumer,
                    arrival=arrival_id,
                    kind=kind,
                    trace=trace_of(bot_id, event.number),
                )
        case events.ArrivalDeferred(consumer=consumer, arrival_id=arrival_id):
            pen.book.warning(
                "~ handling failed",
                bot=bot_id,
                consumer=consumer,
                arrival=arrival_id,
                trace=trace_of(bot_id, event.number),
                reason=event.reason,
                tries=event.tries,
                wait_s=round(event.wait_s, 1),
            )


def write_consumer(pen: Pen, event: events.Event) -> None:
    """Who reads them, and what became of those that nobody read."""
    bot_id = event.bot_id
    match event:
        case events.ConsumerAway(consumer=consumer, why=why):
            pen.book.warning("# consumer is away; what comes is kept", bot=bot_id, consumer=consumer, why=why)
        case events.ConsumerBack(consumer=consumer, away_s=away_s):
            pen.book.info("-> consumer is back", bot=bot_id, consumer=consumer, away_s=round(away_s, 1))
        case events.ConsumerWaits(consumer=consumer):
            pen.book.info("# handlers wait for those of another process", bot=bot_id, consumer=consumer)
        case events.AnswerIgnored(consumer=consumer, arrival_id=arrival_id, why=why):
            pen.book.warning(
                "! a call in the answer to a push is none",
                bot=bot_id,
                consumer=consumer,
                arrival=arrival_id,
                why=why,
            )
        case events.ConsumerExpired(consumer=consumer):
            pen.book.warning("x consumer forgotten: nobody used it", bot=bot_id, consumer=consumer)
        case events.UnreadNearEnd(consumer=consumer, oldest_at_ms=oldest, ends_at_ms=ends):
            pen.book.error(
                "! unread arrivals will be dropped",
                bot=bot_id,
                consumer=consumer,
                oldest_at=rfc3339(oldest),
                ends_at=rfc3339(ends),
            )
        case events.UnreadDropped(count=count):
            pen.book.error("! unread arrivals dropped", bot=bot_id, count=count)
        case events.UserLimited(consumer=consumer, user_id=user_id):
            pen.book.info("# user writes too fast", bot=bot_id, consumer=consumer, user=user_id)
        case events.OutageSettled():
            # Every restart is an outage of a few seconds, through which nobody waited.
            pen.book.log(
                logging.INFO if event.missed else logging.DEBUG,
                "# outage settled",
                bot=bot_id,
                policy=event.policy,
                away_s=round(event.away_s, 1),
                missed=event.missed,
                handed=event.handed,
                notices=event.notices,
            )
