"""The files of the store are taken away while Peik runs. An open file lives on without a name, and would take letters that
nobody can ever find again: so nothing is accepted until the files are back, or Peik is started anew."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.faults.hurting import HurtServer, hurt_server, is_confirmed, pending, sent_texts, until, write
from tests.processes.programs import Sim, simulated

TERMS = {"pace": "off", "inbound": "polling", "poll_timeout": "1s", "backoff_ms": "100"}


async def begin(server: HurtServer) -> None:
    await server.start()
    assert (await server.post(5, "before"))[0] == 202
    await server.quiet()


async def must_refuse(server: HurtServer, sim: Sim) -> None:
    status, answer = await server.post(5, "refused")
    assert (status, answer["code"]) == (503, "store_gone")
    assert (await server.ask("sendMessage", chat_id=5, text="refused as well"))[0] == 503
    await write(sim, 7, "meanwhile")
    await until(lambda: server.said("updates cannot be stored"))
    assert await pending(sim) == 1
    assert (await server.get("/health"))["parts"]["store"]["status"] == "store_gone"
    assert server.is_alive


async def must_go_on(server: HurtServer, sim: Sim) -> None:
    await until(lambda: is_confirmed(sim))
    assert (await server.post(5, "after"))[0] == 202
    await server.quiet()
    assert [one["text"] for one in await server.arrivals()] == ["meanwhile"]


@pytest.mark.gate  # lives of a process
@pytest.mark.parametrize("taken", ["the folder", "the database", "the log"])
def test_what_was_taken_away_and_is_put_back_goes_on_by_itself(tmp_path: Path, taken: str) -> None:
    home, aside = tmp_path / "home", tmp_path / "aside"
    home.mkdir()
    path = {"the folder": home, "the database": home / "peik.db", "the log": home / "peik.db-wal"}[taken]

    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(home, sim, http, store=f"sqlite:///{home}/peik.db", **TERMS) as server,
        ):
            await begin(server)
            path.rename(aside)
            await must_refuse(server, sim)
            aside.rename(path)
            await must_go_on(server, sim)
            assert await sent_texts(sim, 5) == ["before", "after"]
            assert not server.surprises()

    asyncio.run(story())


def test_a_copy_in_its_place_is_not_taken_for_it_and_a_restart_takes_the_copy(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, **TERMS) as server,
        ):
            await begin(server)
            assert await server.program.terminate() == 0
            shutil.copy(tmp_path / "peik.db", tmp_path / "backup.db")
            await server.start()
            (tmp_path / "backup.db").rename(tmp_path / "peik.db")  # as a careless restore does it
            await must_refuse(server, sim)
            await server.program.kill()
            for name in ("peik.db-wal", "peik.db-shm"):
                (tmp_path / name).unlink()  # of the old file
            await server.start()
            await must_go_on(server, sim)
            assert await sent_texts(sim, 5) == ["before", "after"]

    asyncio.run(story())
