"""Papers that name a person who is forgotten, but for those whose owners forget by themselves: of the audit log, alerts, errors.
What was done stays on paper; whom it was about does not."""

from collections.abc import Sequence

from peik.core.forgetting import Found, Gone, Person, names, reworded
from peik.errors import Conflict
from peik.paper_ports import Filing, Paper, PaperStore

PAGE = 500
SHELF = "forgetting"  # the acts themselves
# Names and figures of Peik itself, and texts that people wrote for everybody.
NOT_ABOUT_PEOPLE = frozenset({SHELF, "admins", "backups", "sign_ins", "templates"})


class PapersPart:
    """The port `Part`."""

    def __init__(self, papers: PaperStore, *, owned: Sequence[str]) -> None:
        """`owned`: how the names of shelves begin that somebody else looks through."""
        self._papers = papers
        self._owned = tuple(owned)

    async def forget(self, person: Person, *, is_dry: bool) -> Found:
        found = Gone()
        for shelf in await self._papers.shelves(""):
            if shelf not in NOT_ABOUT_PEOPLE and not shelf.startswith(self._owned):
                found += await self._shelf(shelf, person, is_dry=is_dry)
        return {"papers": found}

    async def _shelf(self, shelf: str, person: Person, *, is_dry: bool) -> Gone:
        found, after = Gone(), None
        while page := await self._papers.papers(shelf, after=after, limit=PAGE):
            after = page[-1].key
            for paper in page:
                filing = _filing(person, paper)
                if filing is None:
                    continue
                try:
                    if not is_dry:
                        await self._papers.file([filing])
                except Conflict:
                    found += Gone(left=1)  # somebody changed it just now: the next look sees
                else:
                    found += Gone(removed=1) if filing.body is None else Gone(blanked=1)
        return found


def _filing(person: Person, paper: Paper) -> Filing | None:
    """A paper that is about the person has them in its key, and goes."""
    if names(person, paper.key):
        return Filing(shelf=paper.shelf, key=paper.key, body=None, version=paper.version)
    left = reworded(person, paper.body)
    return None if left == paper.body else Filing(shelf=paper.shelf, key=paper.key, body=left, version=paper.version)
