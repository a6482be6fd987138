"""`peik sessions …`: the accounts that Peik signs in as. Signing in and taking in files are in files of their own."""

import contextlib
import datetime
import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from peik.cli.arguments import moment, pair, seconds, unshielded
from peik.cli.client import Document, page_of, some
from peik.cli.command import CommandContext, Exit, asks
from peik.cli.filters import Cursor, Limit, Yes, counted
from peik.errors import BadInput, Conflict, Problem, to_install

# `peik sessions import`: session files of Telethon that exist already. It works on the archive itself, beside a
# running Peik.


if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.accounts.api import SessionApi
    from peik.accounts.session_files import Looked

# What leaves nothing to be done. The rest makes the exit code 1.
_FINE = frozenset({"imported", "would_import", "duplicate"})
_STYLES = {"imported": "green", "would_import": "green", "duplicate": "dim", "unchecked": "yellow"}


def register_import(app: typer.Typer) -> None:
    asks(app, "import", may_create=True, has_archive=True, has_keys=True)(take_in)


def take_in(
    context: CommandContext,
    files: Annotated[list[Path], typer.Argument(metavar="FILES|FOLDER", help="*.session files of Telethon 1.")],
    agent: Annotated[str, typer.Option(metavar="NAME", help="Whose accounts they are.")],
    check: Annotated[
        bool,
        typer.Option("--check", help="Ask Telegram about each first. No other program may be using them meanwhile."),
    ] = False,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Run from copies in PEIK_SESSIONS_DIR instead of sealed keys.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken in.")] = False,
) -> None:
    """Take in session files of Telethon: each is looked at, told of, and registered once. The files stay as they are."""
    paths = _paths(files)
    client = context.archive_itself()
    reports: list[Looked] = []
    try:
        with context.progress("Taking in", len(paths), is_bytes=False) as advance:

            def note(looked: "Looked") -> None:
                reports.append(looked)
                advance(1)

            try:
                client.take_in(paths, agent_id=agent, check=check, keep_files=keep_files, is_dry=dry_run, on_each=note)
            except KeyboardInterrupt:
                context.note(
                    f"Interrupted after {len(reports)} of {len(paths)}. What was taken in stays; start again to go on."
                )
    finally:
        client.close()
    counts: dict[str, int] = {}
    for looked in reports:
        counts[looked.verdict] = counts.get(looked.verdict, 0) + 1
    context.show({"files": [_view(one) for one in reports], "counts": counts}, lambda: _table(reports))
    context.note(", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in counts.items()) + ".")
    if len(reports) < len(paths):
        raise typer.Exit(Exit.INTERRUPTED)
    if set(counts) - _FINE:
        raise typer.Exit(Exit.PROBLEM)


def _paths(files: list[Path]) -> list[Path]:
    paths: list[Path] = []
    for path in files:
        if not path.is_dir():
            paths.append(path)
            continue
        found = sorted(one for one in path.iterdir() if one.suffix == ".session" and one.is_file())
        if not found:
            raise BadInput(code="no_file", detail=f"There are no *.session files in {path}.")
        paths.extend(found)
    return paths


def _view(looked: "Looked") -> dict[str, object]:
    return {
        "file": looked.file,
        "verdict": looked.verdict,
        "detail": looked.detail,
        "session_id": looked.session_id,
        "user_id": None if looked.user_id is None else str(looked.user_id),
    }


def _table(reports: "list[Looked]") -> "RenderableType":
    from peik.cli.output import plain, table

    rows = [
        (one.file, plain(one.verdict.replace("_", " "), _STYLES.get(one.verdict, "red")), one.session_id, one.detail)
        for one in reports
    ]
    return table(("file", "verdict", "session", "why"), rows, empty=f"{counted(0, 'file')} to take in.")


# What the commands of accounts share: the session's id, its page, a proxy that may hold a password.


if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_S = 1.0  # how often a sign-in or a crawl is looked at
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="Its id, from `peik sessions list`.")]


def _api() -> "type[SessionApi]":
    from peik.accounts.api import SessionApi  # with all that it needs: help is shown without

    return SessionApi


def _session(context: CommandContext, session: str) -> Document:
    return context.accounts.document(_api().get_session, session_id=session)


def shown_session(session: Document) -> "RenderableType":
    from peik.cli.output import facts, state, when

    health = session["health"]
    assert isinstance(health, dict)
    runs = {"file": "a session file", "key": "a sealed key"}.get(str(session["runs_from"]), "nothing yet: sign it in")
    metadata = msgspec.json.encode(session["metadata"]).decode()
    return facts(
        [
            ("session", session["session_id"]),
            ("agent", session["agent_id"]),
            ("phone", session["phone"]),
            ("account", session["user_id"]),
            ("name", f"@{session['username']}" if session["username"] else None),
            ("state", state(session["state"])),
            ("health", f"{health['grade']}: {health['line']}"),
            ("what to do", health["todo"]),
            ("until", when(session["state_until"])),
            ("connected", "yes" if session["is_connected"] else "no"),
            ("deactivated", None if session["is_active"] else "yes"),
            ("runs from", runs),
            ("proxy", "yes" if session["has_proxy"] else None),
            ("keeps", ", ".join(f"{place}: {mode}" for place, mode in session["keep"].items()) or None),  # type: ignore[attr-defined]
            ("metadata", None if metadata == "{}" else metadata),
            ("registered", when(session["created_at"])),
            ("last active", when(session["active_at"])),
        ]
    )


def hidden(prompt: str) -> str:
    """Asked for in a terminal without being shown; else the next line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(prompt, hide_input=True, err=True))
    return sys.stdin.readline().strip("\r\n")


def only_dash(given: str | None, option: str) -> bool:
    """Whether a secret is to be read from standard input. Raises BadParameter for one that stands on the command line."""
    if given not in (None, "-"):
        raise typer.BadParameter(
            f"What is given as an argument stays in the shell's history and is seen by every user of the machine. Write "
            f"{option} - to read it from standard input, or leave it out to be asked for it.",
            param_hint=option,
        )
    return given is not None


def proxy_of(given: str | None) -> str | None:
    """An address without a password may stand on the command line; another is read."""
    if given is None or given == "-":
        return None if given is None else hidden("Proxy")
    if "@" in given or "secret=" in given:
        only_dash(given, "--proxy")
    return given


# `peik sessions sign-in`: by code and password, asked for step by step, or by a QR code that is drawn in the
# terminal.
#
# Without a terminal it makes one step at a time, and reads what is secret from standard input.


if TYPE_CHECKING:
    from collections.abc import Callable

# What is worth another try of the same step.
_AGAIN = frozenset({"bad_code", "malformed_code", "bad_password", "malformed_password"})
_READ = "- reads it from standard input; else you are asked."
_OVER = frozenset({"active", "password_needed", "flood_wait", "failed"})
_CLEAR = "\x1b[{}A\x1b[J"  # up so many lines, and empty from there on


def register_sign_in(app: typer.Typer) -> None:
    asks(app, "sign-in", has_archive=True, has_keys=True)(sign_in)


def sign_in(
    context: CommandContext,
    session: SessionId,
    phone: Annotated[str | None, typer.Option(metavar="NUMBER", help="Else the one that is registered.")] = None,
    sms: Annotated[bool, typer.Option("--sms", help="Ask Telegram to send the code by SMS.")] = False,
    qr: Annotated[
        bool, typer.Option("--qr", help="Draw a QR code, to be scanned by a device that is signed in.")
    ] = False,
    code: Annotated[str | None, typer.Option("--code", metavar="-", help=_READ)] = None,
    password: Annotated[str | None, typer.Option("--password", metavar="-", help=_READ)] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Leave a sign-in that was begun.")] = False,
) -> None:
    """Sign an account in: asks for the code and the password, or draws a QR code. Begins where it was left."""
    has_code, has_password = only_dash(code, "--code"), only_dash(password, "--password")
    if sum((qr, has_code or has_password, cancel)) > 1:
        raise typer.BadParameter("Say --qr, --code and --password, or --cancel; not all at once.")
    number = None if phone is None else unshielded(phone)
    if cancel:
        left = context.accounts.document(_api().cancel_sign_in, session_id=session)
        context.say(left, f"Session {session} is not being signed in any more.")
        return
    if qr:
        found = _by_qr(context, session)
    elif has_code or has_password:
        found = _by_stdin(context, session, has_code=has_code, has_password=has_password)
    elif context.is_json or not sys.stdin.isatty():
        found = _send_code(context, session, number, by_sms=sms)
    else:
        found = _by_code(context, session, number, by_sms=sms)
    context.show(found, lambda: shown_session(found))
    _note_next(context, session, found)


def _note_next(context: CommandContext, session: str, found: Document) -> None:
    match found["state"]:
        case "active":
            context.note(f"Signed in as {found['username'] or found['user_id']}.")
        case "code_sent":
            context.note(f"Give the code: peik sessions sign-in {session} --code -")
        case "password_needed":
            context.note(f"Give the password: peik sessions sign-in {session} --password -")


# ---- step by step ----


def _by_stdin(context: CommandContext, session: str, *, has_code: bool, has_password: bool) -> Document:
    """A line for each that is asked for. An account without a password leaves its line unread."""
    found: Document = {}
    if has_code:
        found = _give_code(context, session, hidden("Code"))
    if has_password and found.get("state", "password_needed") == "password_needed":
        found = _give_password(context, session, hidden("Password"))
    return found


def _send_code(context: CommandContext, session: str, phone: str | None, *, by_sms: bool) -> Document:
    body = {"by_sms": by_sms, **some(phone=phone)}
    return context.accounts.document(_api().send_code, session_id=session, body=body)


def _give_code(context: CommandContext, session: str, code: str) -> Document:
    return context.accounts.document(_api().sign_in, session_id=session, body={"code": code})


def _give_password(context: CommandContext, session: str, password: str) -> Document:
    return context.accounts.document(_api().give_password, session_id=session, body={"password": password})


def _by_code(context: CommandContext, session: str, phone: str | None, *, by_sms: bool) -> Document:
    found = _session(context, session)
    if found["state"] == "active":
        raise Conflict(code="signed_in", detail="Somebody is signed in already. Sign out first: peik sessions log-out")
    is_begun = phone is None and not by_sms and found["state"] in ("code_sent", "password_needed")
    if not is_begun:
        if phone is None and found["phone"] is None:
            phone = str(typer.prompt("Phone number", err=True))
        found = _send_code(context, session, phone, by_sms=by_sms)
    if found["state"] == "code_sent":
        context.note(str(found["state_reason"]))
    while found["state"] == "code_sent":
        found = _tried(context, found, _give_code, hidden("Code"))
    return _with_password(context, found)


def _with_password(context: CommandContext, found: Document) -> Document:
    while found["state"] == "password_needed":
        found = _tried(context, found, _give_password, hidden("Password (two-step verification)"))
    return found


def _tried(
    context: CommandContext, before: Document, step: "Callable[[CommandContext, str, str], Document]", given: str
) -> Document:
    """What came of a step; as before, if it was a slip of the finger. Peik counts these, and ends it after a few."""
    try:
        return step(context, str(before["session_id"]), given)
    except Problem as problem:
        if problem.code not in _AGAIN:
            raise
        context.note(f"{problem.detail} Try again.")
        return before


# ---- by QR ----


def _by_qr(context: CommandContext, session: str) -> Document:
    if context.is_json or not sys.stderr.isatty():
        raise BadInput(code="no_terminal", detail="A QR code needs a terminal to be drawn in. REST has it: GET …/qr.")
    if _session(context, session)["state"] == "active":
        raise Conflict(code="signed_in", detail="Somebody is signed in already. Sign out first: peik sessions log-out")
    context.note("Scan it in Telegram: Settings, Devices, Link Desktop Device. Ctrl-C ends it.")
    try:
        found = _scanned(context, session)
    except KeyboardInterrupt:
        with contextlib.suppress(Problem):
            context.accounts.document(_api().cancel_sign_in, session_id=session)
        raise
    return _with_password(context, found)


def _scanned(context: CommandContext, session: str) -> Document:
    """Draws a fresh one over the last when that is over, for as long as it takes."""
    lines = 0
    while True:
        qr = context.accounts.document(_api().get_qr, session_id=session)
        drawn = _drawn(str(qr["url"]))
        sys.stderr.write((_CLEAR.format(lines) if lines else "") + drawn)
        sys.stderr.flush()
        lines = drawn.count("\n")
        found = _outcome(context, session, looks=_looks(str(qr["expires_at"])))
        if found is not None:
            sys.stderr.write(_CLEAR.format(lines))
            return found


def _outcome(context: CommandContext, session: str, *, looks: int) -> Document | None:
    """The session once somebody scanned its QR code, or something else came of it; None after so many looks."""
    for _ in range(looks):
        context.accounts.pause(LOOK_S)
        found = _session(context, session)
        if found["state"] in _OVER:
            return found
    return None


def _looks(expires_at: str) -> int:
    left = datetime.datetime.fromisoformat(expires_at) - datetime.datetime.now(datetime.UTC)
    return max(1, int(left.total_seconds() / LOOK_S))


def _drawn(url: str) -> str:
    import io

    try:
        import segno
    except ImportError:
        raise Conflict(
            code="no_pictures", detail=f"Drawing a QR code needs a package: {to_install('sessions')}."
        ) from None
    text = io.StringIO()
    segno.make(url, error="l").terminal(text, compact=True)
    return text.getvalue()


if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    no_args_is_help=True, help="Accounts that Peik signs in as: register, sign in, run, read their chats."
)

OLD_DAYS = 30.0
_KEEP = "What of a chat is archived from now on: its number (or private, groups, all) = all, nothing or default; again for more."
_METADATA = "With this in its metadata, name=value; again for more."
ChatId = Annotated[str, typer.Argument(metavar="CHAT", help="The chat's number, from `peik sessions chats`.")]
ProxyFrom = Annotated[
    str | None,
    typer.Option("--proxy", metavar="URL|-", help="socks5://host:port, or http://…; - reads it, with its password."),
]


class StateName(enum.StrEnum):
    NEW = "new"
    CODE_SENT = "code_sent"
    PASSWORD_NEEDED = "password_needed"  # noqa: S105  a state
    ACTIVE = "active"
    PAUSED = "paused"
    FLOOD_WAIT = "flood_wait"
    REVOKED = "revoked"
    FAILED = "failed"


# ---- looking ----


@asks(app, "list", has_archive=True)
def show_all(
    context: CommandContext,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Of this agent.")] = None,
    state: Annotated[list[StateName] | None, typer.Option(help="In this state; again for more.")] = None,
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Only those that are active, or deactivated.")
    ] = None,
    phone: Annotated[str | None, typer.Option(metavar="NUMBER", help="With this phone number.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> None:
    """List the accounts."""
    wanted = some(
        agent_id=agent,
        state=",".join(state) if state else None,
        active=None if active is None else str(active).lower(),
        phone=None if phone is None else unshielded(phone),
    )
    page = context.accounts.document(_api().list_sessions, query={**wanted, **page_of(cursor, limit)})
    found = page["sessions"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, state, table

        rows = [
            (
                one["session_id"],
                one["agent_id"],
                one["phone"],
                f"@{one['username']}" if one["username"] else one["user_id"],
                state(one["state"]),
                one["health"]["grade"],
                age(one["active_at"]),
                one["health"]["line"],
            )
            for one in found
        ]
        columns = ("session", "agent", "phone", "account", "state", "health", "active", "why")
        return table(columns, rows, empty="No account yet: peik sessions create --agent NAME")

    context.show(page, draw)
    if page["next"] is not None:
        context.note(f"There may be more: --cursor {page['next']}")


@asks(app, has_archive=True)
def show(context: CommandContext, session: SessionId) -> None:
    """Show an account: how it stands, and why."""
    found = _session(context, session)
    context.show(found, lambda: shown_session(found))


@asks(app, has_archive=True)
def chats(context: CommandContext, session: SessionId) -> None:
    """List the chats that something is known of, and how far their histories were read."""
    page = context.accounts.document(_api().list_chats, session_id=session)
    found = page["chats"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, table

        rows = [
            (
                one["chat_id"],
                one["newest_id"],
                one["crawl"]["state"],
                one["crawl"]["crawled"],
                one["crawl"]["down_to"],
                one["keep"],
                age(one["updated_at"]),
                one["title"],
            )
            for one in found
        ]
        columns = ("chat", "newest", "crawl", "read", "down to", "keeps", "seen", "title")
        return table(columns, rows, right=("chat", "newest", "read", "down to"), empty="Nothing is known of any chat.")

    context.show(page, draw)


# ---- registering ----


@asks(app, may_create=True, has_archive=True, has_keys=True)
def create(
    context: CommandContext,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Whose account it is.")],
    phone: Annotated[str | None, typer.Option(metavar="NUMBER", help="The phone number to sign in with.")] = None,
    metadata: Annotated[list[str] | None, typer.Option("--meta", metavar="NAME=VALUE", help=_METADATA)] = None,
    proxy: ProxyFrom = None,
    file: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run from this session file in PEIK_SESSIONS_DIR.")
    ] = None,
    session_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The id it is to have.")] = None,
) -> None:
    """Register an account. `peik sessions sign-in` signs it in."""
    wanted: Document = {"agent_id": agent}
    optional = {
        "phone": None if phone is None else unshielded(phone),
        "metadata": dict(pair(text, "--meta") for text in metadata) if metadata else None,
        "proxy": proxy_of(proxy),
        "file": file,
        "session_id": session_id,
    }
    wanted |= {name: value for name, value in optional.items() if value is not None}
    made = context.accounts.document(_api().make_session, body=wanted)
    context.say(made, f"Session {made['session_id']} is registered.")
    if made["state"] == StateName.NEW:
        context.note(f"Sign it in: peik sessions sign-in {made['session_id']}")


@asks(app, "set", has_archive=True, has_keys=True)
def change(
    context: CommandContext,
    session: SessionId,
    phone: Annotated[str | None, typer.Option(metavar="NUMBER", help="Its phone number.")] = None,
    metadata: Annotated[list[str] | None, typer.Option("--meta", metavar="NAME=VALUE", help=_METADATA)] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="NAME", help="Without this in it.")] = None,
    proxy: ProxyFrom = None,
    no_proxy: Annotated[bool, typer.Option("--no-proxy", help="Connect straight.")] = False,
    keep: Annotated[list[str] | None, typer.Option(metavar="CHAT=WHAT", help=_KEEP)] = None,
) -> None:
    """Change an account's phone, metadata, proxy, or what is archived. A proxy is used from the next connect on."""
    if proxy is not None and no_proxy:
        raise typer.BadParameter("Say --proxy or --no-proxy; not both.")
    wanted: Document = {}
    if phone is not None:
        wanted["phone"] = unshielded(phone)
    merged: Document = {**dict(pair(text, "--meta") for text in metadata or []), **dict.fromkeys(unset or [])}
    if merged:
        wanted["metadata"] = merged
    if proxy is not None or no_proxy:
        wanted["proxy"] = proxy_of(proxy)
    if keep:
        wanted["keep"] = {
            chat: None if what == "default" else what for chat, what in (pair(text, "--keep") for text in keep)
        }
    if not wanted:
        raise typer.BadParameter("Say what is to change: --phone, --meta, --unset, --proxy, --no-proxy or --keep.")
    context.say(_change(context, session, wanted), f"Session {session} is changed.")


def _change(context: CommandContext, session: str, body: Document) -> Document:
    return context.accounts.document(_api().change_session, session_id=session, body=body)


@asks(app, has_archive=True, has_keys=True)
def deactivate(context: CommandContext, session: SessionId) -> None:
    """Keep an account, and do not run it any more."""
    context.say(_change(context, session, {"is_active": False}), f"Session {session} is deactivated.")


@asks(app, has_archive=True, has_keys=True)
def activate(context: CommandContext, session: SessionId) -> None:
    """Let a deactivated account run again."""
    context.say(_change(context, session, {"is_active": True}), f"Session {session} is active.")


@asks(app, has_archive=True, has_keys=True)
def delete(context: CommandContext, session: SessionId, yes: Yes = False) -> None:
    """Forget an account and its key. What it saw stays in the archive; Telegram is not told (that is `log-out`)."""
    _session(context, session)
    context.confirm(f"Forget session {session} and its key?", is_sure=yes)
    context.accounts.document(_api().remove_session, session_id=session)
    context.say({"session_id": session, "removed": True}, f"Session {session} is forgotten.")


@asks(app, has_archive=True, has_keys=True)
def cleanup(
    context: CommandContext,
    days: Annotated[float, typer.Option(min=0, help="Unused for so many days.")] = OLD_DAYS,
    yes: Yes = False,
) -> None:
    """Forget accounts that are revoked, failed or deactivated, and that nobody used for a while."""
    context.confirm(f"Forget accounts that are over and unused for {days:g} days?", is_sure=yes)
    answer = context.accounts.document(_api().clean_up, body={"days": days}, timeout_s=None)
    context.say(answer, f"{counted(answer['removed'], 'session')} forgotten.")


@asks(app, has_archive=True, has_keys=True)
def export(
    context: CommandContext,
    session: SessionId,
    plain: Annotated[bool, typer.Option("--plain", help="As Telethon has it, sealed by nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Write the key of a paused account as one line, sealed with a passphrase that is asked for."""
    if plain:
        context.confirm(f"Write the key of session {session} without a seal?", is_sure=yes)
    body: Document = {"plain": True} if plain else {"passphrase": hidden("Passphrase (12 characters or more)")}
    answer = context.accounts.document(_api().export_session, session_id=session, body=body)
    context.say(answer, str(answer["string"]))
    context.note("Do not start the account here while it runs elsewhere: Telegram ends a key that is in two places.")


@asks(app, "import-string", may_create=True, has_archive=True, has_keys=True)
def import_string(
    context: CommandContext,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Whose account it is.")],
    check: Annotated[bool, typer.Option("--check", help="Ask Telegram about it first.")] = False,
) -> None:
    """Take in an account by its session string, which is asked for: of Telethon 1, or as `export` wrote it."""
    string = hidden("Session string")
    body: Document = {"agent_id": agent, "string": string, "check": check}
    if string.startswith("peik1."):
        body["passphrase"] = hidden("Passphrase")
    made = context.accounts.document(_api().import_session, body=body)
    context.say(made, f"Session {made['session_id']} is registered.")
    _note_nobody(context)


@asks(app, has_archive=True, has_keys=True)
def reseal(context: CommandContext) -> None:
    """Seal every account's key with the first key of PEIK_SECRET_KEY, after it was changed."""
    with context.waiting("Sealing again"):
        answer = context.accounts.document(_api().reseal, timeout_s=None)
    lost = answer["lost"]
    assert isinstance(lost, list)
    words = f"{counted(answer['renewed'], 'session')} sealed again."
    context.say(
        answer, f"{words} No key of ours opens: {', '.join(lost)}. They have to sign in again." if lost else words
    )
    if lost:
        raise typer.Exit(Exit.PROBLEM)


# ---- running ----


@asks(app, has_archive=True, has_keys=True)
def start(context: CommandContext, session: SessionId) -> None:
    """Let a paused or failed account run again."""
    context.say(context.accounts.document(_api().start, session_id=session), f"Session {session} is to run.")
    _note_nobody(context)


@asks(app, has_archive=True, has_keys=True)
def stop(context: CommandContext, session: SessionId) -> None:
    """Pause an account: it is disconnected, and stays signed in."""
    stopped = context.accounts.document(_api().stop, session_id=session)
    context.say(stopped, f"Session {session} is {stopped['state']}.")


@asks(app, has_archive=True, has_keys=True)
def restart(context: CommandContext, session: SessionId) -> None:
    """Reconnect an account."""
    context.say(context.accounts.document(_api().restart, session_id=session), f"Session {session} reconnects.")


@asks(app, "log-out", has_archive=True, has_keys=True)
def log_out(context: CommandContext, session: SessionId, yes: Yes = False) -> None:
    """Sign an account out at Telegram: its key is worth nothing from then on."""
    context.confirm(f"Sign session {session} out at Telegram?", is_sure=yes)
    context.say(context.accounts.document(_api().log_out, session_id=session), f"Session {session} is signed out.")


def _note_nobody(context: CommandContext) -> None:
    if not context.accounts.is_running:
        context.note("A Peik on this archive sees that within moments; if none runs, start `peik serve`.")


# ---- contacts, and joining ----


@asks(app, has_archive=True)
def join(
    context: CommandContext,
    session: SessionId,
    link: Annotated[str, typer.Argument(metavar="LINK", help="https://t.me/+…, https://t.me/name or @name.")],
) -> None:
    """Let an account join a group or a channel. What is written there from then on is archived."""
    chat = context.accounts.document(_api().join, session_id=session, body={"link": link})
    context.say(chat, f"Session {session} is in {chat['title'] or 'the chat'} ({chat['chat_id']}).")


@asks(app, has_archive=True)
def contacts(
    context: CommandContext,
    session: SessionId,
    add: Annotated[
        list[str] | None, typer.Option(metavar="PHONE=NAME", help="Add this one instead; again for more.")
    ] = None,
) -> None:
    """List an account's contacts, or add people by their phones and see who of them has an account."""
    if add:
        wanted = [{"phone": phone, "first_name": name} for phone, name in (pair(text, "--add") for text in add)]
        answer = context.accounts.document(_api().add_contacts, session_id=session, body={"contacts": wanted})
    else:
        answer = context.accounts.document(_api().list_contacts, session_id=session)
    found = answer["contacts"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import table

        rows = [
            (one["user_id"], one["phone"], f"{one['first_name']} {one['last_name']}".strip(), one["username"])
            for one in found
        ]
        return table(("user", "phone", "name", "username"), rows, empty="Nobody.")

    context.show(answer, draw)
    if answer.get("later"):
        context.note(f"Telegram wants these to be given again another day: {', '.join(answer['later'])}.")  # type: ignore[arg-type]


# ---- members of chats ----


@asks(app, has_archive=True, has_keys=True)
def members(
    context: CommandContext,
    session: SessionId,
    chat: ChatId,
    watch: Annotated[
        str | None, typer.Option(metavar="TIME", help="Read them now, and so often from now on: 1d, 6h.")
    ] = None,
    is_stopped: Annotated[bool, typer.Option("--stop", help="Do not read them any more. What is known stays.")] = False,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="As they were then: 30d (ago), 2026-01-01.")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List who is in a group or channel, or was; or have that read every so often. Who came and left: peik events list."""
    chat = unshielded(chat)
    if watch is not None or is_stopped:
        if watch is None:
            context.accounts.document(_api().unwatch_members, session_id=session, chat_id=chat)
            context.say({"chat_id": chat, "watched": None}, f"The members of chat {chat} are not read any more.")
            return
        every_s = seconds(watch, "--watch")
        told = context.accounts.document(
            _api().watch_members, session_id=session, chat_id=chat, body={"every_s": every_s}
        )
        context.say(told, f"The members of chat {chat} are read now, and every {watch}.")
        return
    wanted = some(at=moment(at, "--at", is_past=True)) | page_of(cursor, limit)
    page = context.accounts.document(_api().list_members, session_id=session, chat_id=chat, query=wanted)
    found, watched = page["members"], page["watched"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import table, when

        rows = [
            (one["user_id"], one["role"], one["name"], one["username"], when(one["since"]), when(one["until"]))
            for one in found
        ]
        columns = ("user", "role", "name", "username", "since", "until")
        return table(columns, rows, right=("user",), empty="Nobody is known. To have them read: --watch 1d")

    context.show(page, draw)
    if isinstance(watched, dict) and watched["why"]:
        context.note(f"They cannot be read: {watched['why']}")
    elif isinstance(watched, dict) and watched["read_at"] and not watched["is_whole"]:
        context.note("Telegram does not show all of them: who left is not known.")
    if page["next"] is not None:
        context.note(f"There may be more: --cursor {page['next']}")


# ---- reading histories ----


@asks(app, has_archive=True, has_keys=True)
def crawl(
    context: CommandContext,
    session: SessionId,
    chat: ChatId,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Back to: 30d (ago), 2026-01-01. Else to the first message.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait until it is done.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how long it takes to read what is not read yet.")
    ] = False,
    is_stopped: Annotated[bool, typer.Option("--stop", help="Read no further. What was read stays.")] = False,
) -> None:
    """Read a chat's history into the archive, backwards, and show how far it is. Ctrl-C leaves it going on in Peik."""
    chat = unshielded(chat)
    if dry_run:
        told = context.accounts.document(_api().estimate_crawl, session_id=session, chat_id=chat)
        others = f", beside {counted(told['others'], 'other crawl')}" if told["others"] else ""
        context.say(
            told,
            f"At most {counted(told['messages'], 'message')}, {counted(told['requests'], 'request')}: "
            f"about {_long(float(str(told['seconds'])))}{others}.",
        )
        return
    if is_stopped:
        stopped = context.accounts.document(_api().stop_crawl, session_id=session, chat_id=chat)
        context.say(stopped, f"Chat {chat} is read no further.")
        return
    body = some(until=moment(until, "--until", is_past=True))
    state = context.accounts.document(_api().crawl, session_id=session, chat_id=chat, body=body)
    why_not = None if detach else _why_not_now(context, session)
    if why_not is not None:
        context.note(why_not)
    elif not detach:
        try:
            state = _crawled(context, session, chat, state)
        except KeyboardInterrupt:
            context.note("It goes on in Peik. Look at it with: peik sessions chats")
            raise typer.Exit(Exit.INTERRUPTED) from None
    context.say(state, _read_so_far(state))


def _why_not_now(context: CommandContext, session: str) -> str | None:
    if not context.accounts.is_running:
        return "It is noted, and goes on where the account runs. If no Peik runs, start `peik serve`."
    found = _session(context, session)
    if found["is_connected"]:
        return None
    return f"It is noted, and begins when session {session} is connected; now it is {found['state']}."


def _crawled(context: CommandContext, session: str, chat: str, state: Document) -> Document:
    with context.watching(_read_so_far(state)) as update:
        while _crawl(state)["state"] == "running":
            context.accounts.pause(LOOK_S)
            found = context.accounts.document(_api().list_chats, session_id=session)["chats"]
            assert isinstance(found, list)
            state = next((one for one in found if one["chat_id"] == chat), state)
            update(_read_so_far(state))
    return state


def _long(seconds: float) -> str:
    minutes = seconds / 60
    return (
        f"{minutes / 60:.1f} hours"
        if minutes >= 90
        else f"{minutes:.0f} minutes"
        if minutes >= 2
        else f"{seconds:.0f} s"
    )


def _crawl(state: Document) -> Document:
    found = state["crawl"]
    assert isinstance(found, dict)
    return found


def _read_so_far(state: Document) -> str:
    crawl = _crawl(state)
    how = {"whole": "all of it is here", "running": "going on", "stopped": "no further"}.get(str(crawl["state"]), "")
    progress = crawl["progress"]
    if isinstance(progress, float) and 0 < progress < 1:
        how = f"{how}, about {progress:.0%}"
    down = f", down to message {crawl['down_to']}" if crawl["down_to"] not in (None, "0") else ""
    return f"Chat {state['chat_id']}: {counted(crawl['crawled'], 'message')} read{down}; {how}."


register_sign_in(app)
register_import(app)
