"""What a load test has measured, the doctor reads."""

from pathlib import Path

import pytest

from peik.monitoring.checks import _load_figure
from peik.monitoring.doctor import (
    SUFFIX,
    Grade,
    Keeping,
    LoadFigure,
    MeasuredCapacity,
    findings,
    most,
    read_load_figure,
    write_load_figure,
)
from peik.settings.config import load

KEEPING = Keeping(letters_s=86_400, arrivals_s=86_400, log_s=86_400, work_bytes=0)


def figure(letters_per_s: float, store: str = "sqlite") -> LoadFigure:
    return LoadFigure(letters_per_s=letters_per_s, store=store, measured_at="2026-11-16T10:00:00+00:00")


def measured(load: LoadFigure | None, *, commits_per_s: float = 1000.0) -> MeasuredCapacity:
    return MeasuredCapacity(
        commits_per_s=commits_per_s, letters_per_s=None, memory_bytes=2**36, room_bytes=2**42, load=load
    )


@pytest.mark.parametrize(("letters_per_s", "grade"), [(330, Grade.GREEN), (20, Grade.YELLOW), (10, Grade.RED)])
def test_a_load_test_is_graded_by_what_the_busiest_minute_needs(letters_per_s: float, grade: Grade) -> None:
    found = {one.name: one for one in findings(10_000, measured(figure(letters_per_s)), KEEPING)}
    assert found["load test"].grade is grade
    assert "2026-11-16" in found["load test"].words
    assert "load test" not in {one.name for one in findings(10_000, measured(None), KEEPING)}


def test_what_was_measured_stands_before_what_commits_would_allow() -> None:
    assert most(measured(figure(30.0)), KEEPING) == pytest.approx(18_000, rel=0.01)
    assert most(measured(figure(30.0), commits_per_s=1.0), KEEPING) == pytest.approx(18_000, rel=0.01)
    assert most(measured(None, commits_per_s=1.0), KEEPING) < 1000


def test_the_file_lies_beside_the_store_and_must_be_of_its_kind(tmp_path: Path) -> None:
    config = load({"store": f"sqlite:///{tmp_path / 'peik.db'}"})
    path = config.beside(SUFFIX)
    assert _load_figure(config) == (None, [])
    write_load_figure(path, figure(50.0))
    assert _load_figure(config) == (figure(50.0), [])
    write_load_figure(path, figure(50.0, store="redis"))
    found, (finding,) = _load_figure(config)
    assert found is None
    assert "was made on redis" in finding.words
    path.write_text("{}")
    found, (finding,) = _load_figure(config)
    assert found is None
    assert finding.grade is Grade.YELLOW
    with pytest.raises(ValueError, match="is no figure"):
        read_load_figure(path)
