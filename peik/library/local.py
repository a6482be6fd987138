"""The counter in this process: Peik itself, with its engines, beside the program that uses it. No server."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from peik.app import Office, running
from peik.building_sessions import MakeClients
from peik.config import load
from peik.core.letter import Enclosed
from peik.desk import Call, keep_files
from peik.errors import Unavailable
from peik.events import Events
from peik.inbox.consumers import Handling
from peik.library.accounts_local import LocalAccounts
from peik.library.broadcasts_ways import LocalBroadcasts
from peik.library.files import Parcel, chunks
from peik.library.handlers import Handlers, types_of
from peik.library.jobs_local import LateWork, LocalJobs, lone_group
from peik.library.letters import Counts, Letter, Page, QueueStats, Receipt, decode_receipt
from peik.library.outreach import LocalOutreach
from peik.library.stopping import until_stopped
from peik.ops.log import EventLog
from peik.ops.logger import plain_log
from peik.ports import Accepted, LetterFilter, LetterView
from peik.session_events import ArchiveAway, ArchiveBack
from peik.shown import letter_view
from peik.shown_forgetting import report_view


class LocalCounter:
    """One Peik on one store. It sends if this process owns the store, and else leaves that to the one that does."""

    def __init__(
        self, settings: Mapping[str, str | None], *, may_poll: bool = True, make_clients: MakeClients | None = None
    ) -> None:
        """`may_poll`: a bot whose updates nobody fetches is polled once it has handlers. `make_clients` makes the connections
        of accounts; by default Telethon does."""
        self._settings = settings
        self._may_poll = may_poll
        self._make_clients = make_clients
        self.jobs = LocalJobs(lambda: self._office)
        self.outreach = LocalOutreach(lambda: self._office)
        self.broadcasts = LocalBroadcasts(lambda: self._office)

    async def open(self) -> None:
        """Raises StartError with what to do."""
        self._closing = asyncio.Event()
        self.accounts = LocalAccounts(lambda: self._office)
        opened: asyncio.Future[Office] = asyncio.get_running_loop().create_future()
        # A task of its own, so that Peik may be opened in one task and closed in another, and so that an engine's end
        # never cancels the program around it.
        self._keeper = asyncio.create_task(self._keep(opened))
        try:
            self._open_office = await opened
        except asyncio.CancelledError:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            raise

    async def _keep(self, opened: asyncio.Future[Office]) -> None:
        try:
            config = load(self._settings)
            events = Events()
            events.listen(EventLog(level=config.log_level, log=plain_log()))
            events.listen(self.accounts.heard, ArchiveAway, ArchiveBack)
            kinds = self.jobs.settle(config)
            async with (
                lone_group() as group,
                running(
                    config, events=events, must_own=False, make_clients=self._make_clients, job_kinds=kinds
                ) as office,
                self.jobs.joined_by(LateWork(office, group)),
            ):
                if not opened.done():
                    opened.set_result(office)
                await self._closing.wait()
        except Exception as error:
            if opened.done():
                raise  # to whoever closes it
            opened.set_exception(error)

    async def close(self) -> None:
        """Finishes what is in flight, within the grace. What is not sent waits in the store for whoever opens it next."""
        self._closing.set()
        await self._keeper

    @property
    def _office(self) -> Office:
        if self._keeper.done():
            raise Unavailable(code="closed", detail="This Peik is closed. Open it again; what it accepted is safe.")
        return self._open_office

    # ---- updates ----

    def serve(self, handlers: Handlers) -> None:
        office = self._office
        for (bot_id, consumer), own in handlers.by_consumer(lambda asked: office.desk.bot(asked).bot_id).items():
            handling = Handling(
                handle=partial(handlers.handle, own),
                allowed=types_of(own),
                prepare=partial(self._prepare, office, bot_id),
            )
            office.consumers.handle(bot_id, consumer, handling)

    async def _prepare(self, office: Office, bot_id: int) -> None:
        if self._may_poll:
            await office.desk.receive_for(bot_id)

    async def until_stopped(self) -> None:
        await until_stopped([self._keeper])
        if self._keeper.done():
            await self._keeper  # whatever ended it is raised here

    # ---- letters in ----

    async def accept(self, calls: Sequence[Call]) -> list[Letter]:
        return [_letter(one) for one in await self._office.desk.accept(calls)]

    async def accept_with_files(self, call: Call, parcels: Sequence[Parcel]) -> Letter:
        office = self._office
        enclosed = await keep_files((_enclose(office, parcel) for parcel in parcels), office.spool)
        return _letter(
            await office.desk.accept_with_files(
                enclosed, lambda files: msgspec.structs.replace(call, enclosed=files), blobs=office.spool
            )
        )

    # ---- what became of them ----

    async def letter(self, letter_id: int) -> Receipt:
        return await self._explained(await self._office.desk.letter(letter_id))

    async def wait(self, letter_id: int, timeout_s: float) -> Receipt:
        return await self._explained(await self._office.desk.wait(letter_id, timeout_s))

    async def _explained(self, view: LetterView) -> Receipt:
        return _receipt(view, why=await self._office.desk.why(view))

    async def find(self, wanted: LetterFilter, *, before: int | None, limit: int) -> Page:
        views = await self._office.desk.find(wanted, before=before, limit=limit)
        last = str(views[-1].id) if len(views) == limit else None
        return Page(letters=tuple(_receipt(view) for view in views), before=last)

    async def cancel(self, letter_id: int) -> Receipt:
        return _receipt(await self._office.desk.cancel(letter_id))

    async def cancel_all(self, wanted: LetterFilter) -> int:
        return await self._office.desk.cancel_all(wanted)

    async def change(self, letter_id: int, *, priority: int | None, send_at_ms: int | None) -> Receipt:
        return _receipt(await self._office.desk.change(letter_id, priority=priority, send_at_ms=send_at_ms))

    async def retry(self, letter_id: int) -> Receipt:
        return _receipt(await self._office.desk.retry(letter_id))

    async def resolve(self, letter_id: int, *, arrived: bool) -> Receipt:
        return _receipt(await self._office.desk.resolve(letter_id, arrived=arrived))

    async def retry_dead(self, wanted: LetterFilter) -> int:
        return await self._office.desk.retry_dead(wanted)

    async def clear_dead(self, wanted: LetterFilter) -> int:
        return await self._office.desk.clear_dead(wanted)

    async def stats(self) -> QueueStats:
        tallies = await self._office.desk.tallies()
        return QueueStats.of({bot_id: Counts(**msgspec.structs.asdict(tally)) for bot_id, tally in tallies.items()})

    # ---- what comes in ----

    async def forget(
        self, *, user_id: int | None, name: str | None, bot_id: int | None, dry_run: bool
    ) -> dict[str, Any]:
        forgetter = self._office.forgetter
        person = await forgetter.person(user_id=user_id, name=name, bot_id=bot_id)
        report = await (forgetter.look(person) if dry_run else forgetter.forget(person, who="library"))
        return report_view(report, is_dry=dry_run)

    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]]) -> int:
        return await self._office.inbox.note_handled(bot_id, messages)

    @property
    def office(self) -> Office:
        """The running Peik itself, for parts of Peik that work within it. Raises Unavailable once it is closed."""
        return self._office

    async def ended(self) -> None:
        """Returns when this Peik does not run any more, whoever closed it and whatever befell it."""
        await asyncio.wait([self._keeper])


def _letter(accepted: Accepted) -> Letter:
    return Letter(id=str(accepted.letter_id), state=accepted.state)


def _receipt(view: LetterView, **more: Any) -> Receipt:
    """Through the words of REST, so that both counters cannot but say the same."""
    return decode_receipt(msgspec.json.encode({**letter_view(view), **more}))


async def _enclose(office: Office, parcel: Parcel) -> Enclosed:
    kept = await office.spool.keep(chunks(parcel), size_bytes_max=office.config.upload_bytes_max)
    return kept.as_enclosed(parcel.field, filename=parcel.filename, content_type=parcel.content_type)
