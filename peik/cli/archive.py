"""The archive itself, without a running Peik: its APIs, asked in this process. No session runs here; a Peik on the same archive
sees at its next look what was changed."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from peik.accounts.answers import SessionAnswer, SessionChatAnswer
from peik.accounts.api import (
    AddedContactsAnswer,
    CrawlEstimateAnswer,
    JoinBody,
    PhoneContactsBody,
    SessionApi,
    SessionContactsAnswer,
)
from peik.accounts.wiring import service_alone
from peik.archive.api import MessageApi
from peik.archive.wiring import beside
from peik.cli.in_process import InProcessClient
from peik.errors import Conflict, StartError, Unavailable
from peik.settings.config import Config, shown_address
from peik.web.access import Caller

if TYPE_CHECKING:
    from peik.accounts.session_files import Looked


class ArchiveClient(InProcessClient):
    is_running = False

    def __init__(
        self, config: Config, *, may_create: bool, has_keys: bool, note: Callable[[str], None] = lambda words: None
    ) -> None:
        """Opens the archive. `has_keys` False: nothing sealed is opened or made, so that no key is needed. Raises Unavailable
        if there is none or it cannot be used, and Conflict if nothing in the settings asks for accounts."""
        self.place = place_of(config, may_create=may_create)
        super().__init__()
        self._stack = contextlib.AsyncExitStack()
        # What a library says beside its answers is for logs, and a command has none.
        logging.getLogger("telethon").addHandler(logging.NullHandler())
        try:
            if has_keys:
                self._runner.run(self._open(config, note))
            else:
                self._runner.run(self._open(_without_keys(config), lambda words: None))
        except BaseException as error:
            self._runner.close()
            if isinstance(error, StartError):
                raise Unavailable(code="archive_unusable", detail=str(error)) from None
            raise

    async def _open(self, config: Config, note: Callable[[str], None]) -> None:
        self._service = await self._stack.enter_async_context(service_alone(config, on_notice=note))

    def close(self) -> None:
        try:
            self._runner.run(self._stack.aclose())
        finally:
            self._runner.close()

    def _made(self, api: str) -> object | None:
        match api:
            case "SessionApi":
                return ArchiveSessions(self._service)
            case "MessageApi":
                return MessageApi(self._service)
        return None

    def take_in(
        self,
        paths: Sequence[Path],
        *,
        agent_id: str,
        check: bool,
        keep_files: bool,
        is_dry: bool,
        on_each: "Callable[[Looked], None]",
    ) -> None:
        async def work() -> None:
            async for looked in self._service.import_files(
                paths, agent_id=agent_id, check=check, keep_files=keep_files, is_dry=is_dry
            ):
                on_each(looked)

        self._runner.run(work())


class ArchiveSessions(SessionApi):
    """Without what only the node can do that runs the account."""

    async def restart(self, caller: Caller, session_id: str) -> SessionAnswer:
        raise _needs_node()

    async def log_out(self, caller: Caller, session_id: str) -> SessionAnswer:
        raise _needs_node()

    async def join(self, caller: Caller, session_id: str, body: JoinBody) -> SessionChatAnswer:
        raise _needs_node()

    async def list_contacts(self, caller: Caller, session_id: str) -> SessionContactsAnswer:
        raise _needs_node()

    async def estimate_crawl(self, caller: Caller, session_id: str, chat_id: int) -> CrawlEstimateAnswer:
        raise _needs_node()

    async def add_contacts(self, caller: Caller, session_id: str, body: PhoneContactsBody) -> AddedContactsAnswer:
        raise _needs_node()


def _needs_node() -> Unavailable:
    return Unavailable(
        code="not_running", detail="Only the Peik that runs the account can do that. Start it, or say where: --url."
    )


def place_of(config: Config, *, may_create: bool) -> str:
    """The archive in words for people. Raises Unavailable for a file that is not there, and Conflict if none is asked for."""
    if not config.has_sessions:
        raise Conflict(
            code="no_sessions",
            detail="Nothing in the settings asks for accounts: set TELEGRAM_API_ID and TELEGRAM_API_HASH from "
            "my.telegram.org, or PEIK_ARCHIVE.",
        )
    url = config.archive or beside(config.store)
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite":
        return shown_address(url)
    path = Path(rest[1:]).absolute()
    if not may_create and not path.exists():
        raise Unavailable(
            code="no_store",
            detail=f"There is no archive {path}. Start `peik serve` there, or name another one: --archive.",
        )
    return str(path)


def _without_keys(config: Config) -> Config:
    return msgspec.structs.replace(
        config,
        archive=config.archive or beside(config.store),
        telegram_api_id=None,
        telegram_api_hash=None,
        secret_key=None,
        secrets_plain=True,
    )
