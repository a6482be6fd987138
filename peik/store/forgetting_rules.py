"""What is left of the failures of an arrival whose person is forgotten: the same in every store."""

from peik.core.forgetting import Person, scrubbed


def scrubbed_story(person: Person, reason: str | None, history: str, *, is_theirs: bool) -> tuple[str | None, str]:
    """Its reason and its history (a JSON array). Tracebacks quote what was handled, so that of the person's own nothing stays."""
    if is_theirs:
        return None, "[]"
    return None if reason is None else scrubbed(person, reason), scrubbed(person, history)


def scrubbed_lines(person: Person, lines: list[str], *, is_theirs: bool) -> list[str]:
    """The same of a history that is kept as lines of JSON."""
    return [] if is_theirs else [scrubbed(person, line) for line in lines]
