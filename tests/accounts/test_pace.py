"""How often accounts of one address ask, and who goes first."""

import asyncio
import datetime

from peik.accounts.budget import IN_ALL_A_MINUTE, Budget
from peik.accounts.registry import Registry
from peik.accounts.sign_in import SignInSteps
from peik.accounts.telethon.client import TelethonClients
from peik.secrets.vault import Vault
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.memory_archive import MemoryBook
from tests.accounts.tl_server import TlTelegram


def test_who_connects_goes_before_all_that_is_asked() -> None:
    async def story(clock: VirtualClock) -> None:
        budget = Budget(clock)
        times: list[float] = []

        async def crawl(name: str) -> None:
            while True:
                await budget.turn(name)
                times.append(clock.mono())

        crawls = [asyncio.create_task(crawl(f"s{number}")) for number in range(200)]
        await asyncio.sleep(60)
        waits = []
        for _ in range(20):
            began = clock.mono()
            await budget.connect_turn()
            waits.append(clock.mono() - began)
            times.append(clock.mono())
            await asyncio.sleep(3)
        assert max(waits) < 1.0, "it waited for minutes behind so many"
        minute = [at for at in times if at >= clock.mono() - 60]
        assert len(minute) <= IN_ALL_A_MINUTE + 5
        for task in crawls:
            task.cancel()

    run_virtual(story)


def test_hundreds_that_connect_at_once_do_so_one_after_the_other() -> None:
    async def story(clock: VirtualClock) -> None:
        budget, times = Budget(clock), []

        async def connect() -> None:
            await budget.connect_turn()
            times.append(clock.mono())

        await asyncio.gather(*(connect() for _ in range(100)))
        assert times[-1] - times[0] >= 99 * 60 / IN_ALL_A_MINUTE - 1e-6
        began = clock.mono()
        await budget.turn("s")
        assert clock.mono() - began <= 1.0

    run_virtual(story)


def test_a_picture_that_is_shown_again_and_again_is_asked_for_once_in_a_while() -> None:
    async def story(clock: VirtualClock) -> None:
        server, registry = TlTelegram(), Registry(MemoryBook(), clock)
        clients = TelethonClients(api_id=1, api_hash="h", clock=clock, prepare=server.prepare)
        signing = SignInSteps(registry, Vault([b"k" * 32]), clients, clock)
        session_id = (await registry.create_session("a")).session_id
        for _ in range(60):
            server.at = datetime.datetime.fromtimestamp(clock.wall_s(), datetime.UTC)
            await signing.qr(session_id)
            await asyncio.sleep(1)
        assert len(server.asked("ExportLoginToken")) <= 8
        await signing.close()

    run_virtual(story)
