"""Which pages `bench.pages` asks for: each of the dashboard's table, with each filter, and some way down its lists."""

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import msgspec

from bench.board import BOTS, REASONS
from bench.town import DRAFT, SENT
from peik.app.dashboard import Dashboard
from peik.app.lifetime import running
from peik.core.letter import State
from peik.settings.config import load

# Pages of accounts need accounts, and what they show is in the archive, which bench/archive.py measures.
_OF_ACCOUNTS = (
    "/admin/sessions/{",
    "/admin/archive/messages/{",
    "/admin/archive/export",
    "/admin/archive/events/export",
)
_NEXT = re.compile(r"cursor=([^\"&]+)")
_NOWHERE = "no such words"
_HOUR_S = 3_600


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    path: str
    status: int = 200
    is_stream: bool = False


async def all_asked(session: aiohttp.ClientSession, url: str, letters: int) -> list[Asked]:
    """What is asked for. Some of it is found on other pages: the newest arrival, the next page of a list."""
    ids = {
        name: await _first(session, f"{url}{path}", rf'href="{path}/([0-9]+)')
        for name, path in (("arrival", "/admin/arrivals"), ("job", "/admin/jobs"))
    }
    deep = {
        path: await _deep(session, url, path)
        for path in ("/admin/arrivals", "/admin/chats", "/admin/chats/shut", "/admin/audit")
    }
    return [
        *_rest(),
        *_overview(),
        *_letters(letters),
        *_arrivals(ids["arrival"], deep["/admin/arrivals"]),
        *_chats(deep),
        *_others(ids["job"], deep["/admin/audit"]),
    ]


async def unasked(pages: Sequence[Asked]) -> list[str]:
    """Paths of the dashboard's own table that are not among them."""
    with tempfile.TemporaryDirectory() as folder:
        config = load({"store": f"sqlite:///{folder}/peik.db"}, environment={}, folder=Path(folder))
        async with running(config) as peik:
            table = [path for verb, path, *_ in Dashboard(peik, "key", _nobody).pages if verb == "GET"]
    asked = [one.path.partition("?")[0] for one in pages]
    return [
        path
        for path in table
        if not path.startswith(_OF_ACCOUNTS)
        and not any(re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", path), one) for one in asked)
    ]


async def _nobody(*_: object) -> None:
    raise AssertionError("nobody asks this one")


async def _first(session: aiohttp.ClientSession, url: str, pattern: str) -> int:
    async with session.get(url) as answer:
        found = re.search(pattern, await answer.text())
    if found is None:
        raise RuntimeError(f"there is no {pattern} on {url}")
    return int(found[1])


async def _deep(session: aiohttp.ClientSession, url: str, path: str) -> str:
    """The cursor of the tenth page."""
    cursor = ""
    for _ in range(10):
        async with session.get(f"{url}{path}" + (f"?cursor={cursor}" if cursor else "")) as answer:
            found = _NEXT.search(await answer.text())
        if found is None:
            break
        cursor = found[1]
    return cursor


def _rest() -> Iterator[Asked]:
    yield Asked(name="GET /v1/overview", path="/v1/overview")
    yield Asked(name="GET /metrics", path="/metrics")


def _overview() -> Iterator[Asked]:
    yield _page("overview", "/admin")
    yield _page("overview, of a day", "/admin", span="day")
    yield Asked(name="queues", path="/admin/queues", status=303)
    yield Asked(name="live, until it begins", path="/admin/live", is_stream=True)


def _letters(letters: int) -> Iterator[Asked]:
    path = "/admin/letters"
    filters: dict[str, dict[str, object]] = {
        "everything": {},
        **{f"state={state}": {"state": state} for state in State},
        "bot": {"bot_id": BOTS[1]},
        "waiting, bot": {"state": "waiting", "bot_id": BOTS[1]},
        "chat": {"chat_id": 17},
        "chat nowhere": {"chat_id": 987_654_321},
        "waiting, chat": {"state": "waiting", "chat_id": 17},
        "completed, chat": {"state": "completed", "chat_id": 17},
        "method, common": {"method": "sendPhoto"},
        "method nowhere": {"method": "sendDice"},
        "waiting, method nowhere": {"state": "waiting", "method": "sendDice"},
        "user": {"user_id": "u17"},
        "user nowhere": {"user_id": "nobody"},
        "message_type nowhere": {"message_type": "none"},
        "error of some": {"error": "blocked"},
        "error of none": {"error": _NOWHERE},
        "dead, error of some": {"state": "failed", "error": "blocked"},
        "dead, error of none": {"state": "failed", "error": _NOWHERE},
        "dead, cause": {"state": "failed", "cause": REASONS[1]},
        "text, common": {"text": "letter"},
        "text nowhere": {"text": _NOWHERE},
        "waiting, text nowhere": {"state": "waiting", "text": _NOWHERE},
        "completed, text nowhere": {"state": "completed", "text": _NOWHERE},
        "since an hour ago": {"since": _ago(_HOUR_S)},
        "until half way back": {"until": _ago(letters * 0.05)},
        "completed, until half way back": {"state": "completed", "until": _ago(letters * 0.05)},
        "everything, deep": {"cursor": letters // 2},
        "completed, deep": {"state": "completed", "cursor": letters // 4},
        "waiting, below the newest": {"state": "waiting", "cursor": letters * 9 // 10},
        "failed, deep": {"state": "failed", "cursor": letters // 10},
    }
    for name, fields in filters.items():
        yield _page(f"letters: {name}", path, **fields)
    yield _page("letters: new", f"{path}/new")
    for act, fields in (
        ("cancel", {}),
        ("cancel", {"bot_id": BOTS[1]}),
        ("cancel", {"text": _NOWHERE}),
        ("retry", {"error": "blocked"}),
        ("clear", {}),
        ("clear", {"text": _NOWHERE}),
    ):
        of = "everything" if not fields else next(iter(fields))
        yield _page(f"letters: {act} all, {of}", f"{path}/bulk", act=act, **fields)
    yield _page("letter, waiting", f"{path}/{letters - 5}")
    yield _page("letter, ended", f"{path}/{letters // 2}")
    yield _page("dead letters", "/admin/dead")
    yield _page("dead letters, bot", "/admin/dead", bot_id=BOTS[1])
    yield _page("lanes", "/admin/lanes")
    yield _page("lanes, bot", "/admin/lanes", bot_id=BOTS[1])
    yield _page("lanes, chat", "/admin/lanes", bot_id=BOTS[1], chat_id=17)


def _arrivals(newest: int, deep: str) -> Iterator[Asked]:
    path = "/admin/arrivals"
    filters: dict[str, dict[str, object]] = {
        "everything": {},
        "bot": {"bot_id": BOTS[1]},
        "consumer": {"consumer": "default"},
        **{f"state={state}": {"state": state} for state in ("waiting", "delayed", "completed", "failed")},
        "completed, bot": {"state": "completed", "bot_id": BOTS[0]},
        "type, common": {"type": "callback_query"},
        "type nowhere": {"type": "poll"},
        "type nowhere, bot": {"type": "poll", "bot_id": BOTS[0]},
        "chat": {"chat_id": 17},
        "chat nowhere": {"chat_id": 987_654_321},
        "user": {"user_id": 17},
        "user nowhere": {"user_id": 987_654_321},
        "waiting, user nowhere": {"state": "waiting", "user_id": 987_654_321},
        "since an hour ago": {"since": _ago(_HOUR_S)},
        "until an hour ago": {"until": _ago(_HOUR_S)},
        "since a day ago, text nowhere": {"since": _ago(24 * _HOUR_S), "text": _NOWHERE},
        "text, common": {"text": "hello"},
        "text nowhere": {"text": _NOWHERE},
        "everything, the tenth page": {"cursor": deep},
        "everything, deep": {"cursor": newest // 2},
        "completed, deep": {"state": "completed", "cursor": newest // 4},
        "user nowhere, deep": {"user_id": 987_654_321, "cursor": newest // 2},
    }
    for name, fields in filters.items():
        yield _page(f"arrivals: {name}", path, **fields)
    yield _page("arrivals: replay everything", f"{path}/replay", bot_id=BOTS[0])
    yield _page("arrivals: replay, text nowhere", f"{path}/replay", bot_id=BOTS[0], text=_NOWHERE)
    yield _page("arrivals: replay, type", f"{path}/replay", bot_id=BOTS[0], type="callback_query")
    yield _page("arrival", f"{path}/{newest}")
    yield _page("dead arrivals", "/admin/dead/arrivals")


def _chats(deep: dict[str, str]) -> Iterator[Asked]:
    path = "/admin/chats"
    filters: dict[str, dict[str, object]] = {
        "everybody": {},
        "bot": {"bot_id": BOTS[1]},
        "type, common": {"type": "private"},
        "type, rare": {"type": "supergroup"},
        "type nowhere": {"type": "channel"},
        "language": {"language": "fa"},
        "language nowhere": {"language": "xx"},
        "reachable": {"reach": "reachable"},
        "gone": {"reach": "gone"},
        "campaign": {"campaign": "spring_5"},
        "campaign nowhere": {"campaign": "winter"},
        "text, common": {"text": "person"},
        "text nowhere": {"text": _NOWHERE},
        "username": {"text": "@person_77"},
        "username nowhere": {"text": "@nobody"},
        "everybody, the tenth page": {"cursor": deep[path]},
    }
    for name, fields in filters.items():
        yield _page(f"chats: {name}", path, **fields)
    yield _page("chats that are shut", f"{path}/shut")
    yield _page("chats that are shut, the tenth page", f"{path}/shut", cursor=deep[f"{path}/shut"])
    yield _page("chat", f"{path}/{BOTS[0]}/17")
    yield _page("chat, shut", f"{path}/{BOTS[0]}/18")
    yield _page("chat, unknown", f"{path}/{BOTS[0]}/987654321")


def _others(job: int, deep_audit: str) -> Iterator[Asked]:
    one = f"/admin/broadcasts/{SENT}"
    yield _page("broadcasts", "/admin/broadcasts")
    yield _page("broadcasts: new", "/admin/broadcasts/new")
    yield _page("broadcast", one)
    yield _page("broadcast, deep", one, cursor=90_000)
    yield _page("broadcast, blocked", one, state="blocked")
    yield _page("broadcast, state nowhere", one, state="recalled")
    yield _page("broadcast, estimate", one, estimate=1)
    yield _page("broadcast of known chats, estimate", f"/admin/broadcasts/{DRAFT}", estimate=1)
    yield Asked(name="broadcast, ledger begins", path=f"{one}/ledger", is_stream=True)
    yield _page("notifications", "/admin/notifications")
    yield _page("notifications, user", "/admin/notifications", user_id="user-17")
    yield _page("notifications: users", "/admin/notifications/users")
    yield _page("notifications: users, deep", "/admin/notifications/users", cursor="user-4")
    yield _page("notifications: a user", "/admin/notifications/users", user_id="user-17")
    yield _page("notifications: templates", "/admin/notifications/templates")
    yield _page("notifications: a template", "/admin/notifications/templates/order.step7/fa")
    yield _page("jobs", "/admin/jobs")
    for state in ("waiting", "completed", "failed"):
        yield _page(f"jobs, {state}", "/admin/jobs", state=state)
    yield _page("jobs, kind", "/admin/jobs", kind="fetch")
    yield _page("jobs, user", "/admin/jobs", user="u17")
    yield _page("jobs, deep", "/admin/jobs", cursor=job // 2)
    yield _page("job", f"/admin/jobs/{job}")
    yield _page("jobs: hosts", "/admin/jobs/hosts")
    yield _page("dead jobs", "/admin/dead/jobs")
    yield _page("sessions", "/admin/sessions")
    for part in ("", "/events", "/logs"):
        yield _page(f"archive{part}", f"/admin/archive{part}")
    yield _page("bots", "/admin/bots")
    yield _page("bot", f"/admin/bots/{BOTS[0]}")
    yield _page("nodes", "/admin/nodes")
    yield _page("keys", "/admin/keys")
    yield _page("people", "/admin/people")
    yield _page("audit", "/admin/audit")
    yield _page("audit, who", "/admin/audit", who="person3")
    yield _page("audit, nobody", "/admin/audit", who="nobody")
    yield _page("audit, deep", "/admin/audit", cursor=deep_audit)
    yield _page("settings", "/admin/settings")


def _page(name: str, path: str, **fields: object) -> Asked:
    return Asked(name=name, path=f"{path}?{urlencode(fields)}" if fields else path)


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
