"""Real bots, written with the libraries that people use, do all they can do: straight at Telegram, and through Peik."""

import asyncio
from collections.abc import Awaitable, Iterable
from pathlib import Path

import pytest

from tests.clients.conftest import Proven
from tests.clients.harness import LIBRARIES, MODES, ROUTES, Library, staged
from tests.clients.stories import CAPABILITIES, TROUBLES, nothing_is_lost

pytestmark = [pytest.mark.gate, pytest.mark.clients]  # every library, every way

each_mode = pytest.mark.parametrize("mode", MODES)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
@pytest.mark.parametrize("route", ROUTES)
@each_mode
def test_a_bot_does_all_it_can_do(library: Library, route: str, mode: str, tmp_path: Path, proven: Proven) -> None:
    async def story() -> None:
        async with staged(library, route=route, mode=mode, folder=tmp_path) as [stage]:
            # One person each, all at once.
            acts = [act(stage, 100 + number) for number, act in enumerate(CAPABILITIES.values())]
            failed = await _failed(CAPABILITIES, acts)
            proven(library, route, mode, set(CAPABILITIES) - failed.keys())
            assert not failed, "\n\n".join(f"{name}: {why}" for name, why in failed.items())

    asyncio.run(story())


@pytest.mark.parametrize("route", [route for route in ROUTES if route != "direct"])
@pytest.mark.parametrize("trouble", TROUBLES)
@each_mode
def test_nothing_is_lost_in_trouble(trouble: str, route: str, mode: str, tmp_path: Path, proven: Proven) -> None:
    for library in LIBRARIES:
        library.skip_if_missing()

    async def story() -> None:
        async with staged(*LIBRARIES, route=route, mode=mode, folder=tmp_path) as stages:
            await TROUBLES[trouble](stages)
            names = [stage.bot.library.name for stage in stages]
            failed = await _failed(names, [nothing_is_lost(stage, trouble) for stage in stages])
            for library in LIBRARIES:
                proven(library, route, mode, {trouble} if library.name not in failed else set())
            assert not failed, "\n\n".join(f"{name}: {why}" for name, why in failed.items())

    asyncio.run(story())


async def _failed(names: Iterable[str], acts: list[Awaitable[None]]) -> dict[str, str]:
    """What went wrong, by name: one failure must not hide another."""
    ends = await asyncio.gather(*acts, return_exceptions=True)
    return {name: f"{type(end).__name__}: {end}" for name, end in zip(names, ends, strict=True) if end is not None}
