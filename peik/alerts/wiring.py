"""How those who look at it all are put together: the overview, alerts, and who notices what no event tells."""

import difflib
import socket
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from peik.alerts.looks import Thresholds
from peik.alerts.matters import AlertDocuments
from peik.alerts.rules import BY_NAME, AlertWords
from peik.alerts.service import AlertService
from peik.alerts.watch import ClockWatch, Watching, machine_of
from peik.alerts.ways import ways_of
from peik.app.context import Context
from peik.backups.model import last_good_ms
from peik.core.letter import LetterCall
from peik.core.nodes import CHORES
from peik.errors import StartError
from peik.inbox.service import InboxService
from peik.jobs.wiring import Jobs
from peik.monitoring.counts import Answering
from peik.monitoring.figures import Figures
from peik.monitoring.overview import Overview
from peik.monitoring.pulse import NodeStandings
from peik.monitoring.wiring import overview_of
from peik.outbox.leases import Leases
from peik.outbox.wiring import Outbox, tokens_of

if TYPE_CHECKING:
    from peik.accounts.service import AccountService


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    alerts: AlertService
    overview: Overview
    standings: NodeStandings
    answering: Answering
    rounds: Watching
    clock: ClockWatch
    figures: Figures


def watch_of(
    context: Context,
    outbox: Outbox,
    *,
    figures: Figures,
    inbox: InboxService,
    jobs: Jobs,
    accounts: "AccountService | None",
) -> Watch:
    """Raises StartError."""
    alerts = _alerts(context, outbox)
    context.events.listen(alerts, *alerts.kinds)
    overview, standings = overview_of(
        context, outbox, figures=figures, inbox=inbox, alerts=alerts, jobs=jobs, accounts=accounts
    )
    answering = Answering()
    return Watch(
        alerts=alerts,
        overview=overview,
        standings=standings,
        answering=answering,
        figures=figures,
        rounds=_watching(context, outbox.leases, alerts=alerts, overview=overview, answering=answering),
        clock=ClockWatch(
            clock=context.settled,
            documents=context.store.documents,
            events=context.events,
            settles_s=context.config.clock_settles,
            has_chores=lambda: outbox.leases.holds(CHORES),
        ),
    )


def _alerts(context: Context, outbox: Outbox) -> AlertService:
    """Raises StartError for a rule that is none, or an address that Apprise does not know."""
    config, store, service, leases = context.config, context.store, outbox.service, outbox.leases
    for name in config.alerts_off:
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, n=1)
            hint = f" Did you mean {near[0]}?" if near else " docs/reference/alerts.md names all."
            raise StartError(f"PEIK_ALERTS_OFF: there is no rule {name}.{hint}")
    first = [token.bot_id for token in tokens_of(config)]

    def messenger() -> int | None:
        """The first bot of the settings that may send; failing that, any. None: let the service say what is wrong."""
        able = [bot.bot_id for bot in service.bots() if bot.paused is None and not bot.token.is_account]
        return next((bot_id for bot_id in [*first, *able] if bot_id in able), None)

    async def send(chat: str, text: str, idempotency_key: str) -> None:
        chat_id = int(chat) if chat.removeprefix("-").isdecimal() else chat
        params = msgspec.json.encode({"chat_id": chat_id, "text": text, "link_preview_options": {"is_disabled": True}})
        call = LetterCall(
            bot_id=messenger() or 0,
            method="sendMessage",
            params=params,
            idempotency_key=idempotency_key,
            metadata=b'{"message_type":"alert"}',
        )
        await service.accept([call])

    async def living() -> set[str]:
        return {one.name for one in await store.nodes.nodes()}

    return AlertService(
        chats=config.admin_chats,
        clock=context.clock,
        send=send,
        is_served=lambda bot_id: leases.holds(bot_id) and service.known(bot_id) is not None,
        more_ways=ways_of(config.alert_urls),
        documents=AlertDocuments(store.documents, node=store.nodes.node),
        machine="" if store.nodes.lease_s is None else socket.gethostname(),
        off=config.alerts_off,
        has_chores=lambda: leases.holds(CHORES),
        living=None if store.nodes.lease_s is None else living,
        words=AlertWords(config.alert_language),
    )


def _watching(
    context: Context, leases: Leases, *, alerts: AlertService, overview: Overview, answering: Answering
) -> Watching:
    config, store = context.config, context.store
    places = [
        config.beside(""),
        config.files,
        config.work or config.beside(".work"),
        config.sessions_dir,
        config.backups,
    ]
    return Watching(
        alerts=alerts,
        overview=overview.now,
        answering=answering,
        machine=machine_of([place.absolute() for place in places if place is not None]),
        clock=context.clock,
        node=store.nodes.node,
        has_chores=lambda: leases.holds(CHORES),
        is_shared=store.nodes.lease_s is not None,
        thresholds=Thresholds(
            disk_percent=config.alert_disk,
            memory_percent=config.alert_memory,
            slow_s=config.alert_slow,
            dead=config.alert_dead,
            wait_s=config.alert_wait,
            failures_percent=config.alert_failures,
        ),
        backup_every_s=config.backup_every,
        last_backup_ms=partial(last_good_ms, store.documents),
        durability=store.nodes.durability,
    )
