"""A real nginx with the very configuration of deploy/, before nodes of the story's choosing. `tests.machine` brings it."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests import wanting
from tests.patience import PATIENCE_S
from tests.storage.redis_server import free_port

DEPLOY = Path(__file__).parents[2] / "deploy" / "nodes"
PACKAGE = "nginx-light"
HOW = wanting.packaged(PACKAGE)


def program() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


needed = pytest.mark.skipif(program() is None, reason=wanting.words(PACKAGE, HOW))


@contextlib.asynccontextmanager
async def balanced(folder: Path, nodes: Sequence[str]) -> AsyncIterator[str]:
    """The address of the balancer before nodes like 127.0.0.1:8081."""
    found = program() or wanting.skip(PACKAGE, HOW)
    port = free_port()
    place = folder / "nginx"
    place.mkdir()
    (place / "nginx.conf").write_text(_placed(place, port), encoding="utf-8")
    (place / "nodes.conf").write_text(_nodes(nodes), encoding="utf-8")
    log = (place / "log").open("wb")
    process = await asyncio.create_subprocess_exec(
        found, "-p", str(place), "-c", str(place / "nginx.conf"), "-g", f"daemon off; pid {place}/pid;", stderr=log
    )
    try:
        await _listening(port, process, place)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        log.close()


def _placed(place: Path, port: int) -> str:
    """The configuration as it is, but for where it listens and where it keeps its files."""
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    temporary = "".join(
        f"    {kind}_temp_path {place}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    changes = {
        "http {\n": "http {\n" + temporary,
        "listen 8080;": f"listen 127.0.0.1:{port};",
        "worker_processes auto;": "worker_processes 1;\nuser root;" if os.geteuid() == 0 else "worker_processes 1;",
        "worker_rlimit_nofile 65536;": "",
        "worker_connections 16384;": "worker_connections 512;",
    }
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _nodes(nodes: Sequence[str]) -> str:
    """nodes.conf for these, by address: what `resolve` is for, and what Debian's nginx does not know, is not needed."""
    lines = []
    waiting = list(nodes)
    for line in (DEPLOY / "nodes.conf").read_text(encoding="utf-8").splitlines():
        if line.startswith("resolver"):
            continue
        if line.lstrip().startswith("server "):
            terms = line.split(" resolve ")[1]
            lines.append(f"    server {waiting.pop(0)} {terms}")
        else:
            lines.append(line)
    assert not waiting
    return "\n".join(lines) + "\n"


async def _listening(port: int, process: asyncio.subprocess.Process, place: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            assert process.returncode is None, (place / "log").read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
