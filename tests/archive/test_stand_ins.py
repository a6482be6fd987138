"""What stands in for an archive in other stories tells them as the archives do."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.accounts.inline_archive import InlineArchive
from tests.accounts.memory_archive import MemoryBook
from tests.archive.conformance import test_feed, test_logs
from tests.archive.places import Place

Story = Callable[[Place], Awaitable[None]]

FEEDS: list[Story] = [
    test_feed.test_lines_are_numbered_without_a_gap_in_their_order,
    test_feed.test_a_line_comes_back_as_it_was_told,
    test_feed.test_a_line_that_is_there_is_left_out_and_uses_no_number,
    test_feed.test_a_feed_is_read_in_pages,
    test_feed.test_how_far_feeds_go_is_told_of_all_or_some,
    test_feed.test_what_no_database_keeps_becomes_a_sign,
    test_feed.test_a_place_never_goes_back,
    test_feed.test_a_reader_is_removed_with_its_places,
]
LOGS: list[Story] = [
    test_logs.test_pages_hold_all_that_fits_the_newest_first,
    test_logs.test_a_line_that_is_handed_in_again_is_there_once,
    test_logs.test_a_level_that_is_none_is_refused,
]


def _name(story: Story) -> str:
    return getattr(story, "__name__", "")


class MemoryPlace:
    def __init__(self, folder: Path) -> None:
        self._book = _Opened()

    def make(self) -> Any:
        return self._book


class _Opened(MemoryBook):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


class InlinePlace:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "a.archive"

    def make(self) -> InlineArchive:
        return InlineArchive(self._path)


@pytest.mark.parametrize("story", FEEDS + LOGS, ids=_name)
@pytest.mark.parametrize("kind", [MemoryPlace, InlinePlace])
async def test_a_stand_in_tells_the_story_as_archives_do(tmp_path: Path, kind: type[Place], story: Story) -> None:
    await story(kind(tmp_path))
