"""The examples about accounts in docs/library.md, run one after the other as they stand, on a simulated Telegram."""

import asyncio
import re
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from peik import ArchivedMessage, Peik
from peik.clock import SystemClock
from peik.testing.accounts import Accounts
from tests.client.account_ways import connected, counted, opened, signed_in
from tests.patience import PATIENCE_S
from tests.web.accounts import KEY, NOWHERE, house

PAGE = Path(__file__).parents[2] / "docs" / "library.md"
SIGN_IN, READ, LISTEN = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
ALI, SARA = "+998900000001", "+998900000002"


def runnable(example: str, names: dict[str, Any]) -> Callable[[], Coroutine[Any, Any, None]]:
    exec(compile("async def example():\n" + textwrap.indent(example, "    "), str(PAGE), "exec"), names)
    run: Callable[[], Coroutine[Any, Any, None]] = names["example"]
    return run


def test_an_account_signs_in_and_what_it_saw_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PEIK_API_ROOT", NOWHERE)
    monkeypatch.setenv("PEIK_GRACE", "1s")

    async def main() -> None:
        telegram = Accounts(SystemClock(), seed=1)
        monkeypatch.setattr("peik.accounts.wiring._telethon", lambda config, clock: telegram.clients)
        ali, sara = telegram.register(ALI, password="open sesame"), telegram.register(SARA)
        chat = telegram.private(ali, sara)

        async def ask(question: str) -> str:
            return "open sesame" if "password" in question else telegram.code_of(ALI)

        names = {"API_ID": 5, "API_HASH": "h", "PHONE": ALI, "ask": ask, "user_id": sara.user_id}
        await runnable(SIGN_IN, dict(names))()
        async with opened(tmp_path, telegram) as peik:
            (session,) = await peik.get_sessions_by_agent("agent-17")
            await connected(peik, session.session_id)
            post = telegram.say(chat, sara, "the invioce")
            telegram.edit(chat, post, "the invoice")
            telegram.happen(chat, "reaction", emoji="+")
            await counted(peik, 1, text="invoice")
        await runnable(READ, dict(names))()

    asyncio.run(main())
    told = capsys.readouterr().out
    assert "active" in told
    assert "the invioce" in told
    assert "the invoice" in told


def test_what_is_heard_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), house(tmp_path) as built, Peik.connect(built.url, key=KEY) as peik:
            ali, sara = built.telegram.register(ALI), built.telegram.register(SARA)
            chat = built.telegram.private(ali, sara)
            await signed_in(peik, built.telegram, ali, "s1", agent_id="agent-17")
            gone: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
            kept: list[str] = []

            async def keep(message: ArchivedMessage) -> None:
                kept.append(message.text)

            async def mark_deleted(session_id: str, message_id: int) -> None:
                gone.set_result((session_id, message_id))

            post = built.telegram.say(chat, sara, "for a moment")
            await counted(peik, 1)
            built.telegram.delete(chat, post)
            names = {"URL": built.url, "KEY": KEY, "keep": keep, "mark_deleted": mark_deleted}
            listening = asyncio.ensure_future(runnable(LISTEN, names)())
            await asyncio.wait([gone, listening], return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                await listening
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            assert (await gone)[0] == "s1"
            assert kept == ["for a moment"]

    asyncio.run(main())
