"""`@peik.on_update`: handlers in the program itself, and real programs that are killed, stopped, and wait for each other."""

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from peik import BadInput, NotFound, Peik, Update
from peik.testing import SimServer
from tests.client.counters import opened, telegram
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, KEY, TOKEN, served


def play(story: Callable[[SimServer], object]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            await story(sim)  # type: ignore[misc]

    asyncio.run(main())


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


# ---- in one process ----


def test_a_bot_with_a_handler_is_polled_and_its_answer_arrives(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        peik = opened(tmp_path, sim)
        seen: list[Update] = []

        @peik.on_update("message")
        async def echo(update: Update) -> None:
            seen.append(update)
            letter = await update.answer(f"You said {update.text}", parse_mode="HTML")
            assert letter is not None

        async with peik:
            sim.telegram.write(TOKEN, 5, "hello")
            await sim.until(lambda: sim.telegram.sent.texts(5) == ["You said hello"], timeout=PATIENCE_S)
        (update,) = seen
        assert (update.type, update.chat_id, update.user_id, update.text) == ("message", 5, 5, "hello")
        assert (update.bot_id, update.tries, update.is_replay) == (BOT, 0, False)
        assert update.data["update_id"] == update.update_id
        assert update.data["message"] is update.body
        assert update.body["chat"]["id"] == 5

    play(story)


def test_all_that_want_an_update_get_it_in_the_order_of_registration(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        peik = opened(tmp_path, sim)
        heard: list[str] = []

        @peik.on_update
        async def everything(update: Update) -> None:
            heard.append(f"everything {update.text}")

        async def messages(update: Update) -> None:
            heard.append(f"messages {update.text}")

        assert peik.on_update("message", "edited_message")(messages) is messages

        @peik.on_update("callback_query")
        async def presses(update: Update) -> None:
            heard.append("press")

        async with peik:
            sim.telegram.write(TOKEN, 5, "one")
            await until(lambda: len(heard) == 2)

            @peik.on_update("message", consumer="other")
            async def late(update: Update) -> None:
                heard.append(f"late {update.text}")

            await until(lambda: len(heard) == 3)  # a further consumer begins with the oldest that is kept
        assert heard == ["everything one", "messages one", "late one"]

    play(story)


def test_a_repeated_handler_does_not_answer_twice_even_in_other_words(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        peik = opened(tmp_path, sim)
        tries: list[int] = []

        @peik.on_update("message")
        async def fails_after_answering(update: Update) -> None:
            tries.append(update.tries)
            await update.answer("first")
            letter = await update.answer(f"try {update.tries}")
            assert (letter is None) == (update.tries > 0)
            if update.tries < 1:
                raise RuntimeError

        async with peik:
            sim.telegram.write(TOKEN, 5, "hello")
            await until(lambda: len(tries) == 2)
        assert tries == [0, 1]
        assert sim.telegram.sent.texts(5) == ["first", "try 0"]

    play(story)


def test_a_program_that_says_how_updates_come_in_is_believed(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        peik = Peik.open(f"sqlite:///{tmp_path}/peik.db", token=TOKEN, api_root=sim.url, inbound="off")
        heard: list[str] = []

        @peik.on_update
        async def handle(update: Update) -> None:
            heard.append(update.type)

        async with peik:
            sim.telegram.write(TOKEN, 5, "hello")
            assert (await peik.wait(await peik.send_text(5, "meanwhile"), timeout=PATIENCE_S)).is_delivered
        assert heard == []
        assert not sim.telegram.counters.requests["getUpdates"]
        assert sim.telegram.bots[BOT].queue.size == 1

    play(story)


def test_what_cannot_be_a_handler_is_refused_at_once(tmp_path: Path) -> None:
    peik = Peik.open(f"sqlite:///{tmp_path}/peik.db")

    def plain(update: Update) -> None: ...

    async def good(update: Update) -> None: ...

    with pytest.raises(BadInput, match="async function"):
        peik.on_update("message")(plain)  # type: ignore[type-var]
    with pytest.raises(BadInput, match="no type of update"):
        peik.on_update("callbackQuery")(good)


def test_a_handler_for_a_bot_that_is_not_there_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        peik = opened(tmp_path, sim)

        @peik.on_update(bot_id=99)
        async def handle(update: Update) -> None: ...

        with pytest.raises(NotFound):
            await peik.__aenter__()

    play(story)


def test_over_rest_handlers_are_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    async def story() -> None:
        async def handle(update: Update) -> None: ...

        async with (
            aiohttp.ClientSession() as http,
            telegram() as sim,
            served(tmp_path, sim.url, http) as server,
            Peik.connect(server.url, key=KEY) as peik,
        ):
            with pytest.raises(BadInput, match=r"Peik\.open"):
                peik.on_update(handle)

    asyncio.run(story())


# ---- real programs ----


class Worker:
    """A program with a handler."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[tuple[str, str]] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            what, text = json.loads(line)
            self.said.append((what, text))

    def texts(self, what: str) -> list[str]:
        return [text for said, text in self.said if said == what]

    async def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = await self.process.wait()
        await self._reading
        return code


@contextlib.asynccontextmanager
async def worker(folder: Path, sim: SimServer, mode: str = "plain") -> AsyncIterator[Worker]:
    log = (folder / f"{mode}.log").open("ab")
    store = f"sqlite:///{folder}/peik.db"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.client.handling_worker", store, TOKEN, sim.url, mode),
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
    )
    one = Worker(process)
    try:
        await until(lambda: ("open", None) in one.said)
        yield one
    finally:
        if process.returncode is None:
            await one.end(signal.SIGKILL)
        log.close()


def with_status(folder: Path, status: str) -> set[str]:
    with contextlib.closing(sqlite3.connect(folder / "peik.db")) as connection:
        rows = connection.execute("SELECT text FROM pending_messages WHERE status = ?", (status,))
        return {text for (text,) in rows}


def test_a_program_killed_in_the_middle_gets_what_it_had_not_acknowledged_and_nothing_else(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        async with worker(tmp_path, sim, "hangs") as first:
            for chat in range(1, 21):
                sim.telegram.write(TOKEN, chat, f"{'hang' if chat % 2 else 'fine'} {chat}")
                sim.telegram.write(TOKEN, chat, f"second {chat}")
            await until(lambda: len(first.texts("given")) == 30)
            fine = {f"fine {chat}" for chat in range(2, 21, 2)} | {f"second {chat}" for chat in range(2, 21, 2)}
            await until(lambda: with_status(tmp_path, "completed") == fine)
            await first.end(signal.SIGKILL)
        unsettled = with_status(tmp_path, "pending")
        assert len(unsettled) == 20
        async with worker(tmp_path, sim) as second:
            await until(lambda: len(second.texts("done")) == 20)
            await until(lambda: with_status(tmp_path, "pending") == set())
            # A letter that was in flight at the kill may have arrived, and is sent again; none is missing.
            await sim.until(
                lambda: len({(one.chat_id, one.text) for one in sim.telegram.sent}) == 40, timeout=PATIENCE_S
            )
            assert set(second.texts("given")) == unsettled
            assert len(second.texts("given")) == 20
            for chat in range(1, 21, 2):
                own = [text for text in second.texts("given") if text.endswith(f" {chat}")]
                assert own == [f"hang {chat}", f"second {chat}"]

    play(story)


def test_a_signal_lets_handlers_finish_and_leaves_the_rest(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        async with worker(tmp_path, sim, "slow") as one:
            for number in range(20):
                sim.telegram.write(TOKEN, 5, f"n{number}")
            await until(lambda: len(one.texts("given")) >= 2)
            assert await one.end(signal.SIGTERM) == 0
            assert one.texts("given") == one.texts("done")
            assert one.said[-1] == ("closed", None)
        assert with_status(tmp_path, "completed") == set(one.texts("done"))
        assert "Traceback" not in (tmp_path / "slow.log").read_text()

    play(story)


def test_a_second_program_waits_for_the_first_and_takes_over_when_it_dies(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        async with worker(tmp_path, sim, "hangs") as first, worker(tmp_path, sim, "plain") as second:
            sim.telegram.write(TOKEN, 1, "fine 1")
            await until(lambda: first.texts("done") == ["fine 1"])
            sim.telegram.write(TOKEN, 2, "hang 2")
            await until(lambda: "hang 2" in first.texts("given"))
            assert second.texts("given") == []
            await first.end(signal.SIGKILL)
            await until(lambda: second.texts("done") == ["hang 2"])
        assert "another process" in (tmp_path / "plain.log").read_text()

    play(story)


def test_handlers_beside_a_server_that_owns_the_store_are_told_of_what_it_receives(tmp_path: Path) -> None:
    async def story(sim: SimServer) -> None:
        async with (
            aiohttp.ClientSession() as http,
            served(tmp_path, sim.url, http, pace="off", poll_timeout="1s") as server,
            worker(tmp_path, sim) as one,
        ):
            for number in range(10):
                sim.telegram.write(TOKEN, number % 3 + 1, f"n{number}")
            await until(lambda: len(one.texts("done")) == 10)
            await sim.until(lambda: len(sim.telegram.sent) == 10, timeout=PATIENCE_S)
            assert (await server.get("/v1/stats"))["failed"] == 0
            assert (tmp_path / "peik.db.owner").read_text() == str(server.pid)
            # Nobody else may read for them meanwhile.
            status, _ = await server.call("GET", f"/v1/arrivals/stream?bot_id={BOT}&consumer=default")
            assert status == 409
            assert not server.surprises(), "".join(server.output)

    play(story)
