"""A simulated Telegram, an archive, and sessions that are signed in: what stories about running sessions begin with."""

import random
from pathlib import Path
from typing import Any

import msgspec

from peik.accounts.budget import Budget
from peik.accounts.registry import Registry, secret_context
from peik.accounts.runner import SessionTools
from peik.archive.store import Message, MessageFilter, Session, SessionState
from peik.core.events import Event, Events
from peik.secrets.vault import Vault
from peik.testing.accounts import Accounts, Person
from peik.testing.virtual import VirtualClock
from tests.accounts.inline_archive import InlineArchive, opened


class Stage:
    """Ali's account is the session `s1`, unless more are made. Sara writes to him, in private and elsewhere."""

    archive: InlineArchive

    def __init__(self, clock: VirtualClock, seed: int = 1) -> None:
        self.clock = clock
        self.telegram = Accounts(clock, seed=seed)
        self.chance = random.Random(seed)
        self.vault = Vault([b"k" * 32])
        self.events = Events()
        self.told: list[Event] = []
        self.events.listen(lambda events: self.told.extend(events))
        self.ali = self.telegram.register("+998900000001", first_name="Ali")
        self.sara = self.telegram.register("+998900000002", first_name="Sara")
        self.private = self.telegram.private(self.ali, self.sara)
        self.group = self.telegram.group("Family", self.ali, self.sara)
        self.team = self.telegram.channel("Team", self.sara, self.ali)

    async def open(self, folder: Path) -> "Stage":
        self.archive = await opened(folder)
        self.registry = Registry(self.archive, self.clock)
        self.budget = Budget(self.clock)
        return self

    def tools(self, **other: Any) -> SessionTools:
        made = SessionTools(
            registry=self.registry,
            book=self.archive,
            vault=self.vault,
            clients=self.telegram.clients,
            budget=self.budget,
            clock=self.clock,
            events=self.events,
            chance=self.chance,
        )
        return msgspec.structs.replace(made, **other)

    async def sign_in(self, person: Person, session_id: str = "s1") -> Session:
        """As `SignInSteps` leaves it."""
        client = self.telegram.clients(session_id=session_id, agent_id="a", secret=None, file=None, proxy=None)
        await client.connect()
        sent = await client.send_code(person.phone)
        await client.sign_in(person.phone, self.telegram.code_of(person.phone), sent.code_hash)
        secret = self.vault.seal(client.secret(), context=secret_context(session_id))
        await client.disconnect()
        await self.registry.create_session("a", session_id=session_id)
        return await self.registry.change(
            session_id,
            lambda old: msgspec.structs.replace(
                old, secret=secret, state=SessionState.ACTIVE, user_id=person.user_id, phone=person.phone
            ),
        )

    async def session(self, session_id: str = "s1") -> Session:
        return await self.registry.need(session_id)

    async def kept(self, session_id: str = "s1") -> list[Message]:
        found, cursor = await self.archive.messages(MessageFilter(session_id=session_id), cursor=None, limit=1000)
        while cursor is not None:
            page, cursor = await self.archive.messages(MessageFilter(session_id=session_id), cursor=cursor, limit=1000)
            found += page
        return found

    async def texts(self, session_id: str = "s1") -> list[str]:
        return sorted(one.text for one in await self.kept(session_id))

    def told_of(self, kind: type[Event]) -> list[Any]:
        return [one for one in self.told if isinstance(one, kind)]
