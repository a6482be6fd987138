"""`peik sessions …`: the accounts that Peik signs in as. Signing in and taking in files are in files of their own."""

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from peik.doors.commands import sessions_import, sessions_sign_in
from peik.doors.commands.counter import Document
from peik.doors.commands.exits import Exit
from peik.doors.commands.filters import Cursor, Limit, Yes
from peik.doors.commands.many import counted
from peik.doors.commands.sessions_words import SessionId, proxy_of, shown_session
from peik.doors.commands.visit import Visit, asks
from peik.doors.commands.words import moment, pair, unshielded

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    no_args_is_help=True, help="Accounts that Peik signs in as: register, sign in, run, read their chats."
)

OLD_DAYS = 30.0
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
    visit: Visit,
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
    asked = {
        "agent_id": agent,
        "state": ",".join(state) if state else None,
        "active": None if active is None else str(active).lower(),
        "phone": None if phone is None else unshielded(phone),
    }
    wanted = {name: value for name, value in asked.items() if value is not None}
    page = visit.accounts.sessions(wanted, cursor=cursor, limit=limit)
    found = page["sessions"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.doors.commands.printing import age, state, table

        rows = [
            (
                one["session_id"],
                one["agent_id"],
                one["phone"],
                f"@{one['username']}" if one["username"] else one["user_id"],
                state(one["state"]),
                "yes" if one["is_connected"] else "",
                age(one["active_at"]),
                one["state_reason"] if one["is_active"] else "deactivated",
            )
            for one in found
        ]
        columns = ("session", "agent", "phone", "account", "state", "connected", "active", "why")
        return table(columns, rows, empty="No account yet: peik sessions create --agent NAME")

    visit.show(page, draw)
    if page["next"] is not None:
        visit.note(f"There may be more: --cursor {page['next']}")


@asks(app, has_archive=True)
def show(visit: Visit, session: SessionId) -> None:
    """Show an account: how it stands, and why."""
    found = visit.accounts.session(session)
    visit.show(found, lambda: shown_session(found))


@asks(app, has_archive=True)
def chats(visit: Visit, session: SessionId) -> None:
    """List the chats that something is known of, and how far their histories were read."""
    page = visit.accounts.chats(session)
    found = page["chats"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.doors.commands.printing import age, table

        rows = [
            (
                one["chat_id"],
                one["newest_id"],
                one["crawl"]["state"],
                one["crawl"]["crawled"],
                one["crawl"]["down_to"],
                age(one["updated_at"]),
                one["title"],
            )
            for one in found
        ]
        columns = ("chat", "newest", "crawl", "read", "down to", "seen", "title")
        return table(columns, rows, right=("chat", "newest", "read", "down to"), empty="Nothing is known of any chat.")

    visit.show(page, draw)


# ---- registering ----


@asks(app, may_create=True, has_archive=True, has_keys=True)
def create(
    visit: Visit,
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
    made = visit.accounts.create(wanted)
    visit.say(made, f"Session {made['session_id']} is registered.")
    if made["state"] == StateName.NEW:
        visit.note(f"Sign it in: peik sessions sign-in {made['session_id']}")


@asks(app, "set", has_archive=True, has_keys=True)
def change(
    visit: Visit,
    session: SessionId,
    phone: Annotated[str | None, typer.Option(metavar="NUMBER", help="Its phone number.")] = None,
    metadata: Annotated[list[str] | None, typer.Option("--meta", metavar="NAME=VALUE", help=_METADATA)] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="NAME", help="Without this in it.")] = None,
    proxy: ProxyFrom = None,
    no_proxy: Annotated[bool, typer.Option("--no-proxy", help="Connect straight.")] = False,
) -> None:
    """Change an account's phone, metadata or proxy. A proxy is used from the next connect on."""
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
    if not wanted:
        raise typer.BadParameter("Say what is to change: --phone, --meta, --unset, --proxy or --no-proxy.")
    visit.say(visit.accounts.change(session, wanted), f"Session {session} is changed.")


@asks(app, has_archive=True, has_keys=True)
def deactivate(visit: Visit, session: SessionId) -> None:
    """Keep an account, and do not run it any more."""
    visit.say(visit.accounts.change(session, {"is_active": False}), f"Session {session} is deactivated.")


@asks(app, has_archive=True, has_keys=True)
def activate(visit: Visit, session: SessionId) -> None:
    """Let a deactivated account run again."""
    visit.say(visit.accounts.change(session, {"is_active": True}), f"Session {session} is active.")


@asks(app, has_archive=True, has_keys=True)
def delete(visit: Visit, session: SessionId, yes: Yes = False) -> None:
    """Forget an account and its key. What it saw stays in the archive; Telegram is not told (that is `log-out`)."""
    visit.accounts.session(session)
    visit.confirm(f"Forget session {session} and its key?", is_sure=yes)
    visit.accounts.delete(session)
    visit.say({"session_id": session, "removed": True}, f"Session {session} is forgotten.")


@asks(app, has_archive=True, has_keys=True)
def cleanup(
    visit: Visit,
    days: Annotated[float, typer.Option(min=0, help="Unused for so many days.")] = OLD_DAYS,
    yes: Yes = False,
) -> None:
    """Forget accounts that are revoked, failed or deactivated, and that nobody used for a while."""
    visit.confirm(f"Forget accounts that are over and unused for {days:g} days?", is_sure=yes)
    answer = visit.accounts.cleanup(days)
    visit.say(answer, f"{counted(answer['removed'], 'session')} forgotten.")


@asks(app, has_archive=True, has_keys=True)
def reseal(visit: Visit) -> None:
    """Seal every account's key with the first key of PEIK_SECRET_KEY, after it was changed."""
    with visit.waiting("Sealing anew"):
        answer = visit.accounts.reseal()
    lost = answer["lost"]
    assert isinstance(lost, list)
    words = f"{counted(answer['renewed'], 'session')} sealed anew."
    visit.say(
        answer, f"{words} No key of ours opens: {', '.join(lost)}. They have to sign in again." if lost else words
    )
    if lost:
        raise typer.Exit(Exit.PROBLEM)


# ---- running ----


@asks(app, has_archive=True, has_keys=True)
def start(visit: Visit, session: SessionId) -> None:
    """Let a paused or failed account run again."""
    visit.say(visit.accounts.act(session, "start"), f"Session {session} is to run.")
    _note_nobody(visit)


@asks(app, has_archive=True, has_keys=True)
def stop(visit: Visit, session: SessionId) -> None:
    """Pause an account: it is disconnected, and stays signed in."""
    visit.say(visit.accounts.act(session, "stop"), f"Session {session} is paused.")


@asks(app, has_archive=True, has_keys=True)
def restart(visit: Visit, session: SessionId) -> None:
    """Connect an account anew."""
    visit.say(visit.accounts.act(session, "restart"), f"Session {session} connects anew.")


@asks(app, "log-out", has_archive=True, has_keys=True)
def log_out(visit: Visit, session: SessionId, yes: Yes = False) -> None:
    """Sign an account out at Telegram: its key is worth nothing from then on."""
    visit.confirm(f"Sign session {session} out at Telegram?", is_sure=yes)
    visit.say(visit.accounts.act(session, "log-out"), f"Session {session} is signed out.")


def _note_nobody(visit: Visit) -> None:
    if not visit.accounts.is_running:
        visit.note("A Peik on this archive sees that within moments; if none runs, start `peik serve`.")


# ---- reading histories ----


@asks(app, has_archive=True, has_keys=True)
def crawl(
    visit: Visit,
    session: SessionId,
    chat: ChatId,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Back to: 30d (ago), 2026-01-01. Else to the first message.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait until it is done.")] = False,
    is_stopped: Annotated[bool, typer.Option("--stop", help="Read no further. What was read stays.")] = False,
) -> None:
    """Read a chat's history into the archive, backwards, and show how far it is. Ctrl-C leaves it going on in Peik."""
    chat = unshielded(chat)
    if is_stopped:
        visit.say(visit.accounts.stop_crawl(session, chat), f"Chat {chat} is read no further.")
        return
    state = visit.accounts.crawl(session, chat, moment(until, "--until", is_past=True))
    why_not = None if detach else _why_not_now(visit, session)
    if why_not is not None:
        visit.note(why_not)
    elif not detach:
        try:
            state = _crawled(visit, session, chat, state)
        except KeyboardInterrupt:
            visit.note("It goes on in Peik. Look at it with: peik sessions chats")
            raise typer.Exit(Exit.INTERRUPTED) from None
    visit.say(state, _read_so_far(state))


def _why_not_now(visit: Visit, session: str) -> str | None:
    if not visit.accounts.is_running:
        return "It is noted, and goes on where the account runs. If no Peik runs, start `peik serve`."
    found = visit.accounts.session(session)
    if found["is_connected"]:
        return None
    return f"It is noted, and begins when session {session} is connected; now it is {found['state']}."


def _crawled(visit: Visit, session: str, chat: str, state: Document) -> Document:
    with visit.watching(_read_so_far(state)) as update:
        while _crawl(state)["state"] == "running":
            visit.accounts.pause()
            found = visit.accounts.chats(session)["chats"]
            assert isinstance(found, list)
            state = next((one for one in found if one["chat_id"] == chat), state)
            update(_read_so_far(state))
    return state


def _crawl(state: Document) -> Document:
    found = state["crawl"]
    assert isinstance(found, dict)
    return found


def _read_so_far(state: Document) -> str:
    crawl = _crawl(state)
    how = {"whole": "all of it is here", "running": "going on", "stopped": "no further"}.get(str(crawl["state"]), "")
    down = f", down to message {crawl['down_to']}" if crawl["down_to"] not in (None, "0") else ""
    return f"Chat {state['chat_id']}: {counted(crawl['crawled'], 'message')} read{down}; {how}."


sessions_sign_in.register(app)
sessions_import.register(app)
