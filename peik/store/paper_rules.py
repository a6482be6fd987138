"""What holds for papers on every store: what may be filed, what several filings of one paper come to, and when one is refused."""

from collections.abc import Mapping, Sequence

import msgspec

from peik.errors import BadInput, Conflict
from peik.paper_ports import (
    BODY_BYTES_MAX,
    FILED_BYTES_MAX,
    FILINGS_MAX,
    KEY_CHARS_MAX,
    SHELF_CHARS_MAX,
    Filing,
)

Name = tuple[str, str]  # shelf, key


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit does to one paper. `body` None takes it away."""

    shelf: str
    key: str
    body: str | None
    expected: int | None

    @property
    def name(self) -> Name:
        return self.shelf, self.key


def changes_of(filings: Sequence[Filing]) -> list[Change]:
    """One for each paper, in the order in which they were first named. Raises BadInput for what no store would keep."""
    if len(filings) > FILINGS_MAX:
        raise _bad(f"{len(filings)} papers are too many for one commit: {FILINGS_MAX} at most.")
    changes: dict[Name, Change] = {}
    size_bytes = 0
    for filing in filings:
        size_bytes += _checked_bytes(filing)
        before = changes.get((filing.shelf, filing.key))
        if before is not None and filing.version is not None:
            raise _bad(f"Of several filings of {filing.shelf}/{filing.key} only the first may expect a version.")
        changes[filing.shelf, filing.key] = Change(
            shelf=filing.shelf,
            key=filing.key,
            body=filing.body,
            expected=filing.version if before is None else before.expected,
        )
    if size_bytes > FILED_BYTES_MAX:
        raise _bad(f"{size_bytes} bytes of papers are too many for one commit: {FILED_BYTES_MAX} at most.")
    return list(changes.values())


def check_expected(changes: Sequence[Change], versions: Mapping[Name, int]) -> None:
    """Raises Conflict if one of the papers is not as it was expected to be. One that has no version is not there."""
    for change in changes:
        if change.expected is not None and change.expected != versions.get(change.name, 0):
            raise changed(change.name)


def changed(name: Name) -> Conflict:
    return Conflict(
        code="paper_changed",
        detail=f"Somebody else has changed {'/'.join(name)} in the meantime. Look at it as it is now, and try again.",
    )


def _checked_bytes(filing: Filing) -> int:
    """How large it is, if it can be kept."""
    for word, chars_max in ((filing.shelf, SHELF_CHARS_MAX), (filing.key, KEY_CHARS_MAX)):
        if not 0 < len(word) <= chars_max or not (word.isascii() and word.isprintable()):
            raise _bad(f"{word[:50]!r} cannot name a paper: 1 to {chars_max} printable ASCII characters can.")
    if filing.body is None:
        return 0
    try:
        size_bytes = len(filing.body.encode())
    except UnicodeEncodeError:
        size_bytes = -1
    if size_bytes < 0 or "\0" in filing.body:
        raise _bad(f"{filing.shelf}/{filing.key} is no JSON: it holds characters that no text can hold.")
    if size_bytes > BODY_BYTES_MAX:
        raise _bad(f"{filing.shelf}/{filing.key} is larger than {BODY_BYTES_MAX} bytes.")
    return size_bytes


def _bad(detail: str) -> BadInput:
    return BadInput(code="bad_paper", detail=detail)


AFTER_ALL_ASCII = (
    "\x7f"  # behind every printable character: what begins with a word comes before the word with this behind it
)
