"""A process that is killed while it writes has kept everything that it acknowledged, and the next one goes on."""

import subprocess
import sys
from pathlib import Path

from peik.archive.store import Fed
from tests.archive.places import SqlitePlace, opened
from tests.archive.samples import CHAT, line, message

KILLS = 3
BEFORE_KILL = 200  # lines


def _acknowledged_until_killed(path: Path) -> list[str]:
    command = [sys.executable, "-m", "tests.archive.worker", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(BEFORE_KILL)]
        process.kill()
        return said + [line for line in process.stdout if line.endswith("\n")]  # what it had said before it died


async def test_a_killed_process_has_kept_what_it_acknowledged(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    said: list[str] = []
    for _ in range(KILLS):
        said += _acknowledged_until_killed(place.path)
    fed = [told.split()[1] for told in said if told.startswith("fed ")]
    kept = [told.split()[1:] for told in said if told.startswith("kept ")]
    assert fed
    assert kept
    async with opened(place) as archive:
        for writer, number, edited_at_ms in kept:
            found = await archive.versions(f"s{writer}", CHAT, int(number))
            assert int(edited_at_ms) in [one.edited_at_ms for one in found], (writer, number)
        lines = await archive.fed("s1", after=0, limit=100_000)
        assert {one.key for one in lines}.issuperset(fed)
        assert [one.number for one in lines] == list(range(1, len(lines) + 1))
        assert await archive.fed_to() == {"s1": Fed(first=1, last=len(lines))}
        assert (await archive.keep_messages([message(-1)])).new == 1
        assert await archive.feed([line(fed[0]), line("next")]) == 1
    assert len(said) >= KILLS * BEFORE_KILL
