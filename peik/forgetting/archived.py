"""The archive of accounts: what a person wrote and did, the private chats with them, and lines of its log that name them."""

from collections.abc import Awaitable, Callable

import msgspec

from peik.archive_ports import Archive, LogFilter, SessionFilter
from peik.core.forgetting import Found, Gone, Person, names, scrubbed
from peik.errors import Conflict, NotFound

PAGE = 200


class ArchivePart:
    """The port `Part`."""

    def __init__(self, archive: Callable[[], Awaitable[Archive]]) -> None:
        """Raises StoreUnavailable if the archive does not answer."""
        self._archive = archive

    async def forget(self, person: Person, *, is_dry: bool) -> Found:
        archive = await self._archive()
        ask = archive.count_person if is_dry else archive.forget_person
        gone = await ask(person.user_id)
        return {
            **{f"archive_{kind}": Gone(removed=count) for kind, count in gone.items()},
            "archive_sessions": await _sessions(archive, person, is_dry=is_dry),
            "archive_logs": await _logs(archive, person, is_dry=is_dry),
        }


async def _sessions(archive: Archive, person: Person, *, is_dry: bool) -> Gone:
    """What callers noted of accounts. An account of the person's own is theirs to have removed: it is signed in on purpose."""
    found, after = Gone(), None
    while page := await archive.sessions(SessionFilter(), after=after, limit=PAGE):
        after = page[-1].session_id
        for session in page:
            if not names(person, session.metadata):
                continue
            try:
                if not is_dry:
                    left = msgspec.structs.replace(session, metadata=scrubbed(person, session.metadata))
                    await archive.save_session(left)
                found += Gone(blanked=1)
            except (Conflict, NotFound):
                found += Gone(left=1)
    return found


async def _logs(archive: Archive, person: Person, *, is_dry: bool) -> Gone:
    found = Gone()
    for word in sorted(person.words):
        cursor = None
        while True:
            page, cursor = await archive.logs(LogFilter(text=word), cursor=cursor, limit=PAGE)
            theirs = [line for line in page if names(person, line.event, line.fields)]
            found += Gone(removed=len(theirs) if is_dry or not theirs else await archive.drop_logs(theirs))
            if cursor is None:
                break
    return found
