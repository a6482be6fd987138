"""What a Peik that is built does from its start to its end. It opens and closes nothing: see `app`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from peik.building_outbox import tokens_of
from peik.errors import StartError, StoreUnavailable
from peik.node import Node
from peik.node_ports import CHORES
from peik.office import Office as Office
from peik.ops.figures import LATE_MINUTES
from peik.ports import BotRecord
from peik.seals import BAD_KEY
from peik.store.choosing import AnyStore

MEND_AFTER_S = 60.0 * (LATE_MINUTES + 1)
HOOKS_GRACE_S = 5.0  # for webhooks on their way when Peik ends; what does not come back is told again


@asynccontextmanager
async def alive(office: Office, *, is_alone: bool) -> AsyncIterator[None]:
    """`is_alone`: see `peik.app.running`."""
    try:
        async with asyncio.TaskGroup() as group:
            lifetime = Lifetime(office, group, is_alone=is_alone)
            await lifetime.begin()
            try:
                yield
            finally:
                await lifetime.end()
    except BaseExceptionGroup as errors:
        # Whoever opened Peik wants to see the one thing that went wrong, as itself.
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


class Lifetime:
    """Who runs from the start to the end, and in which order they end."""

    def __init__(self, office: Office, group: asyncio.TaskGroup, *, is_alone: bool) -> None:
        self._office = office
        self._group = group
        self._is_alone = is_alone
        self._node = Node(office, group)

    async def begin(self) -> None:
        office, run = self._office, self._group.create_task
        await _start(office, self._node, self._group)
        self._beating = run(office.leases.run())
        self._following = None if self._is_alone else run(self._node.follow())
        self._noting = run(office.keyring.run())
        self._sealing = run(office.custodian.run()) if office.custodian.is_waiting else None
        self._alerting = run(office.alerts.run())
        self._counting = [run(office.figures.run()), run(office.standings.run()), run(_mend_figures(office))]
        if not self._is_alone:  # looks four times a minute, for all of a virtual month
            self._counting += [run(office.watching.run()), run(office.clock_watch.run())]
        self._chores = await office.job_hands.start(self._group)
        office.census.start(self._group)
        office.census.look()

    async def end(self) -> None:
        """What sends and what is handed on gets the grace to end; nothing new is taken meanwhile."""
        grace_s = self._office.config.grace
        await self._stop_working(grace_s)
        await self._stop_receiving()
        await self._drain(grace_s)
        await self._stop_looking()

    async def _stop_working(self, grace_s: float) -> None:
        office = self._office
        if self._following is not None:
            self._following.cancel()
        await office.job_hands.stop(grace_s)  # while what they send is still taken
        for chore in self._chores:
            chore.cancel()
        await office.clock_watch.close()  # while the chores are this node's
        await office.leases.drain(grace_s)
        self._beating.cancel()  # before the drain of a whole store: nothing may be taken over now
        office.leases.stop()
        self._noting.cancel()
        if self._sealing is not None:
            self._sealing.cancel()
        office.census.stop()
        office.releasing.stop()
        office.broadcaster.stop()
        if office.backups is not None:
            office.backups.stop()
        office.forgetter.stop()

    async def _stop_receiving(self) -> None:
        office = self._office
        await office.receiver.stop()  # first: from now on nothing comes in that nobody would hand on
        office.outages.stop()
        office.upkeep.stop()
        self._node.stop()
        office.inbox.end()

    async def _drain(self, grace_s: float) -> None:
        """Handlers may still send while they end, so the courier is the last to stop."""
        office = self._office
        began_at = office.clock.mono()
        await office.consumers.drain(grace_s)
        left_s = grace_s - (office.clock.mono() - began_at)
        await office.courier.drain(max(left_s, min(grace_s, HOOKS_GRACE_S)))
        if office.sessions is not None:
            await office.sessions.end()  # their letters have had their time
        office.ways.stop()
        await office.hooks.drain(min(grace_s, HOOKS_GRACE_S))
        office.hooks.stop()
        office.timekeeper.stop()
        office.courier.stop()
        office.consumers.stop()

    async def _stop_looking(self) -> None:
        office = self._office
        self._alerting.cancel()
        for one in self._counting:
            one.cancel()
        await office.figures.close()
        await office.standings.close()
        await _note_keys(office)
        await office.inbox.close()


async def _start(office: Office, node: Node, group: asyncio.TaskGroup) -> None:
    bots = await bots_of(office.store)
    await office.clock_watch.begin()
    tokens = tokens_of(office.config)
    office.desk.open(bots)
    office.courier.open(group)
    office.ways.open(group)
    office.receiver.open(group)
    office.outages.open(group, node.served)
    await office.keyring.refresh()
    await office.leases.open(node, group)
    if tokens and office.config.inbound == "webhook" and office.config.public_url is None:
        raise StartError("PEIK_INBOUND=webhook needs PEIK_PUBLIC_URL: where Telegram can reach this Peik.")
    kept = {bot.bot_id: bot.token for bot in bots}
    for token in tokens:
        if kept.get(token.bot_id) != token or await office.desk.is_guest(token.bot_id):
            known = office.desk.known(token.bot_id)  # under another token: how its updates come in stays
            await office.desk.save_bot(token, inbound=office.config.inbound if known is None else known.inbound)
    office.consumers.start(group)
    if office.sessions is not None:
        office.sessions.begin(group)


async def _mend_figures(office: Office) -> None:
    """Once, by who has the chores. Where others live they have the time to file what they counted until this node came."""
    if office.store.nodes.lease_s is not None:
        await asyncio.sleep(MEND_AFTER_S)
    is_mended = False
    while not is_mended and office.leases.holds(CHORES):
        try:
            await office.figures.mend(
                lambda since_ms, until_ms: office.store.ended_by_minute(since_ms=since_ms, until_ms=until_ms)
            )
            is_mended = True
        except StoreUnavailable:
            await asyncio.sleep(MEND_AFTER_S)


async def bots_of(store: AnyStore) -> list[BotRecord]:
    """Raises StartError if their tokens are sealed and there is no key for them."""
    try:
        return await store.bots()
    except StoreUnavailable as problem:
        if problem.code not in BAD_KEY:
            raise
        raise StartError(problem.detail) from None


async def _note_keys(office: Office) -> None:
    """When keys were last used is known to about a minute; a store that does not answer must not keep us from ending."""
    with contextlib.suppress(StoreUnavailable):
        await office.keyring.note()
