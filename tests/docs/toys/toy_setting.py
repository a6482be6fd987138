"""In the copy: the new setting is read, shown, documented, and reaches its slice."""

import asyncio
from pathlib import Path

import pytest

from peik.errors import StartError
from peik.settings.config import load
from tests.cli.shell import Shell
from tests.dashboard.visiting import house

ROOT = Path(__file__).parents[3]


def test_it_is_read_from_the_environment_and_checked(tmp_path: Path) -> None:
    assert load(environment={}, folder=tmp_path).toys == 3
    assert load(environment={"PEIK_TOYS": "7"}, folder=tmp_path).toys == 7
    with pytest.raises(StartError, match="PEIK_TOYS"):
        load(environment={"PEIK_TOYS": "none"}, folder=tmp_path)


def test_it_is_shown_and_documented(tmp_path: Path) -> None:
    assert "PEIK_TOYS" in Shell(tmp_path, PEIK_TOYS="7").peik("config", "show").out
    for page in ("docs/reference/settings.md", ".env.example", ".env.production"):
        assert "PEIK_TOYS" in (ROOT / page).read_text(encoding="utf-8")


def test_it_reaches_its_slice(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, toys="7") as home:
            assert home.peik.toys.count == 7

    asyncio.run(story())
