"""Where a page ends: a time and the row of that time that was shown last."""

import re

from peik.errors import BadInput

_CURSOR = re.compile(r"(-?\d{1,18})\.([0-9a-f]{1,24})")


def cursor_of(at_ms: int, row: object) -> str:
    return f"{at_ms}.{row}"


def read_cursor(cursor: str) -> tuple[int, str]:
    """Raises BadInput if nobody here made it."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadInput(code="bad_cursor", detail="The cursor is not one of ours. Begin again without it.")
    return int(found[1]), found[2]


def read_row(cursor: str) -> tuple[int, int]:
    """The same where rows are numbered."""
    at_ms, row = read_cursor(cursor)
    if not row.isdigit() or len(row) > 18:
        raise BadInput(code="bad_cursor", detail="The cursor is not one of this archive's. Begin again without it.")
    return at_ms, int(row)
