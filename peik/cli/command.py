"""One run of a command: where it asks, how it prints, how it asks back and how it waits. `asks` makes a command of a function."""

import contextlib
import enum
import functools
import inspect
import re
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from peik.cli.client import PeikClient
from peik.errors import BadInput, Problem, StartError, Unavailable
from peik.settings.config import Config, load

# How a command ends: one table of exit codes for the shell, the help and the docs.


class Exit(enum.IntEnum):
    SUCCESS = 0
    PROBLEM = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5
    LETTER_FAILED = 6
    NOT_IN_TIME = 7
    INTERRUPTED = 130


EXITS: dict[Exit, str] = {
    Exit.SUCCESS: "success",
    Exit.PROBLEM: "a problem, told in a sentence; also an answer of no where a command asks first",
    Exit.USAGE: "wrong usage: an unknown option, a value that cannot be right",
    Exit.NOT_FOUND: "there is no such letter, job, bot, chat, key or session",
    Exit.REFUSED: "refused: a key that does not reach so far, or a conflict with how things stand",
    Exit.UNREACHABLE: "Peik, its store or its archive cannot be reached",
    Exit.LETTER_FAILED: "a letter or job that was waited for failed or was cancelled",
    Exit.NOT_IN_TIME: "a letter or job that was waited for did not end in time; it stays accepted",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
}

_OF_STATUS = {
    401: Exit.REFUSED,
    403: Exit.REFUSED,
    404: Exit.NOT_FOUND,
    409: Exit.REFUSED,
    413: Exit.REFUSED,
    422: Exit.USAGE,
    502: Exit.UNREACHABLE,
    503: Exit.UNREACHABLE,
    504: Exit.UNREACHABLE,
}


def exit_of(problem: Problem) -> Exit:
    return _OF_STATUS.get(problem.status, Exit.PROBLEM)


if TYPE_CHECKING:
    import ssl

    from rich.console import RenderableType

    from peik.cli.archive import ArchiveClient
    from peik.cli.remote import RestClient

_WHERE = "Where"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  where to reach what listens everywhere


class CommandContext:
    """What a command is given. The client opens when it is first needed, so that wrong usage is told before."""

    def __init__(
        self, flags: dict[str, str | None], *, is_json: bool, may_create: bool, has_keys: bool = False
    ) -> None:
        self.is_json = is_json
        self._flags = flags
        self._may_create = may_create
        self._has_keys = has_keys
        self._client: PeikClient | None = None
        self._accounts: RestClient | ArchiveClient | None = None

    @property
    def client(self) -> PeikClient:
        if self._client is None:
            self._client = self._reach()
        return self._client

    def _reach(self) -> PeikClient:
        """A running Peik if one answers, else the file. `--url` insists on the first, `--store` on the second."""
        config = load(self._flags)
        remote = self._running(config)
        if remote is not None:
            return remote
        with self._instead_of_running(config):
            client = self._file(config)
        self._note_place(config, client.place)
        return client

    def _running(self, config: Config) -> "RestClient | None":
        from peik.cli.remote import RestClient

        if self._is_named and self._flags.get("url") is None:
            return None
        url = config.url or _own_url(config)
        remote = RestClient(url, _key(config, url), context=context_to(url, config))
        return remote if self._flags.get("url") is not None or remote.is_there() else None

    @property
    def remote(self) -> "RestClient | None":
        """A running Peik, for commands that open the store in a way of their own where there is none."""
        return self._running(load(self._flags))

    @property
    def config(self) -> Config:
        return load(self._flags)

    @property
    def _is_named(self) -> bool:
        """Whether a flag says which store or archive it is to be."""
        return self._flags.get("store") is not None or self._flags.get("archive") is not None

    @contextlib.contextmanager
    def _instead_of_running(self, config: Config) -> Iterator[None]:
        """Where there is neither a running Peik nor a store, both are missed."""
        try:
            yield
        except Unavailable as error:
            if error.code != "no_store" or self._is_named:
                raise
            url = config.url or _own_url(config)
            raise Unavailable(code="unreachable", detail=f"No Peik answers at {url}. {error.detail}") from None

    def _note_place(self, config: Config, place: str) -> None:
        if config.url is not None and not self._is_named:
            self.note(f"No Peik answers at {config.url}; working on {place}.")

    def _file(self, config: Config) -> PeikClient:
        from peik.cli.local import StoreClient

        return StoreClient(config, may_create=self._may_create)

    @property
    def accounts(self) -> "RestClient | ArchiveClient":
        """The same for accounts and their archive; `--archive` insists on the archive itself, as `--store` does."""
        if self._accounts is None:
            config = load(self._flags)
            self._accounts = self._running(config) or self._archive(config)
        return self._accounts

    def _archive(self, config: Config) -> "ArchiveClient":
        with self._instead_of_running(config):
            client = self.archive_itself(config)
        self._note_place(config, client.place)
        return client

    def archive_itself(self, config: Config | None = None) -> "ArchiveClient":
        """Even if a Peik is running. Whoever asks for it closes it."""
        if self._flags.get("url") is not None:
            raise BadInput(code="not_remote", detail="This works on the archive itself. Leave --url out.")
        config = config or load(self._flags)
        from peik.cli.archive import ArchiveClient

        return ArchiveClient(config, may_create=self._may_create, has_keys=self._has_keys, note=self.note)

    @property
    def asked(self) -> str:
        """Which Peik, store or archive this run has spoken to; nothing if it came to none."""
        asked = self._accounts or self._client
        if asked is None:
            return ""
        return asked.place

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._accounts is not None:
            self._accounts.close()

    # ---- telling ----

    def show(self, document: object, draw: "Callable[[], RenderableType]") -> None:
        """The answer: one JSON document with `--json`, else what people like to look at."""
        if self.is_json:
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
        else:
            from peik.cli.output import print_out

            print_out(draw())

    def say(self, document: object, sentence: str) -> None:
        """The same for an answer that is one sentence."""
        self.show(document, lambda: _text(sentence))

    def note(self, sentence: str) -> None:
        """Beside the answer, for people."""
        if not self.is_json:
            _aside(sentence)

    # ---- asking back, waiting ----

    def confirm(self, question: str, *, is_sure: bool) -> None:
        """Go on only if somebody says so. Raises BadInput where nobody can be asked."""
        if is_sure:
            return
        if self.is_json or not sys.stdin.isatty():
            raise BadInput(code="not_confirmed", detail=f"{question} Say --yes to do it without being asked.")
        if not typer.confirm(question, err=True):
            self.note("Nothing was changed.")
            raise typer.Exit(Exit.PROBLEM)

    @contextlib.contextmanager
    def waiting(self, words: str) -> Iterator[None]:
        """Show that something takes its time, in a terminal only."""
        if self.is_json or not sys.stderr.isatty():
            yield
            return
        from peik.cli.output import console

        with console(stderr=True).status(_text(words)):
            yield

    @contextlib.contextmanager
    def watching(self, words: str) -> Iterator[Callable[[str], None]]:
        """The same with words that change."""
        if self.is_json or not sys.stderr.isatty():
            yield lambda words: None
            return
        from peik.cli.output import console

        with console(stderr=True).status(_text(words)) as status:
            yield lambda words: status.update(_text(words))

    @contextlib.contextmanager
    def progress(self, words: str, total: int, *, is_bytes: bool = True) -> Iterator[Callable[[int], None]]:
        """A bar that grows by what its caller says, in a terminal only."""
        if self.is_json or total <= 0 or not sys.stderr.isatty():
            yield lambda done: None
            return
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        from peik.cli.output import console

        amount = DownloadColumn() if is_bytes else MofNCompleteColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
        with Progress(*columns, console=console(stderr=True), transient=True) as bars:
            task = bars.add_task(words, total=total)
            yield lambda done: bars.advance(task, done)


def _text(sentence: str) -> "RenderableType":
    from peik.cli.output import plain

    return plain(sentence)


def _own_url(config: Config) -> str:
    host = _ANY_HOST.get(config.host, config.host)
    scheme = "http" if config.tls_cert is None else "https"
    return f"{scheme}://[{host}]:{config.port}" if ":" in host else f"{scheme}://{host}:{config.port}"


def context_to(url: str, config: Config) -> "ssl.SSLContext | None":
    """Whose certificates are believed at a Peik. One of our own settings shows the certificate that they name."""
    if not url.startswith("https:"):
        return None
    from peik.telegram.connect import client_context, own_context

    if config.tls_cert is not None and url == _own_url(config):
        return own_context(config.tls_cert)
    return client_context(config.ca_file)


def _key(config: Config, url: str) -> str | None:
    """The key to show there. The file beside the database is a secret of this machine, and is shown to no other."""
    key = config.key or config.admin_key
    is_here = config.url is None or urllib.parse.urlsplit(url).hostname in _LOOPBACK
    if key is None and is_here:
        with contextlib.suppress(OSError, StartError, UnicodeDecodeError):
            key = config.beside(".key").read_text(encoding="utf-8").strip()
    if key is not None and not (key.isascii() and key.isprintable()):
        raise StartError("The key holds characters that no key of Peik has. Look at PEIK_KEY, or at its file.")
    return key


# ---- commands ----


def _where(words: str, metavar: str) -> Any:
    return typer.Option(help=words, metavar=metavar, rich_help_panel=_WHERE)


_COMMON = (
    ("url", str | None, _where("The running Peik to ask, and nothing else.", "URL"), None),
    ("store", str | None, _where("The store to work on, even if a Peik is running.", "URL"), None),
    ("key_file", Path | None, _where("A file with the key to show.", "FILE"), None),
    ("as_json", bool, typer.Option("--json", help="Print one JSON document and nothing else."), False),
)


_ARCHIVE = ("archive", str | None, _where("The archive to work on, even if a Peik is running.", "URL"), None)


def asks(
    app: typer.Typer,
    name: str | None = None,
    *,
    may_create: bool = False,
    has_archive: bool = False,
    has_keys: bool = False,
    **more: Any,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command that visits Peik: its first argument is the visit, the rest its options.

    Adds the options that all of them share, opens and closes the client, and ends with the exit code of a problem.
    `has_archive`: it is about accounts, and the archive can be named; `has_keys`: it may need what is sealed there.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**given: Any) -> None:
            is_json = given.pop("as_json")
            key_file = given.pop("key_file")
            flags = {"url": given.pop("url"), "store": given.pop("store")}
            if has_archive:
                flags["archive"] = given.pop("archive")
            if key_file is not None:
                flags["key_file"] = str(key_file)
            context = CommandContext(flags, is_json=is_json, may_create=may_create, has_keys=has_keys)
            try:
                function(context, **given)
            except (Problem, StartError) as problem:
                raise typer.Exit(tell(problem, is_json=is_json, asked=context.asked)) from None
            except typer.Abort:  # Ctrl-C where a question was asked
                raise typer.Exit(Exit.INTERRUPTED) from None
            finally:
                context.close()

        own = list(inspect.signature(function).parameters.values())[1:]
        common = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
            for name, kind, option, default in (*([_ARCHIVE] if has_archive else []), *_COMMON)
        ]
        signature = inspect.Signature([one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own] + common)
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        app.command(name, **more)(command)
        return function

    return register


# Where the API says what to do in its own terms.
_HINTS = {
    "which_bot": "There are several bots: say which with --bot ID. `peik bots list` shows them.",
    "no_bot": "No bot is known yet. Add one: peik bots add",
    "unknown_bot": "There is no such bot here. `peik bots list` shows those that are, `peik bots add` adds one.",
    "no_key": "Peik wants a key: set PEIK_KEY or name a file with --key-file. `peik serve` says where the admin key is.",
    "wrong_key": "Peik does not know this key: set PEIK_KEY or name a file with --key-file. "
    "`peik serve` says where the admin key is.",
}


# An error that names a call names the command before it.
_COMMAND_OR_CALL = re.compile(r"(`peik [^`]+`) or [A-Z]+ /v1/\S*[^\s.,;:)]")


def as_typed(words: str) -> str:
    """A sentence of the API in words of the command line: the command alone."""
    return _COMMAND_OR_CALL.sub(r"\1", words)


def tell(problem: Problem | StartError, *, is_json: bool, asked: str = "") -> int:
    """Say on stderr what is wrong, and who said so; the exit code."""
    code, status, name = Exit.PROBLEM, 500, "cannot_start"
    if isinstance(problem, Problem):
        code, status, name = exit_of(problem), problem.status, problem.code
    words = as_typed(_HINTS.get(name, str(problem)))
    if is_json:
        write_problem(code=name, status=status, detail=words, asked=asked)
    else:
        _aside(f"peik: {words}" + (f" (asked: {asked})" if asked and asked not in words else ""))
    return code


def write_problem(*, code: str, status: int, detail: str, asked: str = "") -> None:
    import http

    body = {
        "type": f"urn:peik:problem:{code}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **({"asked": asked} if asked else {}),
    }
    _aside(msgspec.json.encode(body).decode())


def _aside(line: str) -> None:
    """On stderr, after all that was said on stdout: in a file that takes both, they stand in their order."""
    with contextlib.suppress(BrokenPipeError):  # a caller that reads no answers may still read this
        sys.stdout.flush()
    sys.stderr.write(line + "\n")
