"""After the story: gentle traffic without end, and now and then a dark Telegram or a dead Peik."""

import asyncio
import contextlib
import shutil
import sys
from pathlib import Path

from peik.demo import narration
from peik.demo.calls import Unanswered
from peik.demo.scene import Scene
from peik.doors.greeting import own_command

_TALK_S = (0.6, 2.5)  # between two deeds of the town
_QUIET_S = (25.0, 40.0)  # between two troubles
_DARK_S = 8
_AUDIT_S = 20.0


async def encore(scene: Scene) -> None:
    """Until cancelled."""
    scene.watch.now.chapter = narration.ENCORE
    scene.screen.chapter(narration.ENCORE, narration.ENCORE_LEAD)
    peik = scene.stage.peik
    scene.screen.note(narration.LOOK, url=peik.url, key=peik.key)
    scene.screen.note(narration.ENCORE_API, url=peik.url, key=peik.key)
    scene.screen.note(narration.ENCORE_SIM, url=scene.stage.sim.control_url)
    scene.screen.note(narration.ENCORE_TRY, url=peik.url, key=peik.key)
    command = own_command(sys.argv[0], folder=Path.cwd(), on_path=shutil.which("peik"))
    scene.screen.note(narration.ENCORE_NEXT, peik=command)
    async with asyncio.TaskGroup() as group:
        group.create_task(_traffic(scene))
        group.create_task(_trouble(scene))
        group.create_task(_audits(scene))


async def _traffic(scene: Scene) -> None:
    while True:
        await asyncio.sleep(scene.chance.uniform(*_TALK_S))
        if scene.chance.random() < 0.4:
            await scene.town.ask(scene.chance.choice(scene.town.people), scene.town.some_question())
        else:
            await scene.town.tell_of_an_order()


async def _trouble(scene: Scene) -> None:
    while True:
        for trouble in (_dark, _dark, _kill):
            await asyncio.sleep(scene.chance.uniform(*_QUIET_S))
            await trouble(scene)


async def _dark(scene: Scene) -> None:
    scene.screen.note(narration.ENCORE_DARK, seconds=_DARK_S)
    await scene.dark(is_dark=True)
    await asyncio.sleep(_DARK_S)
    waiting = scene.watch.now.waiting
    await scene.dark(is_dark=False)
    await scene.watch.quiet()
    scene.screen.note(narration.ENCORE_LIT, waiting=waiting)
    scene.screen.counters()


async def _kill(scene: Scene) -> None:
    pid = scene.stage.peik_pid
    seconds = await scene.kill_and_restart()
    await scene.watch.until(lambda: scene.watch.now.is_peik_up, what="for Peik to be seen again")
    scene.screen.note(narration.ENCORE_KILL, pid=pid, seconds=f"{seconds:.1f}")
    scene.screen.counters()


async def _audits(scene: Scene) -> None:
    while True:
        await asyncio.sleep(_AUDIT_S)
        with contextlib.suppress(Unanswered):  # Peik was killed a moment ago; there is a next time
            await scene.audit()
