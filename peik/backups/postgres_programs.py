"""PostgreSQL's own programs: pg_dump, pg_restore and psql. No password is on their command lines."""

import asyncio
import contextlib
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from peik.backups.manifest import broken
from peik.errors import StartError, StoreUnavailable

CHUNK_BYTES = 256 * 1024
ERROR_CHARS = 500
# What libpq and Peik's driver both know; the driver takes other names for settings of the server, libpq refuses them.
_SHARED = frozenset({"sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "host", "port", "user", "password"})


def named(url: str) -> tuple[str, dict[str, str]]:
    """The address without its password, which no list of processes may show, and the environment that holds it."""
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query) if name in _SHARED]
    password = next((value for name, value in query if name == "password"), None)
    place = parts.netloc
    if parts.password is not None:
        user, _, host = parts.netloc.rpartition("@")
        password, place = unquote(parts.password), f"{user.partition(':')[0]}@{host}"
    shared = urlencode([(name, value) for name, value in query if name != "password"])
    address = urlunsplit(parts._replace(scheme="postgresql", netloc=place, query=shared))
    return address, {} if password is None else {"PGPASSWORD": password}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise StartError(
            f"Backups of PostgreSQL need {name}, which is not on the PATH. Install PostgreSQL's client programs "
            "(on Debian: apt install postgresql-client), in the server's version or a newer one."
        )
    return found


async def run(url: str, name: str, *options: str) -> None:
    address, secret = named(url)
    process = await asyncio.create_subprocess_exec(
        _program(name),
        f"--dbname={address}",
        *options,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env=os.environ | secret,
    )
    await _ended(process, name)


async def restore(url: str, dump: Path, first: str, last: str) -> None:
    """All in one transaction: `first`, then what pg_restore makes of the dump, then `last`. It is only committed if pg_restore
    came to its end: psql takes the end of what it is given for the end of all, even in the middle of a table."""
    address, secret = named(url)
    async with AsyncExitStack() as stack:
        reader = await _started(
            stack, "pg_restore", "--no-owner", "--no-privileges", "--file=-", str(dump), stdout=PIPE
        )
        writer = await _started(
            stack, "psql", f"--dbname={address}", "--no-psqlrc", "--quiet", "--single-transaction",
            "--set=ON_ERROR_STOP=1", f"--command={first}", "--file=-",
            stdin=PIPE, stdout=DEVNULL, env=os.environ | secret | {"PGOPTIONS": "-c client_min_messages=warning"},
        )  # fmt: skip
        assert reader.stderr is not None
        assert writer.stderr is not None
        is_whole, why, why_not = await asyncio.gather(
            _hand_over(reader, writer, last), reader.stderr.read(), writer.stderr.read()
        )
        if not is_whole:
            raise broken(f"pg_restore says {_last_words(why)}")
        if await writer.wait():
            raise StoreUnavailable(code="store_error", detail=f"psql failed: {_last_words(why_not)}")


async def _hand_over(reader: Process, writer: Process, last: str) -> bool:
    """False: the reader failed, and the writer was ended before it could commit."""
    assert reader.stdout is not None
    assert writer.stdin is not None
    try:
        while chunk := await reader.stdout.read(CHUNK_BYTES):
            writer.stdin.write(chunk)
            await writer.stdin.drain()
        if await reader.wait():
            _kill(writer)
            return False
        writer.stdin.write(last.encode())
        await writer.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):  # the writer has ended, and says why
        _kill(reader)
    writer.stdin.close()
    return True


async def _started(stack: AsyncExitStack, name: str, *options: str, **given: Any) -> Process:
    """Ended with the block, if it does not end before."""
    process = await asyncio.create_subprocess_exec(_program(name), *options, stderr=PIPE, **given)

    async def end() -> None:
        _kill(process)
        await process.wait()

    stack.push_async_callback(end)
    return process


def _kill(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def _ended(process: Process, name: str) -> None:
    """Raises StoreUnavailable with the program's own words. Whoever is cancelled ends it."""
    try:
        _, said = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise StoreUnavailable(code="store_error", detail=f"{name} failed: {_last_words(said)}")


def _last_words(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    return (" ".join(lines) or "nothing")[-ERROR_CHARS:]


async def read_through(dump: Path) -> dict[str, int]:
    """Rows per table, as they stand in the dump."""
    process = await asyncio.create_subprocess_exec(
        _program("pg_restore"), "--data-only", "--file=-", str(dump),
        stdout=PIPE, stderr=PIPE, limit=1024 * 1024 * 1024,
    )  # fmt: skip
    assert process.stdout is not None
    counts: dict[str, int] = {}
    table: str | None = None
    try:
        async for line in process.stdout:
            if table is not None:
                if line == b"\\.\n":
                    table = None
                else:
                    counts[table] += 1
            elif line.startswith(b"COPY "):
                table = line.split()[1].decode().rpartition(".")[2].strip('"')
                counts[table] = 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None and not process.stdout.at_eof():
                process.kill()
        said = await process.communicate()
    if process.returncode:
        raise broken(f"pg_restore says {_last_words(said[1])}")
    return counts
