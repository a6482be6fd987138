"""What is said of rows that miss a goal: of rows that there are, and shown where it is missed only."""

import tomllib

from bench.budget import LINES
from docs.pages.bench import BOUNDS, missed_goals


def figure(name: str, *, reached: bool) -> dict[str, object]:
    goals = [{"words": "≥ 10", "reached": reached}]
    return {"name": name, "title": f"the row {name}", "median": 5.0, "unit": "letters/s", "goals": goals}


def missed(*figures: dict[str, object]) -> list[str]:
    return list(missed_goals(figures))


def test_each_text_is_of_a_row_with_a_goal() -> None:
    known = tomllib.loads(BOUNDS.read_text(encoding="utf-8"))
    assert known.keys() <= {line.name for line in LINES if line.goals}
    assert all(one.keys() <= {"bound", "tried"} and all(map(str.strip, one.values())) for one in known.values())


def test_a_missed_goal_is_shown_with_what_bounds_it_and_a_reached_one_is_not() -> None:
    heading, table = missed(figure("redis_50", reached=False), figure("postgres_50", reached=True))
    assert heading == "## Goals that were missed"
    assert "the row redis_50" in table
    assert "CPU time of the callers' process" in table
    assert "postgres_50" not in table


def test_a_missed_goal_of_which_nothing_is_said_says_so() -> None:
    _, table = missed(figure("no_such_row", reached=False))
    assert "not said yet" in table
    assert missed(figure("redis_50", reached=True)) == []
