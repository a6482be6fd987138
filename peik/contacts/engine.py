"""Keeps who is there: reads arrivals in order, behind the intake, and takes up every chat that they show.

What was looked at is a place in the store, saved with the chats. Witnesses see the same arrivals before that, so that after a
crash they see some of them again: what they do must be the same when it is done twice. A bot is looked at by the node that holds
its lease; two that look at once do no harm, since a place never goes back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from peik.contacts.model import Sighting, read_sighting
from peik.core.arrival import Arrival
from peik.core.documents import Contact, ContactStore
from peik.core.events import Arrived, Event, Events, StoreFailed, Surprise
from peik.errors import NotFound, Problem, StoreUnavailable, described
from peik.inbox.store import InboxStore
from peik.wakeup import Wakeup

PAGE = 500
GATHER_S = 0.2  # between two looks: a busy bot's updates are taken up in batches, and cost the intake next to nothing
RETRY_S = 2.0

Witness = Callable[[Arrival, Sighting], Awaitable[None]]


class ContactCollector:
    def __init__(
        self,
        *,
        store: InboxStore,
        contacts: ContactStore,
        events: Events,
        served: Callable[[], Collection[int]],
        witnesses: Sequence[Witness] = (),
    ) -> None:
        self._store = store
        self._contacts = contacts
        self._events = events
        self._served = served
        self._witnesses = witnesses
        self._bell = Wakeup()
        self._waiting: set[int] = set()  # bots to which something came that was not looked at
        self._task: asyncio.Task[None] | None = None
        events.listen(self._listen, Arrived)

    def start(self, group: asyncio.TaskGroup) -> None:
        self._task = group.create_task(self._run(), name="census")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def look(self, bot_ids: Collection[int] | None = None) -> None:
        """Something may have come to these bots, or to any: another node wrote, or a lease is new."""
        self._waiting.update(self._served() if bot_ids is None else bot_ids)
        self._bell.ring()

    def _listen(self, events: Sequence[Event]) -> None:
        came = [event.bot_id for event in events if isinstance(event, Arrived) and event.stored]
        if came:
            self.look(came)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # asked: a library can swallow a cancellation on Python 3.11
            await self._bell.wait()
            await asyncio.sleep(GATHER_S)
            waiting, self._waiting = self._waiting, set()
            for bot_id in sorted(waiting & set(self._served())):
                await self._surely(bot_id)

    async def _surely(self, bot_id: int) -> None:
        """One bot's trouble is told, and keeps no other bot from being looked at."""
        try:
            while await self._look(bot_id):
                pass
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(bot_id=bot_id, what="the census of chats", why=error.detail))
            self._waiting.add(bot_id)
            await asyncio.sleep(RETRY_S)
            self._bell.ring()
        except NotFound:
            return  # the bot was removed meanwhile, and its chats with it
        except Exception as error:  # noqa: BLE001  told of; the place stays, and the next arrival is reason to look again
            self._events.tell(Surprise(bot_id=bot_id, where="census", error=described(error)))

    async def _look(self, bot_id: int) -> bool:
        """Take up one page. Whether there may be more."""
        place = await self._contacts.contacts_place(bot_id)
        arrivals = await self._store.arrivals_from(bot_id, place, limit=PAGE)
        if not arrivals:
            return False
        found: dict[int, Contact] = {}
        for arrival in arrivals:
            sighting = read_sighting(arrival)
            if sighting is not None:
                seen = found.get(sighting.chat_id)
                found[sighting.chat_id] = _again(seen, sighting) if seen else _first(bot_id, sighting)
                await self._witness(arrival, sighting)
        await self._contacts.save_contacts(bot_id, list(found.values()), place=arrivals[-1].number)
        return len(arrivals) == PAGE and bot_id in self._served()

    async def _witness(self, arrival: Arrival, sighting: Sighting) -> None:
        for witness in self._witnesses:
            try:
                await witness(arrival, sighting)
            except StoreUnavailable:
                raise  # the same arrivals are looked at once more
            except Problem:
                continue  # the bot or the chat is none that letters can go to: there is nobody to answer
            except Exception as error:  # noqa: BLE001  one update's surprise must not hold up all that come after it
                where = f"census, arrival {arrival.id}"
                self._events.tell(Surprise(bot_id=arrival.bot_id, where=where, error=described(error)))


def _first(bot_id: int, seen: Sighting) -> Contact:
    return Contact(
        bot_id=bot_id,
        chat_id=seen.chat_id,
        type=seen.type,
        name=seen.name,
        username=seen.username,
        language=seen.language,
        first_seen_ms=seen.at_ms,
        last_seen_ms=seen.at_ms,
        is_gone=seen.is_gone,
        campaign=seen.campaign,
    )


def _again(known: Contact, seen: Sighting) -> Contact:
    return msgspec.structs.replace(
        known,
        type=seen.type,
        name=seen.name or known.name,
        username=seen.username or known.username,
        language=seen.language or known.language,
        last_seen_ms=max(known.last_seen_ms, seen.at_ms),
        is_gone=seen.is_gone,
        campaign=known.campaign,  # the first message counts, also if the next is in the same page
    )
