"""The three services of profile `crawler` as processes, in a network of their own, so that names, ports and health checks are
those of compose.yaml to the letter. Only folders differ. Prints one JSON object of what was seen.

Run by crawler_check.py: unshare --net --mount python -m tests.deploy.crawler_life FOLDER
"""

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from pymongo import MongoClient

from tests.archive import mongo_server
from tests.deploy.composed import ROOT, composed
from tests.patience import PATIENCE_S

PASSWORDS = {"TELEGRAM_REDIS_PASSWORD": "r3d1s", "TELEGRAM_MONGODB_PASSWORD": "m0ng0"}
KEY = "crawler-key"


class Life:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.services = composed(ROOT / "compose.yaml", PASSWORDS, "crawler")
        self._moved = {"/var/lib/peik": str(folder / "peik"), "/data": str(folder / "redis")}
        for name in ("peik", "redis", "mongodb"):
            (folder / name).mkdir()

    async def start(self, name: str, *command: str, **more: str) -> asyncio.subprocess.Process:
        """With the environment that compose gives it, and no other."""
        with (self._folder / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *map(self._here, command),
                cwd=self._folder / "peik",
                env=self.environment(name) | more,
                stdout=log,
                stderr=log,
            )

    def environment(self, name: str) -> dict[str, str]:
        given = {key: self._here(value) for key, value in self.services[name]["environment"].items()}
        return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(self._folder), **given}

    def _here(self, text: str) -> str:
        for old, new in self._moved.items():
            text = text.replace(old, new)
        return text

    async def is_healthy(self, name: str) -> bool:
        """The health check as it is written. Raises FileNotFoundError if its program is not here."""
        kind, *words = self.services[name]["healthcheck"]["test"]
        if kind == "CMD-SHELL":
            words = ["sh", "-c", *words]
        if words[0] == "python":
            words[0] = sys.executable
        if shutil.which(words[0]) is None:
            raise FileNotFoundError(words[0])
        check = await asyncio.create_subprocess_exec(
            *words, env=self.environment(name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return await check.wait() == 0

    async def healthy(self, name: str, process: asyncio.subprocess.Process) -> bool | None:
        """Once it is; None if its check cannot be run here. It must have said no before there was anything to ask."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if await self.is_healthy(name):
                        return True
                except FileNotFoundError:
                    return None
                assert process.returncode is None, (self._folder / f"{name}.log").read_text()


async def live(folder: Path) -> dict[str, Any]:
    life, seen = Life(folder), {}
    for name in life.services:
        with contextlib.suppress(FileNotFoundError):
            assert not await life.is_healthy(name), f"{name} is healthy before it is there"
    without = await life.start("telegram-redis", *life.services["telegram-redis"]["command"], REDISCLI_AUTH="")
    seen["redis without a password ends with"] = await without.wait()
    redis = await life.start("telegram-redis", *life.services["telegram-redis"]["command"])
    mongod = await _mongod(life, folder / "mongodb")
    app = None
    try:
        seen["telegram-redis"] = await life.healthy("telegram-redis", redis)
        seen["telegram-mongodb"] = await life.healthy("telegram-mongodb", mongod)
        app = await life.start("app", sys.executable, "-m", "peik", "serve", PEIK_ADMIN_KEY=KEY)
        seen["app"] = await life.healthy("app", app)
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as http:
            async with asyncio.timeout(PATIENCE_S):
                while "parts" not in seen or seen["parts"]["archive"]["status"] != "ok":  # it is opened behind the rest
                    async with http.get("http://127.0.0.1:8000/health") as answer:
                        seen["parts"] = (await answer.json())["parts"]
            async with http.get("http://127.0.0.1:8000/ready") as answer:
                seen["ready"] = answer.status
        asked = ["redis-cli", "--no-auth-warning", "-a", PASSWORDS["TELEGRAM_REDIS_PASSWORD"], "dbsize"]
        seen["keys"] = int(await _output(*asked))
        seen["refused"] = "NOAUTH" in await _output("redis-cli", "dbsize")
        with MongoClient(life.environment("app")["PEIK_ARCHIVE"]) as client:
            seen["collections"] = sorted(client["peik"].list_collection_names())
        for name, process in (("app", app), ("telegram-redis", redis), ("telegram-mongodb", mongod)):
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                seen[f"{name} ends with"] = await process.wait()
    finally:
        for started in filter(None, (app, redis, mongod)):
            if started.returncode is None:
                started.kill()
                await started.wait()
    seen["log"] = (folder / "app.log").read_text()
    return seen


async def _mongod(life: Life, folder: Path) -> asyncio.subprocess.Process:
    """As the image begins: the user is made first, and then nobody gets in without a password."""
    found = mongo_server.wanted()
    service = life.services["telegram-mongodb"]
    given = service["environment"]
    places = ("--dbpath", str(folder), "--auth", "--nounixsocket", "--bind_ip", "127.0.0.1")
    process = await life.start("telegram-mongodb", found, *service["command"][1:], *places)

    def make_user() -> None:
        with MongoClient("mongodb://127.0.0.1:27017/?serverSelectionTimeoutMS=60000") as client:
            user, password = given["MONGO_INITDB_ROOT_USERNAME"], given["MONGO_INITDB_ROOT_PASSWORD"]
            client.admin.command("createUser", user, pwd=password, roles=["root"])

    await asyncio.to_thread(make_user)
    return process


async def _output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return (await process.communicate())[0].decode()


def _network(folder: Path, names: list[str]) -> None:
    """lo is up, and the services find each other by name."""
    with socket.socket() as any_socket:
        up = struct.pack("16sh", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(names)}\n", encoding="utf-8")
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)


def main(folder: Path, write: Callable[[str], Any] = sys.stdout.write) -> None:
    _network(folder, list(composed(ROOT / "compose.yaml", PASSWORDS, "crawler")))
    write(json.dumps(asyncio.run(live(folder))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
