"""What feeds, places and the log mean alike in every archive: pure.

A feed has an end: the last number there ever was, which outlives its lines. An end is copied among the places of readers, as the
place of a reader without a name, so that a copy goes on with the numbers where the original was.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from peik.archive.fitting import fitted
from peik.archive_ports import LOG_LEVELS, FeedLine, LogLine, ReaderPlace
from peik.errors import BadInput

DIGEST_BYTES = 16
NOBODY = ""  # the reader whose places are the ends of feeds


def once(lines: Sequence[FeedLine]) -> list[FeedLine]:
    """As a database can keep them, each key once: the first counts. They are of one session."""
    assert len({line.session_id for line in lines}) <= 1, "lines are fed session by session"
    found: dict[str, FeedLine] = {}
    for line in map(fitted, lines):
        found.setdefault(line.key, line)
    return list(found.values())


def end_of(session_id: str, last: int) -> ReaderPlace:
    """The end of a feed as it is copied."""
    return ReaderPlace(reader=NOBODY, session_id=session_id, number=last, at_ms=0)


def is_end(place: ReaderPlace) -> bool:
    return place.reader == NOBODY


def digest_of(line: LogLine) -> bytes:
    """By which a line of the log is known again: all that it says."""
    return hashlib.blake2b(msgspec.json.encode(line), digest_size=DIGEST_BYTES).digest()


def levels_from(level: str) -> tuple[str, ...]:
    """This one and worse. Raises BadInput."""
    if level not in LOG_LEVELS:
        raise BadInput(code="bad_level", detail=f"A level is one of: {', '.join(LOG_LEVELS)}.")
    return LOG_LEVELS[LOG_LEVELS.index(level) :]


def folded(text: str) -> str:
    """A text as it is compared where case does not matter."""
    return text.casefold()
