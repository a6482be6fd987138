"""The people of the dashboard, each with a name, a role and a password. Anyone who has an API key needs none of this."""

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator

import argon2
import msgspec

from peik.admin.model import Role
from peik.clock import Clock
from peik.core.documents import DocumentStore, Filing, StoredDocument
from peik.errors import BadInput, Conflict, NotFound, Unavailable


class SignInTurns:
    """A limited number at once, and a limited number who wait. Anyone who comes after those is told so at once."""

    def __init__(self, *, at_once: int, waiting: int) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._inside = 0

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Raises Unavailable if too many wait already."""
        if self._inside >= self._most:
            raise Unavailable(
                code="too_many_sign_ins", detail="Too many try to sign in at once. Try again in a moment."
            )
        self._inside += 1
        try:
            async with self._turns:
                yield
        finally:
            self._inside -= 1


# Passwords of people: Argon2id, on threads of their own, and only a limited number at once, for each takes 64 MB while it is
# counted.


CHARS_MIN = 10
CHARS_MAX = 200
AT_ONCE_MAX = 2
WAITING_MAX = 10  # behind those: a second or so


class Passwords:
    def __init__(self) -> None:
        self._hasher = argon2.PasswordHasher()
        self._turns = SignInTurns(at_once=AT_ONCE_MAX, waiting=WAITING_MAX)
        self._nobodys: str | None = None

    async def hashed(self, password: str) -> str:
        """As it is kept. Raises BadInput for one that is too short."""
        if not CHARS_MIN <= len(password) <= CHARS_MAX:
            raise BadInput(
                code="bad_password",
                detail=f"A password has {CHARS_MIN} to {CHARS_MAX} characters. Choose a longer one.",
            )
        async with self._turns.taken():
            return await asyncio.to_thread(self._hasher.hash, password)

    async def is_right(self, kept: str | None, password: str) -> bool:
        """Whether it is this one. Of nobody (None) too it takes as long as ever: time tells no names. Raises Unavailable."""
        if len(password) > CHARS_MAX:
            return False
        async with self._turns.taken():
            if self._nobodys is None:
                self._nobodys = await asyncio.to_thread(self._hasher.hash, secrets.token_urlsafe())
            is_same = await asyncio.to_thread(self._verify, kept or self._nobodys, password)
        return is_same and kept is not None

    def _verify(self, kept: str, password: str) -> bool:
        try:
            return self._hasher.verify(kept, password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False


COLLECTION = "admins"
PEOPLE_MAX = 1000
_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """As it is kept. `stamp` is new with every change: sign-ins of an older one are over."""

    name: str
    role: Role
    password: str  # its Argon2 hash
    stamp: str
    created_at_ms: int
    changed_at_ms: int

    def __repr__(self) -> str:
        return f"Person({self.name})"


class People:
    def __init__(self, documents: DocumentStore, clock: Clock, passwords: Passwords | None = None) -> None:
        self._documents = documents
        self._clock = clock
        self._passwords = passwords or Passwords()

    async def everybody(self) -> list[Person]:
        """In the order of names."""
        return [_read(document) for document in await self._documents.documents(COLLECTION, limit=PEOPLE_MAX)]

    async def person(self, name: str) -> Person | None:
        if _NAME.fullmatch(known := _plain(name)) is None:
            return None
        document = await self._documents.document(COLLECTION, known)
        return None if document is None else _read(document)

    async def add(self, name: str, role: Role, password: str) -> Person:
        """Raises BadInput, or Conflict (`person_exists`)."""
        known = _plain(name)
        if _NAME.fullmatch(known) is None:
            raise BadInput(
                code="bad_person", detail="A name has up to 64 letters a-z, digits, dots, dashes, @ and underscores."
            )
        if await self._documents.count_documents(COLLECTION) >= PEOPLE_MAX:
            raise Conflict(code="too_many_people", detail=f"There are {PEOPLE_MAX} people already. Remove some first.")
        hashed = await self._passwords.hashed(password)
        at_ms = self._clock.wall_ms()
        person = Person(
            name=known, role=role, password=hashed, stamp=_stamp(), created_at_ms=at_ms, changed_at_ms=at_ms
        )
        try:
            await self._documents.file([_filing(person, version=0)])
        except Conflict:
            raise Conflict(code="person_exists", detail=f"There is somebody named {known} already.") from None
        return person

    async def set_password(self, name: str, password: str) -> Person:
        """Anyone who is signed in by that name is signed out. Raises NotFound, BadInput."""
        hashed = await self._passwords.hashed(password)
        document = await self._must(name)
        return await self._change(document, msgspec.structs.replace(_read(document), password=hashed))

    async def set_role(self, name: str, role: Role) -> Person:
        """Anyone who is signed in by that name is signed out. Raises NotFound."""
        document = await self._must(name)
        return await self._change(document, msgspec.structs.replace(_read(document), role=role))

    async def sign_out(self, name: str) -> Person:
        """Everywhere. Raises NotFound."""
        document = await self._must(name)
        return await self._change(document, _read(document))

    async def remove(self, name: str) -> None:
        """Anyone who is signed in by that name is signed out. Raises NotFound."""
        document = await self._must(name)
        await self._documents.file([Filing(collection=COLLECTION, key=document.key, body=None)])

    async def is_right(self, name: str, password: str) -> Person | None:
        """The person, if that is the password. It takes the same time for names that nobody has."""
        person = await self.person(name)
        is_right = await self._passwords.is_right(None if person is None else person.password, password)
        return person if is_right else None

    async def _must(self, name: str) -> StoredDocument:
        known = _plain(name)
        document = None if _NAME.fullmatch(known) is None else await self._documents.document(COLLECTION, known)
        if document is None:
            raise NotFound(code="unknown_person", detail=f"There is nobody named {name[:64]} here (any more).")
        return document

    async def _change(self, document: StoredDocument, person: Person) -> Person:
        changed = msgspec.structs.replace(person, stamp=_stamp(), changed_at_ms=self._clock.wall_ms())
        await self._documents.file([_filing(changed, version=document.version)])
        return changed


def _plain(name: str) -> str:
    return name.strip().lower()


def _stamp() -> str:
    return secrets.token_hex(8)


def _read(document: StoredDocument) -> Person:
    return msgspec.json.decode(document.body, type=Person)


def _filing(person: Person, *, version: int) -> Filing:
    return Filing(collection=COLLECTION, key=person.name, body=msgspec.json.encode(person).decode(), version=version)
