"""Passwords of people: Argon2id, on threads of their own, and only so many at once, for each takes 64 MB while it is counted."""

import asyncio
import secrets

import argon2

from peik.errors import BadInput

CHARS_MIN = 10
CHARS_MAX = 200
AT_ONCE_MAX = 2


class Passwords:
    def __init__(self) -> None:
        self._hasher = argon2.PasswordHasher()
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)
        self._nobodys: str | None = None

    async def hashed(self, password: str) -> str:
        """As it is kept. Raises BadInput for one that is too short."""
        if not CHARS_MIN <= len(password) <= CHARS_MAX:
            raise BadInput(
                code="bad_password",
                detail=f"A password has {CHARS_MIN} to {CHARS_MAX} characters. Choose a longer one.",
            )
        async with self._gate:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def is_right(self, kept: str | None, password: str) -> bool:
        """Whether it is this one. Of nobody (None) too it takes as long as ever: time tells no names."""
        if len(password) > CHARS_MAX:
            return False
        async with self._gate:
            if self._nobodys is None:
                self._nobodys = await asyncio.to_thread(self._hasher.hash, secrets.token_urlsafe())
            is_same = await asyncio.to_thread(self._verify, kept or self._nobodys, password)
        return is_same and kept is not None

    def _verify(self, kept: str, password: str) -> bool:
        try:
            return self._hasher.verify(kept, password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False
