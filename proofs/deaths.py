"""`make deaths-proof`: bots of five real libraries with their own defaults, ended again and again in the middle of handlers.

People write, each text once, and each wants one answer. `killed`: every bot is killed ten times while handlers are at work.
`ended`: it is asked to end, ten times. `replaced`: Peik is replaced ten times under all of them. Prints how many texts were
never answered, and how often one was answered again; that is only allowed after a death of the bot, within the window of
`PEIK_POLLING_REDELIVERY`. Ends with 1 if that is not so. `--store none` is the same without Peik, to see what it changes.
"""

import argparse
import asyncio
import sys
import tempfile
from datetime import datetime
from itertools import count, pairwise, product
from pathlib import Path

from proofs.restarts import a_store, keep
from tests.clients.harness import LIBRARIES, Library, Stage, staged
from tests.patience import PATIENCE_S
from tests.processes.programs import Server

DEATHS = 10
SLOW_TEXTS = 5  # written in each life: three by people of their own, two by one person
WINDOW_S = 30.0  # PEIK_POLLING_REDELIVERY as it is by default
LOST_AFTER_S = 10.0  # without Peik nothing tells that no answer will come
HOW = ("killed", "ended", "replaced")
LONG_KNOWN = [one for one in LIBRARIES if one.name != "node-telegram-bot-api"]


class Crowd:
    """People who write to a bot, each text once, and what became of each."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.texts: list[str] = []
        self.deaths: list[float] = []
        self._names = count(1)

    def write(self) -> None:
        for place in range(SLOW_TEXTS):
            number = next(self._names)
            self.texts.append(f"/slow {number}")
            self.stage.writes(1000 + number if place < 3 else 999, self.texts[-1])

    def answers(self) -> dict[str, list[float]]:
        """When each text was answered."""
        found: dict[str, list[float]] = {text: [] for text in self.texts}
        for one in self.stage.telegram.sent.where(bot_id=self.stage.bot_id):
            found.get(one.text.removeprefix("echo: "), []).append(one.at)
        return found

    async def all_answered(self) -> dict[str, list[float]]:
        await self.stage.until(lambda: all(self.answers().values()), f"all of {self.texts} are answered")
        return self.answers()

    async def all_done(self) -> None:
        """Everybody has an answer, and nothing is unread or in hand: as when people restart things on a quiet day."""
        await self.all_answered()
        assert self.stage.server is not None
        consumers = (await self.stage.server.get("/v1/consumers"))["consumers"]
        async with asyncio.timeout(PATIENCE_S):
            while any(one["open"] for one in consumers):
                consumers = (await self.stage.server.get("/v1/consumers"))["consumers"]

    async def in_the_middle(self) -> None:
        """One handler of this life has ended, and another one has begun and not ended."""
        facts = self.stage.bot.facts

        def is_so() -> bool:
            ended = sum("handled" in fact for fact in facts)
            began = sum("began" in fact for fact in facts)
            return 0 < ended < began or ended >= SLOW_TEXTS  # all at the same time, before anybody could look

        await self.stage.bot.until(is_so, "the bot is in the middle of a handler")

    async def dies(self, *, is_killed: bool) -> None:
        """The bot ends in the middle of its work, and begins anew."""
        self.write()
        await self.in_the_middle()
        if is_killed:
            await self.stage.bot.kill()
            self.deaths.append(self.stage.telegram.now())
            await self.stage.bot.start()
        else:
            await self.restarts()

    async def restarts(self) -> None:
        """The bot is asked to end, and begins anew."""
        await self.stage.bot.end()
        self.stage.bot.facts = []
        self.deaths.append(self.stage.telegram.now())
        await self.stage.bot.start()

    async def found(self) -> dict[str, int]:
        answers, server = self.answers(), self.stage.server
        calls = answers if server is None else await self._calls(server)
        dead = [] if server is None else (await server.get(f"/v1/arrivals/dead?bot_id={self.stage.bot_id}"))["arrivals"]
        again = [pair for times in calls.values() for pair in pairwise(sorted(times))]
        return {
            "written": len(self.texts),
            "lost": sum(not times for times in answers.values()),
            "answered again": len(again),
            "again for no death in the window": sum(not self._is_allowed(*pair) for pair in again),
            "calls refused": len(self.stage.bot.unanswered()),
            "given up": len(dead),
        }

    async def _calls(self, server: Server) -> dict[str, list[float]]:
        """When the bot answered each text. Telegram may have had it later: answers to one person go one a second."""
        found: dict[str, list[float]] = {text: [] for text in self.texts}
        path = query = f"/v1/letters?bot_id={self.stage.bot_id}&limit=100"
        while path:
            page = await server.get(path)
            for one in page["letters"]:
                text = str(one["params"].get("text", "")).removeprefix("echo: ")
                found.get(text, []).append(datetime.fromisoformat(one["created_at"]).timestamp())
            path = page["next_cursor"] and f"{query}&cursor={page['next_cursor']}"
        return found

    def _is_allowed(self, first: float, second: float) -> bool:
        """Whether the bot died between the two, soon after the first; and soon again each time before it came to the second."""
        deaths = [death for death in self.deaths if first <= death < second]
        return bool(deaths) and all(after - before <= WINDOW_S for before, after in pairwise([first, *deaths]))


async def _killed(crowds: list[Crowd], *, is_killed: bool = True) -> None:
    async def dies(crowd: Crowd) -> None:
        for _ in range(DEATHS):
            await crowd.dies(is_killed=is_killed)
        await (asyncio.sleep(LOST_AFTER_S) if crowd.stage.server is None else crowd.all_answered())

    await asyncio.gather(*(dies(crowd) for crowd in crowds))


async def _replaced(crowds: list[Crowd]) -> None:
    server = crowds[0].stage.server
    assert server is not None
    for _ in range(DEATHS):
        for crowd in crowds:
            crowd.stage.bot.facts = [fact for fact in crowd.stage.bot.facts if "unanswered" in fact]
            crowd.write()
        await asyncio.gather(*(crowd.in_the_middle() for crowd in crowds))
        await server.replace()
        await asyncio.gather(*(crowd.all_answered() for crowd in crowds))


async def ended(
    *libraries: Library, how: str, folder: Path, route: str = "peik", **settings: str
) -> dict[str, dict[str, int]]:
    """What became of what people wrote, by library."""
    async with staged(*libraries, route=route, mode="polling", folder=folder, **settings) as stages:
        crowds = [Crowd(stage) for stage in stages]
        try:
            await (_replaced(crowds) if how == "replaced" else _killed(crowds, is_killed=how == "killed"))
        except AssertionError as late:
            print(late)
        return {crowd.stage.bot.library.name: await crowd.found() for crowd in crowds}


def faults_in(found: dict[str, dict[str, int]], how: str) -> list[str]:
    """What is not as promised."""
    never = ["lost", "again for no death in the window", "given up"]
    never += ["answered again", "calls refused"] if how == "replaced" else []
    return [f"{library}: {counts[name]} {name}" for library, counts in found.items() for name in never if counts[name]]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=HOW, nargs="*", default=HOW)
    parser.add_argument("--store", choices=("sqlite", "postgres", "redis", "none"), nargs="*", default=["sqlite"])
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    faults: list[str] = []
    for store, how in product(given.store, given.how):
        route = "direct" if store == "none" else "peik"
        settings = {"store": a_store(store)} if store in ("postgres", "redis") else {}
        with tempfile.TemporaryDirectory(prefix="peik-deaths-") as folder:
            found = await ended(*LONG_KNOWN, how=how, folder=Path(folder), route=route, **settings)
        for library, counts in found.items():
            print(
                f"{store} {how} {library}: {', '.join(f'{name} {count}' for name, count in counts.items())}", flush=True
            )
        if route == "peik":
            faults += [f"{store} {how} {fault}" for fault in faults_in(found, how)]
        keep(given.write, f"{how} {store}", found)
    for fault in faults:
        print(f"! {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
