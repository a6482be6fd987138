"""How erasure is put together: every place that keeps something of people, in the order in which they are looked through.

A new place that keeps something of people is a new `ErasurePart` here. `tests/storage/conformance/test_forgetting.py` looks
through every record of every store, and tells when one is missing.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from peik.archive.store import Archive
from peik.backups.service import holdings
from peik.backups.wiring import backups_folder
from peik.broadcasts import repository as broadcasts
from peik.clock import Clock
from peik.core.events import Events
from peik.erasure.parts import (
    ArchivePart,
    ArrivalsPart,
    DocumentsPart,
    FileCachePart,
    JobsPart,
    LettersPart,
    MessageLogPart,
    TracesPart,
)
from peik.erasure.service import Acts, Eraser, PeopleLookup, StillHeld
from peik.erasure.store import ErasurePart
from peik.monitoring.log_file import LogFilesPart
from peik.notifications import upkeep as notifications
from peik.outbox.service import OutboxService
from peik.schedules import model as schedules
from peik.schedules.service import SchedulesPart
from peik.settings.config import Config
from peik.storage.message_log import message_log_of
from peik.storage.open import AnyStore


def eraser_of(
    config: Config,
    *,
    clock: Clock,
    settled: Clock,
    events: Events,
    letters: OutboxService,
    bots: Callable[[], Sequence[int]],
    store: AnyStore,
    archive: Callable[[], Awaitable[Archive]] | None,
    is_live: bool,
    reread: Callable[[int], Awaitable[None]] | None = None,
) -> Eraser:
    """`letters` takes back what waits. `archive` None: there is none. `is_live` False: nobody else has the store, so that no last
    look is needed."""
    reread = reread or _nobody_sends
    whole = store.forgetting
    of_all: dict[str, ErasurePart] = {
        "notifications": notifications.NotificationsPart(store.documents),
        "broadcasts": broadcasts.LedgersPart(store.documents),
        "jobs": JobsPart(store.jobs, whole, clock=clock),
        "schedules": SchedulesPart(store.documents),
        "papers": DocumentsPart(
            store.documents,
            owned=(*notifications.COLLECTIONS, *broadcasts.COLLECTIONS, schedules.COLLECTION),
        ),
    }
    if archive is not None:
        of_all["archive"] = ArchivePart(archive)
    if not is_live:  # a gateway that runs has its own in hand, and joins with it
        of_all["file cache"] = FileCachePart(partial(shutil.rmtree, config.beside(".cache"), ignore_errors=True))
    if config.message_log is not None:
        of_all["message log table"] = MessageLogPart(partial(message_log_of, config.message_log))
    if config.log_file is not None:
        of_all["log files"] = LogFilesPart(config.log_file, files_kept=config.log_files)
    return Eraser(
        acts=Acts(store.documents, secret=store.secret),
        of_bots=(
            LettersPart(store, whole, clock=clock, cancel=letters.cancel, cancel_all=letters.cancel_all),
            ArrivalsPart(store.inbox, whole, clock=clock),
            TracesPart(whole, bots=bots, reread=reread),
        ),
        of_all=of_all,
        people=PeopleLookup(
            names_of=partial(notifications.names_of, store.documents),
            chat_of=partial(notifications.chat_of, store.documents),
        ),
        store=whole,
        backups=partial(_held, config),
        is_known_bot=lambda bot_id: bot_id in bots(),
        clock=clock,
        settled=settled,
        events=events,
        is_live=is_live,
    )


async def _held(config: Config) -> list[StillHeld]:
    found = await asyncio.to_thread(
        holdings, backups_folder(config), keep=config.backup_keep, every_s=config.backup_every
    )
    return [StillHeld(path=str(one.path), made_at_ms=one.made_at_ms, goes_at_ms=one.goes_at_ms) for one in found]


async def _nobody_sends(bot_id: int) -> None:
    """There is no engine here that would know anything of chats."""
