"""What tests of links and notifications need: census, links and releasing on the stage's Peik, with terms of their own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from peik.notifications.links import NewCode
from peik.notifications.model import NotifyRequest, UserLink
from peik.notifications.service import NotificationTerms
from peik.notifications.wiring import Notifications, notifications_of
from tests.outbox.story import TOKEN, Stage

LENA, AZIZ, THIEF = 501, 502, 503
POLLED = {"inbound": "polling", "pace": "off"}


class House:
    """A stage with people, and the parts that are tested."""

    def __init__(self, stage: Stage, made: Notifications) -> None:
        self.stage = stage
        self.service = made.service
        self.links = made.service.links
        self.census = made.contacts
        self.releasing = made.releases

    def says(self, user: int, text: str) -> None:
        self.stage.telegram.write(TOKEN, user, text)

    def got(self, user: int) -> list[str]:
        return self.stage.texts(user)

    async def until(self, is_so: Callable[[], bool], timeout_s: float = 3 * 86_400.0) -> None:
        """Wait for a fact, in virtual time."""
        async with asyncio.timeout(timeout_s):
            while not is_so():  # noqa: ASYNC110  virtual time: a look costs nothing
                await asyncio.sleep(0.5)

    async def until_true(self, is_so: Callable[[], Awaitable[bool]], timeout_s: float = 3 * 86_400.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not await is_so():  # noqa: ASYNC110  the same
                await asyncio.sleep(0.5)

    async def linked(self, user_id: str, chat: int) -> NewCode:
        """Give out a code, and let somebody show it."""
        code = await self.links.new_code(user_id)
        before = len(self.got(chat))
        self.says(chat, f"/start {code.code}")
        await self.until(lambda: len(self.got(chat)) > before)
        return code

    async def link(self, user_id: str) -> UserLink | None:
        user = await self.links.user(user_id)
        return None if user is None else user.link

    async def notify(self, user_id: str, message: str, **more: object) -> str:
        given = {"type": "task", "title": "Task", **more}
        (notice,) = await self.service.notify([NotifyRequest(user_id=user_id, message=message, **given)])  # type: ignore[arg-type]
        return notice.id


@contextlib.asynccontextmanager
async def notifying(stage: Stage, terms: NotificationTerms | None = None) -> AsyncIterator[House]:
    """On a stage that is open. It ends as a process that is killed: whatever was not filed is lost."""
    runtime = stage.peik
    runtime.notifications.contacts.stop()  # those of the runtime have other terms
    runtime.notifications.releases.stop()
    made = notifications_of(runtime, runtime.outbox, terms or NotificationTerms())
    for user, name, language in ((LENA, "Lena", "ru"), (AZIZ, "Aziz", "uz"), (THIEF, "Thief", "en")):
        stage.telegram.user(user, name, language)
    async with asyncio.TaskGroup() as group:
        made.contacts.start(group)
        made.contacts.look()
        made.releases.start(group)
        try:
            yield House(stage, made)
        finally:
            made.contacts.stop()
            made.releases.stop()
