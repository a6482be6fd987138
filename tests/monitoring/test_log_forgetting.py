"""A person leaves the log files, and no line is lost, whoever writes meanwhile."""

import asyncio
import json
import stat
from pathlib import Path

from peik.erasure.model import ErasedCounts, ErasedPerson
from peik.monitoring.log_file import LogFile, LogFilesPart

ANN = ErasedPerson(user_id=912345678, names=frozenset({"ann"}))


def forget(path: Path, *, is_dry: bool = False) -> int:
    found = asyncio.run(LogFilesPart(path, files_kept=3).forget(ANN, is_dry=is_dry))
    assert list(found) == ["log_files"]
    gone: ErasedCounts = found["log_files"]
    return gone.blanked


def test_lines_that_name_them_are_blanked_in_every_file(tmp_path: Path) -> None:
    path = tmp_path / "peik.log"
    theirs, other = '{"event":"<- delivered","chat":912345678}', '{"event":"<- delivered","chat":5,"letter":912345678}'
    for name in ("peik.log", "peik.log.1", "peik.log.3"):
        (tmp_path / name).write_text(f"{theirs}\n{other}\nno JSON, chat 912345678\n")
    (tmp_path / "peik.log.1").chmod(0o640)
    assert forget(path, is_dry=True) == 6
    assert theirs in path.read_text()
    assert forget(path) == 6
    left = f'{{"event":"<- delivered","chat":0}}\n{other}\nno JSON, chat 0\n'
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {
        "peik.log": left,
        "peik.log.1": left,
        "peik.log.3": left,
    }
    assert stat.S_IMODE((tmp_path / "peik.log.1").stat().st_mode) == 0o640
    assert forget(path) == 0


def test_no_line_is_lost_of_a_log_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "peik.log"
    with LogFile(path, bytes_max=2_000, files_kept=1000) as file:

        async def story() -> int:
            part = LogFilesPart(path, files_kept=1000)
            blanked = 0
            for number in range(300):
                file.keep(None, "info", {"event": "sent", "n": number, "chat": 912345678 if number % 3 else 5})
                if number % 50 == 49:
                    blanked += (await part.forget(ANN, is_dry=False))["log_files"].blanked
            return blanked

        assert asyncio.run(story()) == 200
    lines = [json.loads(line) for one in tmp_path.iterdir() for line in one.read_text().splitlines()]
    assert sorted(line["n"] for line in lines) == list(range(300))
    assert {line["chat"] for line in lines} == {0, 5}
