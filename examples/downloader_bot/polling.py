"""Updates over the gateway, confirmed after they are handled: a bot that is killed in the middle of one gets it again."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

from aiogram import Bot, Dispatcher
from aiogram.exceptions import TelegramNetworkError, TelegramServerError
from aiogram.types import Update

from peik import Unavailable

POLL_S = 30
PAUSE_S = 1.0
TRIES = 3
log = logging.getLogger("downloader_bot")
_PASSING = (TelegramNetworkError, TelegramServerError, Unavailable)


async def poll(bot: Bot, dispatcher: Dispatcher) -> None:
    """Until it is cancelled."""
    offset: int | None = None
    allowed = dispatcher.resolve_used_update_types()
    while True:
        try:
            updates = await bot.get_updates(
                offset=offset, timeout=POLL_S, allowed_updates=allowed, request_timeout=POLL_S + 15
            )
        except (TelegramNetworkError, TelegramServerError):  # Peik is being started again
            await asyncio.sleep(PAUSE_S)
            continue
        async with asyncio.TaskGroup() as group:
            for course in _by_person(updates):
                group.create_task(_handle(bot, dispatcher, course))
        if updates:
            offset = updates[-1].update_id + 1


def _by_person(updates: Iterable[Update]) -> list[list[Update]]:
    """One person's updates one after another, those of different people side by side."""
    courses: defaultdict[int, list[Update]] = defaultdict(list)
    for update in updates:
        user = getattr(update.event, "from_user", None)
        courses[0 if user is None else user.id].append(update)
    return list(courses.values())


async def _handle(bot: Bot, dispatcher: Dispatcher, updates: list[Update]) -> None:
    for update in updates:
        for left in reversed(range(TRIES)):
            try:
                await dispatcher.feed_update(bot, update)
            except _PASSING as error:
                log.warning("Update %s: %s; %s tries left.", update.update_id, error, left)
                await asyncio.sleep(PAUSE_S)
            except Exception:  # one update must not keep all others from being handled
                log.exception("Update %s could not be handled.", update.update_id)
                break
            else:
                break
