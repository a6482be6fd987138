"""`peik secrets status|rotate|open|mend`: how tokens and other secrets lie in the store."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from peik.cli.arguments import secret
from peik.cli.client import ANSWER_S, Document, document_for
from peik.cli.command import CommandContext, asks
from peik.cli.filters import Yes
from peik.errors import Conflict, Unavailable
from peik.settings.config import Config
from peik.settings.values import StoreKind

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.cli.remote import RestClient
    from peik.secrets.service import Custodian
    from peik.storage.open import AnyStore

app = typer.Typer(
    no_args_is_help=True, help="Tokens and other secrets in the store: plain, or sealed with PEIK_SECRET_KEY."
)
T = TypeVar("T")


@asks(app)
def status(context: CommandContext) -> None:
    """Show how many secrets are plain and how many sealed, and with which of the keys. Needs no key."""
    from peik.secrets.api import SecretApi

    document = _asked(context, context.remote, SecretApi.get_secrets)

    def draw() -> "RenderableType":
        from peik.cli.output import facts

        return facts(
            [
                ("key is set", "yes" if document["has_key"] else "no"),
                ("plain", document["plain"]),
                ("sealed with this key", document["sealed"]),
                ("sealed with an older key", document["older"]),
                ("sealed with a key that is not here", document["foreign"]),
                ("old bytes in the file", "none" if document["is_scrubbed"] else "may be left"),
            ]
        )

    context.show(document, draw)
    if document["advice"] is not None:
        context.note(str(document["advice"]))


@asks(app, has_archive=True, has_keys=True)
def rotate(context: CommandContext) -> None:
    """Seal everything with the first key of PEIK_SECRET_KEY: what is plain, and what older keys have sealed."""
    from peik.secrets.api import SecretApi

    remote = context.remote
    with context.waiting("Sealing"):
        document = _asked(context, remote, SecretApi.rotate, timeout_s=None)
        if remote is None and context.config.has_sessions:
            document["accounts"] = _reseal_accounts(context)  # they are in the archive, not in the store
    context.say(
        document, f"{document['sealed']} secrets sealed, {document['renewed']} sealed again.{_accounts(document)}"
    )
    if document["left"] is not None:
        context.note(str(document["left"]))


@asks(app)
def open(context: CommandContext, yes: Yes = False) -> None:  # noqa: A001  the command's name
    """Store everything as plain text again. Stop every node before, and take PEIK_SECRET_KEY away after."""
    if context.remote is not None:
        raise Conflict(code="in_use", detail="A Peik runs on this store. Stop it: it would seal what it writes.")
    context.confirm("Store tokens, and keys of accounts, as plain text?", is_sure=yes)
    with context.waiting("Opening"):
        document = _on_store(context, _open)
        document["accounts"] = _open_accounts(context.config) if context.config.has_sessions else None
    context.say(document, f"{document['opened']} secrets are plain text now.")
    context.note("Take PEIK_SECRET_KEY out of the settings before the next start: with it everything is sealed again.")


@asks(app)
def mend(
    context: CommandContext,
    given: Annotated[str | None, typer.Argument(metavar="-", help="- reads the token from standard input.")] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="A file with the token.")
    ] = None,
) -> None:
    """Give a bot its token again where what is stored cannot be opened, from a hidden prompt, a file or standard input."""
    from peik.core.token import Token
    from peik.secrets import service as sealing

    token = Token(secret(given, token_file, "Token of the bot"))

    async def work(config: Config, store: "AnyStore") -> Document:
        await sealing.mend(store.sealed, store.seals, token)
        return {"bot_id": str(token.bot_id), "mended": True}

    context.say(_on_store(context, work), f"Bot {token.bot_id} has its token again.")


def _reseal_accounts(context: CommandContext) -> Document:
    from peik.accounts.api import SessionApi

    return context.accounts.document(SessionApi.reseal, timeout_s=None)


def _accounts(document: Document) -> str:
    accounts = document["accounts"]
    if not isinstance(accounts, dict):
        return ""
    words = f" Accounts: {accounts['renewed']} sealed again."
    lost = accounts["lost"]
    return f"{words} No key of ours opens: {', '.join(lost)}." if lost else words


# ---- the store itself ----


def _asked(
    context: CommandContext,
    remote: "RestClient | None",
    handler: Callable[..., Awaitable[object]],
    *,
    timeout_s: float | None = ANSWER_S,
) -> Document:
    """Of a running Peik; else of the store by its raw texts, because the key that opens them may not be here."""
    from peik.cli.in_process import COMMAND_LINE
    from peik.secrets.api import SecretApi
    from peik.web.operations import answer_here, declared

    if remote is not None:
        return remote.document(handler, timeout_s=timeout_s)

    async def work(config: Config, store: "AnyStore") -> Document:
        api = SecretApi(_custodian(config, store), None)
        return document_for(await answer_here(api, declared(handler), COMMAND_LINE, {}))

    return _on_store(context, work)


async def _open(config: Config, store: "AnyStore") -> Document:
    from peik.secrets import service as sealing

    names = [node.name for node in await store.nodes.nodes() if node.name != store.nodes.node]
    if names or not await store.sealed.is_ours():
        running = ", ".join(names) or "another process"
        raise Conflict(
            code="in_use", detail=f"A Peik runs on this store ({running}). Stop it: it would seal what it writes."
        )
    done = await sealing.unseal(store.sealed, store.seals)
    return {"opened": done.opened}


def _custodian(config: Config, store: "AnyStore") -> "Custodian":
    from peik.app.build import custodian_of
    from peik.clock import SystemClock
    from peik.core.events import Events

    return custodian_of(config, store, clock=SystemClock(), events=Events())


def _open_accounts(config: Config) -> Document:
    import asyncio

    from peik.accounts.registry import Registry
    from peik.accounts.upkeep import unseal
    from peik.accounts.wiring import archive_named
    from peik.clock import SystemClock
    from peik.secrets.vault import Vault, keys_of

    async def run() -> Document:
        archive = archive_named(config)
        await archive.open()
        try:
            done = await unseal(Registry(archive, SystemClock()), Vault(keys_of(config.secret_keys or "")))
        finally:
            await archive.close()
        return {"opened": done.renewed, "lost": list(done.lost)}

    return asyncio.run(run())


def _on_store(context: CommandContext, work: "Callable[[Config, AnyStore], Awaitable[Document]]") -> Document:
    """On the store of the settings, by its own raw texts: nothing is opened that the work does not open."""
    import asyncio

    from peik.clock import SystemClock
    from peik.storage.open import store_of

    config = context.config
    if config.store_kind is StoreKind.SQLITE and not config.sqlite_path.absolute().exists():
        detail = f"There is no {config.sqlite_path.absolute()}. Start `peik serve` there, or name another: --store."
        raise Unavailable(code="no_store", detail=detail)

    async def run() -> Document:
        store = store_of(config, clock=SystemClock())
        await store.open()
        try:
            return await work(config, store)
        finally:
            await store.close()

    return asyncio.run(run())
