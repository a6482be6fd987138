"""A restart that nobody notices: the socket stays with systemd, or is handed on to the process that comes next."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import aiohttp
import pytest

from proofs.restarts import LISTENS, Activated, Lives, a_store, lives, restarted
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, TOKEN, Copied, Program, Sim, simulated
from tests.storage.sqlite.older import rewind

TELEGRAM_NOWHERE = "http://127.0.0.1:1"
CALL = f"/bot{TOKEN}/sendMessage"


@contextlib.asynccontextmanager
async def one_life(folder: Path, how: str = "replace", **settings: str) -> AsyncIterator[tuple[Lives, Sim]]:
    asked = {"bot_tokens": TOKEN, "inbound": "off", **settings}
    async with simulated(folder) as (sim, _), lives(folder, how, sim.url, **asked) as chain:
        yield chain, sim


async def say(url: str, text: str, *, chat: int = 5) -> int:
    """The id that the message got."""
    async with aiohttp.ClientSession() as http:
        return await said(http, url, text, chat=chat)


async def said(http: aiohttp.ClientSession, url: str, text: str, *, chat: int = 5) -> int:
    async with http.post(f"{url}{CALL}", json={"chat_id": chat, "text": text}) as answer:
        body = await answer.json()
        assert answer.status == 200, body
        return int(body["result"]["message_id"])


class Wire:
    """A client's connection, as bytes."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._place = host, int(port)

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(*self._place)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, text: str, *, chat: int = 5) -> tuple[str, dict[str, object]]:
        """The head of the answer in lower case, and its result."""
        self.send(text, chat=chat)
        return await self.answer()

    def send(self, text: str, *, chat: int = 5) -> None:
        body = json.dumps({"chat_id": chat, "text": text})
        head = f"POST {CALL} HTTP/1.1\r\nHost: peik\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self._writer.write(f"{head}\r\n\r\n{body}".encode())

    async def answer(self) -> tuple[str, dict[str, object]]:
        async with asyncio.timeout(PATIENCE_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = re.search(r"content-length: (\d+)", head)
            assert length is not None, head
            body = json.loads(await self._reader.readexactly(int(length[1])))
        assert "200 ok" in head, (head, body)
        return head, body["result"]

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            assert await self._reader.read() == b""


# ---- under load ----


@pytest.mark.gate  # restarts of real processes, at their own pace
@pytest.mark.parametrize("how", ["socket", "replace"])
def test_restarts_under_load_refuse_no_connection_and_lose_no_answer(how: str, tmp_path: Path) -> None:
    found = asyncio.run(restarted(tmp_path, how, rounds=4, seed=26))
    assert found.is_good(), found
    assert not found.why
    assert min(found.answered, found.echoed, found.streamed) > 0


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_nodes_replace_each_other_under_load(kind: str, tmp_path: Path) -> None:
    found = asyncio.run(restarted(tmp_path, "replace", rounds=2, seed=5, store=a_store(kind)))
    assert found.is_good(), found
    assert not found.why


# ---- a socket of systemd ----


def test_who_comes_while_nobody_serves_waits_in_the_queue(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path, "socket") as (chain, sim):
            await say(chain.url, "before")
            assert await chain.program.terminate() == 0
            async with Wire(chain.url) as wire:
                wire.send("while nobody is there")
                await chain.start()
                _, result = await wire.answer()
                assert result["text"] == "while nobody is there"
            sent = await sim.get("sent", chat=5)
            assert [one["text"] for one in sent["deliveries"]] == ["before", "while nobody is there"]

    asyncio.run(story())


def test_a_call_that_waits_for_telegram_has_its_answer_before_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path, "socket", gateway_wait="60s", grace="60s") as (chain, sim):
            await sim.post("faults", kind="slow", least_s=1.0, most_s=1.0, count=1)
            async with Wire(chain.url) as wire:
                wire.send("slow")
                await sim.get("sent", at_least=1)
                assert await chain.program.terminate() == 0
                head, result = await wire.answer()
                assert "connection: close" in head
                assert result["message_id"] != 0

    asyncio.run(story())


@pytest.mark.gate  # waits for longer than the grace
def test_a_call_that_waits_for_longer_than_the_grace_is_told_that_its_letter_is_accepted(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path, "socket", gateway_wait="600s", grace="2s") as (chain, sim):
            await sim.post("faults", kind="hang", count=1)
            async with Wire(chain.url) as wire:
                wire.send("patience")
                async with asyncio.timeout(PATIENCE_S):
                    while await sim.get("faults"):  # noqa: ASYNC110  another process is waited for
                        await asyncio.sleep(0.02)  # until the try hangs
                chain.program.process.send_signal(signal.SIGTERM)
                head, result = await wire.answer()
                assert "connection: close" in head
                assert int(str(result["message_id"])) >= 2_000_000_000  # provisional
            assert await chain.program.ended() == 0
            await chain.start()
            await sim.get("sent", at_least=1)

    asyncio.run(story())


def test_a_socket_that_nobody_can_listen_at_is_explained(tmp_path: Path) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wrong:
            wrong.bind(("127.0.0.1", 0))
            program = Activated(wrong.fileno(), "-m", "peik", "serve", folder=tmp_path, PEIK_ADMIN_KEY=KEY)
            with pytest.raises(RuntimeError, match=r"peik\.socket\) is none to listen at.*ListenStream="):
                await program.start(LISTENS)
            assert await program.ended() == 1

    asyncio.run(story())


# ---- --replace ----


def test_a_kept_alive_connection_is_answered_once_more_and_then_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path) as (chain, sim):
            before = chain.program
            async with Wire(chain.url) as wire:
                head, _ = await wire.ask("one")
                assert "connection: close" not in head
                await chain.start("--replace")
                texts = ["one"]
                while "connection: close" not in head:
                    texts.append(f"one and {len(texts)}")
                    head, result = await wire.ask(texts[-1])
                    assert result["message_id"] != 0
                await wire.ended()
            assert await before.ended() == 0
            await say(chain.url, "by the next one")
            sent = await sim.get("sent", chat=5)
            assert [one["text"] for one in sent["deliveries"]] == [*texts, "by the next one"]

    asyncio.run(story())


def test_a_next_one_that_cannot_start_leaves_the_one_that_runs_as_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path) as (chain, _):
            async with Wire(chain.url) as wire:
                await wire.ask("before")
                chain._environment["PEIK_INBOUND"] = "webhook"
                before = chain.program
                with pytest.raises(RuntimeError, match="PEIK_INBOUND=webhook needs PEIK_PUBLIC_URL"):
                    await chain.start("--replace")
                head, _ = await wire.ask("after")
                assert "connection: close" not in head
            chain._environment["PEIK_INBOUND"] = "off"
            await chain.start("--replace")
            assert await before.ended() == 0
            await say(chain.url, "by the next one")

    asyncio.run(story())


def test_when_the_old_one_dies_in_the_middle_the_next_one_takes_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path) as (chain, sim):
            await say(chain.url, "before")
            dying = chain.program
            starting = asyncio.create_task(chain.start("--replace"))
            listener = listener_of(chain.url)
            async with asyncio.timeout(PATIENCE_S):
                while chain.program is dying or not has_open(chain.program, listener):  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
            await dying.kill()
            await starting
            await say(chain.url, "after")
            sent = await sim.get("sent", chat=5, at_least=2)
            assert [one["text"] for one in sent["deliveries"]] == ["before", "after"]
            await chain.next()  # the right to be the server has come with it
            await say(chain.url, "and once more")

    asyncio.run(story())


def test_a_next_one_that_is_ended_before_it_is_ready_leaves_the_one_that_runs(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path) as (chain, _):
            before = chain.program
            chain._environment["PEIK_BOT_TOKENS"] = f"{TOKEN},7000009:AAmore"  # which it writes down before it is ready
            with contextlib.closing(sqlite3.connect(tmp_path / "peik.db")) as file:
                file.execute("BEGIN IMMEDIATE")
                starting = asyncio.create_task(chain.start("--replace"))
                listener = listener_of(chain.url)
                async with asyncio.timeout(PATIENCE_S):
                    while chain.program is before or not has_open(chain.program, listener):  # noqa: ASYNC110
                        await asyncio.sleep(0.002)
                chain.program.process.send_signal(signal.SIGTERM)
                file.execute("ROLLBACK")
            with pytest.raises(RuntimeError, match="It ended"):
                await starting
            assert before.process.returncode is None
            await say(chain.url, "still here")
            await chain.start("--replace")
            assert await before.ended() == 0

    asyncio.run(story())


def test_one_that_is_ended_while_the_next_one_starts_can_be_replaced_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path) as (chain, _):
            ending = chain.program
            starting = asyncio.create_task(chain.start("--replace"))
            listener = listener_of(chain.url)
            async with asyncio.timeout(PATIENCE_S):
                while chain.program is ending or not has_open(chain.program, listener):  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
            assert await ending.terminate() == 0
            await starting
            await say(chain.url, "by the next one")
            await chain.next()
            await say(chain.url, "and the one after")

    asyncio.run(story())


def test_a_next_version_changes_the_schema_beside_the_one_that_runs(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path) as (chain, sim):
            await say(chain.url, "before")
            rewind(tmp_path / "peik.db", 9)
            async with Wire(chain.url) as wire:
                await chain.start("--replace")
                await wire.ask("by the old one")
            told = "".join(chain.output)
            assert "brought from 9 to" in told
            with contextlib.closing(sqlite3.connect(tmp_path / "peik.db.before-schema-10")) as copy:
                assert copy.execute("PRAGMA user_version").fetchone() == (9,)
            await say(chain.url, "by the next one")
            sent = await sim.get("sent", chat=5)
            assert [one["text"] for one in sent["deliveries"]] == ["before", "by the old one", "by the next one"]

    asyncio.run(story())


def listener_of(url: str) -> str:
    """The listening socket, by the number that the system gave it."""
    wanted = f"{int(url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return next(f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{wanted}") and row[3] == "0A")


def has_open(program: Program, name: str) -> bool:
    with contextlib.suppress(AttributeError, FileNotFoundError):  # it has not begun; or closes one just now
        return any(str(one.readlink()) == name for one in Path(f"/proc/{program.process.pid}/fd").iterdir())
    return False


def control(folder: Path) -> Path:
    return folder / "peik.db.control"


async def hello(path: Path, of: Program, *, protocol: int = 1) -> str:
    """What a running Peik answers to somebody who asks to replace it."""

    def ask() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.settimeout(PATIENCE_S)
            with contextlib.chdir(path.parent):
                line.connect(path.name)
            line.send(json.dumps({"protocol": protocol, "version": "0.0.0"}).encode())
            said, handles, _, _ = socket.recv_fds(line, 8192, 64)
            for handle in handles:
                os.close(handle)
            return said.decode()

    assert of.process.returncode is None
    return await asyncio.to_thread(ask)


async def refusal(folder: Path, **settings: str) -> str:
    asked = {"PEIK_ADMIN_KEY": KEY, "PEIK_API_ROOT": TELEGRAM_NOWHERE, "PEIK_PORT": "0", **settings}
    program = Copied("-m", "peik", "serve", "--replace", folder=folder, **asked)
    with pytest.raises(RuntimeError) as said:
        await program.start(LISTENS)
    assert await program.ended() == 1
    assert "Traceback" not in str(said.value)
    return str(said.value)


def test_what_cannot_be_taken_over_is_said_in_words(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path) as (chain, _):
            port = chain.url.rpartition(":")[2]
            words = await refusal(tmp_path, PEIK_PORT="9")
            assert f"listens on 127.0.0.1:{port}, and this one is set to 127.0.0.1:9" in words
            assert "goes on" in words
            assert "PEIK_HOST" in await refusal(tmp_path, PEIK_HOST="0.0.0.0")
            assert "does not know how version 0.0.0 takes over" in await hello(
                control(tmp_path), chain.program, protocol=99
            )
            assert control(tmp_path).stat().st_mode & 0o777 == 0o600
            await say(chain.url, "unharmed")
            assert await chain.program.terminate() == 0
            assert not control(tmp_path).exists()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"something else", "cannot be replaced by this version"),
        (
            (
                b'{"protocol":99,"pid":1,"version":"9.0","host":"","port":1,"scheme":"http","store":"",'
                b'"is_of_systemd":false,"is_supervised":false}'
            ),
            "The Peik that runs (9.0) cannot be replaced by this version",
        ),
    ],
)
def test_a_peik_of_another_way_of_handing_on_is_said_in_words(answer: bytes, words: str, tmp_path: Path) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting, waiting.dup() as handed:
            with contextlib.chdir(tmp_path):
                waiting.bind(control(tmp_path).name)
            waiting.listen()
            waiting.setblocking(False)

            async def old() -> None:
                line, _ = await asyncio.get_running_loop().sock_accept(waiting)
                with line:
                    await asyncio.get_running_loop().sock_recv(line, 8192)
                    socket.send_fds(line, [answer], [handed.fileno()])

            answering = asyncio.create_task(old())
            assert words in await refusal(tmp_path)
            await answering

    asyncio.run(story())


def test_a_peik_that_waits_nowhere_is_not_taken_over_from(tmp_path: Path) -> None:
    """As one of a version before there was `--replace`."""

    async def story() -> None:
        async with one_life(tmp_path) as (chain, _):
            control(tmp_path).unlink()
            words = await refusal(tmp_path)
            assert f"process {chain.program.process.pid}" in words
            assert "Stop it" in words

    asyncio.run(story())


def test_without_anybody_to_replace_it_starts_as_any(tmp_path: Path) -> None:
    async def story() -> None:
        asked = {"PEIK_ADMIN_KEY": KEY, "PEIK_API_ROOT": TELEGRAM_NOWHERE, "PEIK_PORT": "0"}
        program = Copied("-m", "peik", "serve", "--replace", folder=tmp_path, **asked)
        await program.start(LISTENS)
        assert "Nobody waits" in "".join(program.output)
        assert await program.terminate() == 0

    asyncio.run(story())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_handed_nothing(tmp_path: Path) -> None:
    asking = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setuid(65534)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
    line.connect("peik.db.control")
    line.send(b'{"protocol": 1, "version": "1"}')
    said, handles, _, _ = socket.recv_fds(line, 8192, 64)
    print(said.decode(), len(handles))
"""

    async def ask() -> str:
        command = [sys.executable, "-I", "-c", asking, str(tmp_path)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    async def story() -> None:
        async with one_life(tmp_path) as (chain, _):
            assert "PermissionError" in await ask()
            control(tmp_path).chmod(0o666)  # by somebody who meant well
            for folder in (tmp_path, *tmp_path.parents[:3]):
                if folder != Path("/tmp"):
                    folder.chmod(0o755)
            said = await ask()
            assert "start this one as the same user" in said
            assert said.rstrip().endswith(" 0")
            await say(chain.url, "unharmed")

    asyncio.run(story())


# ---- as systemd sees it ----

CREDENTIALS = struct.Struct("3i")


class NotifySocket:
    """What systemd hears, and from which process."""

    def __init__(self, path: Path) -> None:
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._line.settimeout(PATIENCE_S)
        self._line.setblocking(False)
        self._line.bind(str(path))
        self.heard: list[tuple[int, str]] = []
        asyncio.get_running_loop().add_reader(self._line, self._hear)  # at once: the system keeps few for who does not

    def _hear(self) -> None:
        said, ancillary, _, _ = self._line.recvmsg(999, socket.CMSG_SPACE(CREDENTIALS.size))
        self.heard += [(CREDENTIALS.unpack(data)[0], said.decode()) for *_, data in ancillary]

    async def until(self, words: str, *, of: int | None = None) -> tuple[int, str]:
        """The first time that a process, or any, has said this."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for process, said in self.heard:
                    if words in said and of in (None, process):
                        return process, said
                await asyncio.sleep(0.01)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._line)
        self._line.close()


def test_a_reload_gives_systemd_another_main_process_that_beats_on(tmp_path: Path) -> None:
    async def story() -> None:
        with contextlib.closing(NotifySocket(tmp_path / "notify")) as notify:
            asked = {"PEIK_PORT": "0", "PEIK_ADMIN_KEY": KEY, "PEIK_API_ROOT": TELEGRAM_NOWHERE}
            supervised = asked | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
            first = Program("-m", "peik", "serve", folder=tmp_path, **supervised, WATCHDOG_USEC="300000")
            url = (await first.start(LISTENS))[1]
            await notify.until("READY=1")

            words = await refusal(tmp_path, **asked)  # from a shell: systemd would start the old one again
            assert "systemctl reload peik" in words

            reload = Program("-m", "peik", "serve", "--replace", "--detach", folder=tmp_path, **supervised)
            await reload.start(LISTENS)
            main, told = await notify.until("MAINPID=")
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while reload.process.returncode is None:  # noqa: ASYNC110  its output goes on, so that nothing else tells
                        await asyncio.sleep(0.02)
                assert reload.process.returncode == 0
                assert told.startswith(f"MAINPID={main}\nREADY=1\n")
                assert main not in (first.process.pid, reload.process.pid)
                assert await first.ended() == 0
                await notify.until("WATCHDOG=1", of=main)
                assert not [said for _, said in notify.heard if "STOPPING" in said]
                async with aiohttp.ClientSession() as http, http.get(f"{url}/health") as answer:
                    assert answer.status == 200
            finally:
                os.kill(main, signal.SIGTERM)
            await notify.until("STOPPING=1", of=main)
            await reload.ended()  # and so has the other one, which writes to the same place

    asyncio.run(story())


def test_a_detached_one_that_cannot_start_is_told_by_the_command(tmp_path: Path) -> None:
    async def story() -> None:
        async with one_life(tmp_path) as (chain, _):
            wrong = {"PEIK_ADMIN_KEY": KEY, "PEIK_PORT": "9"}
            program = Program("-m", "peik", "serve", "--replace", "--detach", folder=tmp_path, **wrong)
            with pytest.raises(RuntimeError, match="ended with 1"):
                await program.start(LISTENS)
            alone = Program("-m", "peik", "serve", "--detach", folder=tmp_path, **wrong)
            with pytest.raises(RuntimeError, match="--detach goes with --replace"):
                await alone.start(LISTENS)
            await say(chain.url, "unharmed")

    asyncio.run(story())
