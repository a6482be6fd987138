"""Each of the four prints what docs/first-hours.md says it prints."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.first_hours import back_end_team, crawler_author, downloader_owner, pyrogram_bot_owner
from tests.first_hours.page import Said, kept

HOURS: dict[str, Callable[[Path, Said], Awaitable[None]]] = {
    "pyrogram-bot": pyrogram_bot_owner.hour,
    "crawler": crawler_author.hour,
    "back-end": back_end_team.hour,
    "downloader": downloader_owner.hour,
}


@pytest.mark.gate
@pytest.mark.parametrize("name", HOURS)
def test_the_first_hour_goes_as_the_page_says(name: str, tmp_path: Path) -> None:
    async def play() -> Said:
        said = Said()
        await HOURS[name](tmp_path, said)
        return said

    assert asyncio.run(play()).text == kept(name)
