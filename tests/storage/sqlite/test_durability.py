"""Promise 1: what was acknowledged is in the file, whenever the process dies."""

import random
import sqlite3
from pathlib import Path

import pytest

from tests.storage.sqlite import programs

SEED = random.Random(20)


@pytest.mark.parametrize("lines", [SEED.randint(1, 400) for _ in range(10)])
def test_every_acknowledged_letter_survives_a_kill(tmp_path: Path, lines: int) -> None:
    """Killed in the middle of its work, after so many acknowledgements."""
    path = tmp_path / "peik.db"
    process = programs.start("accept", path)
    assert process.stdout is not None
    said = "".join(process.stdout.readline() for _ in range(lines)) + programs.kill(process)
    acknowledged = {int(line) for line in said.splitlines(keepends=True) if line.endswith("\n")}
    assert len(acknowledged) >= lines
    connection = sqlite3.connect(path)
    stored = {row[0] for row in connection.execute("SELECT id FROM letters")}
    numbers = [row[0] for row in connection.execute("SELECT number FROM letters ORDER BY number")]
    (counted,) = connection.execute("SELECT in_lane FROM tallies").fetchone()
    connection.close()
    assert acknowledged <= stored
    assert numbers == list(range(1, len(stored) + 1))
    assert counted == len(stored)
    assert process.returncode == -9
