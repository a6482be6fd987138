"""`make accounts-proof`: an hour of twenty accounts on two nodes, against an MTProto server on loopback that is as strict as
Telegram. Real processes, sockets and databases, by the real clock.

All sign in by REST, some with a password, each at a data centre of its own. People write, edit and delete; letters go out;
histories are read. Meanwhile nodes are killed, stopped and frozen, Telegram restarts, loses pushes, floods, cannot replay, and
ends keys; the database restarts. In the end what Telegram has must be what the archive has. Prints the figures, with the largest
rate at which any account asked for anything, and ends with 1 if a promise was broken.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from cryptography.hazmat.primitives.asymmetric import rsa
from telethon import types, utils

from peik.archive.store import Archive, MessageFilter
from peik.archive.wiring import archive_of
from proofs.nodes.cluster import Node
from proofs.nodes.databases import Postgres
from proofs.restarts import keep
from tests.accounts.mtproto_server import LoopbackTelegram
from tests.accounts.tl_server import CODE, NEWS, PASSWORD, SARA, TEAM
from tests.archive.mongo_server import MongoServer
from tests.processes.programs import simulated

ACCOUNTS = 20
BEFORE = 150  # messages in each of two chats before the account signs in: for crawls
WRITE_S = 0.5
LETTER_S = 3.0
DEED_S = (15.0, 35.0)
SETTLE_S = 1200.0
RATE_MAX = 3  # of one account and method in one second
DIFFERENCES_MAX = 6  # the same of what channels missed: there are two, and a slice is followed by the next
TYPING_S = (1.5, 4.0)  # who signs in reads a code first
CODES_MAX = 2  # sign-ins of one phone: Peik asks for three codes an hour at most
CHATS = (SARA, utils.get_peer_id(types.PeerChannel(TEAM)))


class Account(LoopbackTelegram):
    """Telegram as one account has it, at a data centre of its own."""

    def __init__(self, number: int, private: rsa.RSAPrivateKey, ports: dict[int, int]) -> None:
        super().__init__(private, home=11 + number)
        self.name = f"account-{number}"
        self.me_id, self.phone = 600_000_001 + number, f"+99890{number:07}"
        self.has_password = number % 4 == 0
        self.tells_channels = True
        self.keys = {self.home: {}}
        self.ports = ports  # of all data centres: each says where the others are
        self.written: list[Any] = []  # that may be edited or deleted
        self.late = 0  # requests by a connection after a newer one of the same key had asked
        self.sign_ins = 0
        self._newest: dict[bytes, int] = {}
        self._ends = asyncio.Event()

    def answer(self, request: Any, key: bytes) -> Any:
        assert self.asking is not None
        newest = self._newest.setdefault(key, self.asking.number)
        self.late += self.asking.number < newest
        self._newest[key] = max(newest, self.asking.number)
        self.requests.clear()
        return super().answer(request, key)

    async def serve(self) -> None:
        """Until it is cancelled, with restarts."""
        while True:
            async with self.running():
                self._ends.clear()
                await self._ends.wait()
            await asyncio.sleep(self.away_s)

    def restart(self, away_s: float) -> None:
        self.away_s = away_s
        self._ends.set()

    def lives_on(self) -> None:
        self.at = datetime.datetime.now(datetime.UTC)

    def there(self) -> dict[tuple[int, int], str]:
        """What Telegram has of this account."""
        logs = [self.log, *self.channel_log.values()]
        found = [what for log in logs for _, what in log if isinstance(what, types.Message)]
        return {(utils.get_peer_id(one.peer_id), one.id): one.message for one in found}


class Front(LoopbackTelegram):
    """Where all sign in. It knows at which data centre each phone lives."""

    def __init__(self, private: rsa.RSAPrivateKey, ports: dict[int, int], accounts: list[Account]) -> None:
        super().__init__(private, home=2)
        self.ports = ports
        self._homes = {one.phone: one.home for one in accounts}

    def answer_at(self, dc: int, request: Any, key: bytes) -> Any:
        phone = getattr(request, "phone_number", None)
        return self.answer(request, key) if phone is None else f"PHONE_MIGRATE_{self._homes[phone]}"


class Hour:
    def __init__(self, accounts: list[Account], nodes: list[Node], database: Postgres, chance: random.Random) -> None:
        self.accounts = accounts
        self.nodes = nodes
        self.database = database
        self.chance = chance
        self.letters: dict[str, str | None] = {}
        self.done: Counter[str] = Counter()
        self._number = 0
        self._began = time.monotonic()

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f}  {line}", flush=True)

    # ---- asking Peik ----

    async def call(self, verb: str, path: str, **more: Any) -> Any:
        """Whichever node answers. Raises AssertionError for a refusal that stays."""
        said: Any = None
        for _ in range(600):
            up = [node for node in self.nodes if node.is_up and not node.is_frozen]
            if up:
                timeout = aiohttp.ClientTimeout(total=20)
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
                    status, said = await self.chance.choice(up).call(verb, path, timeout=timeout, **more)
                    if status < 300:
                        return said
                    assert status in (409, 503), said
            await asyncio.sleep(0.5)
        raise AssertionError(f"{verb} {path}: {said}")

    async def sign_in(self, account: Account) -> None:
        account.sign_ins += 1
        path = f"/v1/sessions/{account.name}"
        await self.call("POST", f"{path}/code", json={})
        await asyncio.sleep(self.chance.uniform(*TYPING_S))
        said = await self.call("POST", f"{path}/sign-in", json={"code": CODE})
        if said["state"] == "password_needed":
            await asyncio.sleep(self.chance.uniform(*TYPING_S))
            said = await self.call("POST", f"{path}/password", json={"password": PASSWORD})
        assert said["state"] == "active", said

    async def come_to(self, account: Account, is_so: Callable[[Any], bool], *, within_s: float = 300.0) -> None:
        async with asyncio.timeout(within_s):
            while not is_so(await self.call("GET", f"/v1/sessions/{account.name}")):  # noqa: ASYNC110
                await asyncio.sleep(1.0)

    async def begin(self) -> None:
        for account in self.accounts:
            account.lives_on()
            account.post(NEWS, f"{account.name} news from before")
            for number in range(BEFORE):
                account.private(f"{account.name} from before {number}")
                account.post(TEAM, f"{account.name} team from before {number}")
            body = {"agent_id": "proof", "phone": account.phone, "session_id": account.name}
            await self.call("POST", "/v1/sessions", json=body)
            await self.sign_in(account)
        for account in self.accounts:
            await self.come_to(account, lambda said: said["is_connected"])
            for chat in (*CHATS, utils.get_peer_id(types.PeerChannel(NEWS))):
                await self.call("POST", f"/v1/sessions/{account.name}/chats/{chat}/crawl", json={})
        self.say("all are signed in, and their histories are being read")

    # ---- what people do ----

    async def people(self) -> None:
        while self.goes_on:
            await asyncio.sleep(self.chance.uniform(0, 2 * WRITE_S))
            self.write(self.chance.choice(self.accounts))

    def write(self, account: Account) -> None:
        account.lives_on()
        self._number += 1
        text = f"{account.name} m{self._number}"
        kind = self.chance.choices(("private", "group", "team", "news", "edit", "delete"), (5, 2, 3, 2, 1, 1))[0]
        if kind in ("edit", "delete") and not account.written:
            kind = "private"
        match kind:
            case "private" | "group":
                account.written.append(account.private(text, group=kind == "group"))
            case "team" | "news":
                account.written.append(account.post(TEAM if kind == "team" else NEWS, text))
            case _:
                message = account.written.pop(self.chance.randrange(len(account.written)))
                if kind == "edit":
                    account.change(message, f"{text}, edited")
                else:
                    account.remove(message)
        self.done[f"{kind}s" if kind in ("edit", "delete") else "messages"] += 1
        del account.written[:-40]

    async def senders(self) -> None:
        async with asyncio.TaskGroup() as group:
            while self.goes_on:
                await asyncio.sleep(LETTER_S)
                group.create_task(self._send(self.chance.choice(self.accounts)))

    async def _send(self, account: Account) -> None:
        self._number += 1
        text = f"{account.name} letter {self._number}"
        self.letters[text] = None
        body = {
            "bot_id": str(account.me_id),
            "method": "sendMessage",
            "params": {"chat_id": self.chance.choice(CHATS), "text": text},
            "idempotency_key": text,
        }
        self.letters[text] = (await self.call("POST", "/v1/letters", json=body))["id"]

    # ---- what goes wrong ----

    async def trouble(self) -> None:
        deeds: dict[Callable[[], Awaitable[None]], int] = {
            self.kill: 4,
            self.stop: 1,
            self.freeze: 3,
            self.restart_telegram: 2,
            self.flood: 3,
            self.lose_pushes: 2,
            self.replay_nothing: 2,
            self.revoke: 2,
            self.restart_database: 1,
        }
        first = list(deeds)
        while self.goes_on:
            await asyncio.sleep(self.chance.uniform(*DEED_S))
            deed = first.pop(0) if first else self.chance.choices(list(deeds), list(deeds.values()))[0]
            name = deed.__name__.replace("_", " ")
            self.done[name] += 1
            self.say(name)
            await deed()

    async def kill(self) -> None:
        node = self.chance.choice(self.nodes)
        await node.kill()
        await asyncio.sleep(self.chance.choice([0.0, 3.0, 15.0]))
        await node.up()

    async def stop(self) -> None:
        node = self.chance.choice(self.nodes)
        assert await node.end() == 0, node.output[-20:]
        await node.up()

    async def freeze(self) -> None:
        """For longer than its leases last."""
        node = self.chance.choice(self.nodes)
        node.freeze()
        await asyncio.sleep(self.chance.uniform(12, 30))
        node.wake()

    async def restart_telegram(self) -> None:
        for account in self.chance.sample(self.accounts, 7):
            account.restart(self.chance.uniform(1, 20))
        await asyncio.sleep(20)

    async def flood(self) -> None:
        for account in self.chance.sample(self.accounts, 5):
            method = self.chance.choice(["GetHistory", "GetDialogs", "SendMessage", "GetDifference", "GetUsers"])
            account.next(method, f"FLOOD_WAIT_{self.chance.choice([5, 20, 40])}")

    async def lose_pushes(self) -> None:
        some = self.chance.sample(self.accounts, 7)
        for account in some:
            account.is_deaf = True
        await asyncio.sleep(self.chance.uniform(3, 20))
        for account in some:
            account.is_deaf = False

    async def replay_nothing(self) -> None:
        """Telegram restarts, and says of what happened meanwhile: too long."""
        for account in self.chance.sample(self.accounts, 4):
            account.too_long.update({None, TEAM, NEWS})
            account.restart(5)
        await asyncio.sleep(10)

    async def revoke(self) -> None:
        """The owner ends the session on another device, sees what that was, and signs in again."""
        able = [one for one in self.accounts if one.sign_ins < CODES_MAX]
        if not able:
            return
        account = self.chance.choice(able)
        account.end_keys(self.chance.choice(["SESSION_REVOKED", "AUTH_KEY_UNREGISTERED", "AUTH_KEY_DUPLICATED"]))
        for line in list(account.lines):
            line.close()
        await self.come_to(account, lambda said: said["state"] == "revoked")
        await asyncio.sleep(self.chance.uniform(0, 20))
        await self.sign_in(account)

    async def restart_database(self) -> None:
        await asyncio.to_thread(self.database.restart)

    # ---- the end ----

    async def live(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for work in (self.people, self.senders, self.trouble):
                group.create_task(work())

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self._ends_at

    async def settle(self, archive: Archive) -> list[str]:
        """What is wrong when everybody has had time enough."""
        for account in self.accounts:
            account.is_deaf = False
            account.scripted.clear()
        self.say("no trouble any more")
        ends_at = time.monotonic() + SETTLE_S
        wrong = ["nobody looked"]
        while wrong and time.monotonic() < ends_at:
            await asyncio.sleep(15)
            wrong = await self.judge(archive)
            if wrong:
                self.say(f"  {len(wrong)} are not right yet: {wrong[0][:300]}")
        self.done["seconds until all was right"] = round(SETTLE_S - (ends_at - time.monotonic()))
        return wrong

    async def judge(self, archive: Archive) -> list[str]:
        wrong = []
        for account in self.accounts:
            here = await archived(archive, account.name)
            there = account.there()
            if here != there:
                missing, more = there.items() - here.items(), here.items() - there.items()
                wrong.append(
                    f"{account.name}: {len(missing)} missing {list(missing)[:3]}, {len(more)} too much {list(more)[:3]}"
                )
            numbers = await fed(archive, account.name)
            if numbers != list(range(1, len(numbers) + 1)):
                wrong.append(f"{account.name}: its feed has holes")
        arrived = Counter(text for one in self.accounts for text in one.there().values() if " letter " in text)
        if arrived != Counter(dict.fromkeys(self.letters, 1)):
            odd = [text for text in self.letters if arrived[text] != 1]
            wrong.append(f"{len(odd)} letters did not arrive once: {[(text, arrived[text]) for text in odd[:3]]}")
        return wrong

    async def keep_logs(self, folder: Path) -> None:
        """What the nodes wrote, and how letters stand that did not arrive once: from them causes can be found."""
        for number, node in enumerate(self.nodes, start=1):
            (folder / f"node-{number}.log").write_text("".join(node.output), encoding="utf-8")
        arrived = Counter(text for one in self.accounts for text in one.there().values())
        is_up = any(node.is_up for node in self.nodes)
        odd = [id_ for text, id_ in self.letters.items() if is_up and arrived[text] != 1 and id_ is not None]
        letters = [await self.call("GET", f"/v1/letters/{id_}") for id_ in odd[:100]]
        (folder / "letters.json").write_text(json.dumps(letters, indent=1, ensure_ascii=False), encoding="utf-8")

    def rates(self) -> dict[str, int]:
        """The most that one account asked for in any second, by method."""
        most: Counter[str] = Counter()
        for account in self.accounts:
            for method, count in account.busiest().items():
                most[method] = max(most[method], count)
        return dict(most.most_common())

    def figures(self) -> dict[str, Any]:
        there = [account.there() for account in self.accounts]
        return {
            "accounts": len(self.accounts),
            "nodes": len(self.nodes),
            **dict(sorted(self.done.items())),
            "messages at the server, and in the archive": sum(len(one) for one in there),
            "letters, sent once": len(self.letters),
            "sign-ins": sum(one.sign_ins for one in self.accounts),
            "connections": sum(one.opened for one in self.accounts),
            "requests": sum(sum(one.rates.values()) for one in self.accounts),
            "requests of a connection after a newer one of the same key": sum(one.late for one in self.accounts),
            "most of one account in a second, by method": self.rates(),
        }


async def archived(archive: Archive, session_id: str) -> dict[tuple[int, int], str]:
    """What is archived, and not deleted."""
    found: dict[tuple[int, int], str] = {}
    cursor: str | None = None
    while True:
        page, cursor = await archive.messages(MessageFilter(session_id=session_id), cursor=cursor, limit=1000)
        found |= {(one.chat_id, one.message_id): one.text for one in page if one.deleted_at_ms is None}
        if cursor is None:
            return found


async def fed(archive: Archive, session_id: str) -> list[int]:
    numbers: list[int] = []
    while page := await archive.fed(session_id, after=numbers[-1] if numbers else 0, limit=1000):
        numbers += [one.number for one in page]
    return numbers


async def proved(
    folder: Path, minutes: float, kind: str, seed: int, *, logs: Path | None
) -> tuple[dict[str, Any], list[str]]:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    ports: dict[int, int] = {}
    accounts = [Account(number, private, ports) for number in range(ACCOUNTS)]
    front = Front(private, ports, accounts)
    key = folder / "server.pem"
    key.write_text(front.public_key, encoding="ascii")
    database = Postgres()
    database.start()
    mongo = MongoServer(folder / "mongo") if kind == "mongo" else None
    settings: dict[str, Any] = {
        "telegram_api_id": "1",
        "telegram_api_hash": "h",
        "secret_key": "a secret of this proof",
        "log_format": "json",
    }
    if mongo is not None:
        mongo.folder.mkdir()
        mongo.start()
        settings["archive"] = mongo.url.format(database="peik")
    archive = archive_of(settings.get("archive"), store=database.store)
    serving = []
    try:
        async with simulated(folder) as (sim, http), front.running():
            serving = [asyncio.create_task(account.serve()) for account in accounts]
            while len(ports) < len(accounts) + 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            settings["sessions_server"] = f"mtproto://127.0.0.1:{ports[2]}?dc=2&key={key}"
            nodes = []
            for number in (1, 2):
                home = folder / f"node-{number}"
                home.mkdir()
                nodes.append(Node(home, sim.url, http, store=database.store, **settings))
            hour = Hour(accounts, nodes, database, random.Random(seed))
            try:
                for node in nodes:
                    await node.up()
                await hour.begin()
                await archive.open()
                await hour.live(minutes * 60)
                wrong = await hour.settle(archive)
                surprises = [
                    line for node in nodes for line in node.output if "surprise" in line or "Traceback" in line
                ]
                return hour.figures() | {"surprises in the log": len(surprises)}, [
                    *wrong,
                    *_of_rates(hour),
                    *surprises[:5],
                ]
            finally:
                if logs is not None:
                    await hour.keep_logs(logs)
                await archive.close()
                for node in nodes:
                    if hasattr(node, "program"):
                        await node.kill()
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        if mongo is not None:
            mongo.kill()
        database.remove()


def _of_rates(hour: Hour) -> list[str]:
    return [
        f"{method} {count} times in a second"
        for method, count in hour.rates().items()
        if count > (DIFFERENCES_MAX if method == "updates.getChannelDifference" else RATE_MAX)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.accounts", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--archive", choices=("postgres", "mongo"), default="postgres")
    parser.add_argument("--seed", type=int, default=20261119)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--logs", type=Path, help="a folder for what the nodes wrote")
    asked = parser.parse_args()
    if asked.logs is not None:
        asked.logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peik-accounts-") as name:
        figures, wrong = asyncio.run(proved(Path(name), asked.minutes, asked.archive, asked.seed, logs=asked.logs))
    figures = {"minutes": asked.minutes, "archive": asked.archive, **figures}
    print(json.dumps(figures, indent=1, ensure_ascii=False))
    keep(asked.write, asked.archive, figures | {"broken": wrong})
    print("every promise kept" if not wrong else "A PROMISE WAS BROKEN: " + "\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
