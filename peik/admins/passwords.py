"""Passwords of people: Argon2id, on threads of their own, and only so many at once, for each takes 64 MB while it is counted."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

import argon2

from peik.errors import BadInput, Unavailable

CHARS_MIN = 10
CHARS_MAX = 200
AT_ONCE_MAX = 2
WAITING_MAX = 10  # behind those: a second or so. Whoever comes with a crowd is told so instead of made to wait in it


class Passwords:
    def __init__(self) -> None:
        self._hasher = argon2.PasswordHasher()
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)
        self._inside = 0
        self._nobodys: str | None = None

    async def hashed(self, password: str) -> str:
        """As it is kept. Raises BadInput for one that is too short."""
        if not CHARS_MIN <= len(password) <= CHARS_MAX:
            raise BadInput(
                code="bad_password",
                detail=f"A password has {CHARS_MIN} to {CHARS_MAX} characters. Choose a longer one.",
            )
        async with self._turn():
            return await asyncio.to_thread(self._hasher.hash, password)

    async def is_right(self, kept: str | None, password: str) -> bool:
        """Whether it is this one. Of nobody (None) too it takes as long as ever: time tells no names. Raises Unavailable."""
        if len(password) > CHARS_MAX:
            return False
        async with self._turn():
            if self._nobodys is None:
                self._nobodys = await asyncio.to_thread(self._hasher.hash, secrets.token_urlsafe())
            is_same = await asyncio.to_thread(self._verify, kept or self._nobodys, password)
        return is_same and kept is not None

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Raises Unavailable if too many wait already."""
        if self._inside >= AT_ONCE_MAX + WAITING_MAX:
            raise Unavailable(
                code="too_many_sign_ins", detail="Too many try to sign in at once. Try again in a moment."
            )
        self._inside += 1
        try:
            async with self._gate:
                yield
        finally:
            self._inside -= 1

    def _verify(self, kept: str, password: str) -> bool:
        try:
            return self._hasher.verify(kept, password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False
