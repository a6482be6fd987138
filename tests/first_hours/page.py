"""What a first hour printed, and where it stands in docs/first-hours.md."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "first-hours.md"


class Said:
    """Lines as they are printed. They hold nothing that differs from run to run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def did(self, what: str) -> None:
        self.lines.append(f"$ {what}")

    def saw(self, *what: object) -> None:
        self.lines.append(" ".join(str(one) for one in what))

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n```console\n)(.*?)(```\n)", re.DOTALL)


def kept(name: str) -> str:
    found = _block(name).search(PAGE.read_text(encoding="utf-8"))
    assert found is not None, f"docs/first-hours.md has no place for {name}"
    return found[2]


def keep(name: str, text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_block(name).sub(lambda found: found[1] + text + found[3], page), encoding="utf-8")
