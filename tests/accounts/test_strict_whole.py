"""A whole Peik on the strict server, over real sockets: each archive, a move between two, readers with a name, proxies, and
session files that exist already."""

import asyncio
import contextlib
import gc
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from telethon.crypto import AuthKey
from telethon.sessions import SQLiteSession

from peik import Peik
from peik.archive.move import move
from peik.client.local import LocalTransport
from tests.accounts.mtproto_server import HOME, LoopbackTelegram
from tests.accounts.tl_server import CODE, ME, PASSWORD, PHONE, SARA, TEAM
from tests.archive.places import PLACES, Place, opened
from tests.client.account_ways import connected, counted, some
from tests.patience import PATIENCE_S
from tests.telegram.proxies import HttpProxy, LittleProxy, SocksProxy
from tests.web.accounts import NOWHERE, until

places = pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__.removesuffix("Place").lower())


class Scene:
    """Telegram, and a folder with everything that Peik keeps, but for the archive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.telegram = LoopbackTelegram()
        self.telegram.has_password = True
        self.telegram.tells_channels = True

    @contextlib.asynccontextmanager
    async def peik(self, archive: str, **settings: str) -> AsyncIterator[Peik]:
        key = self.folder / "server.pem"
        key.write_text(self.telegram.public_key, encoding="ascii")
        told: dict[str, str | None] = {
            "store": f"sqlite:///{self.folder}/peik.db",
            "archive": archive,
            "api_root": NOWHERE,
            "inbound": "off",
            "grace": "1s",
            "telegram_api_id": "1",
            "telegram_api_hash": "h",
            "secret_key": "a secret of these tests",
            "sessions_server": f"mtproto://127.0.0.1:{self.telegram.ports[2]}?dc=2&key={key}",
            **settings,
        }
        async with Peik(LocalTransport(told)) as peik:
            yield peik

    async def sign_in(self, peik: Peik, *, proxy: str | None = None) -> None:
        await peik.create_session("a", phone=PHONE, session_id="s1", proxy=proxy)
        await peik.send_code("s1")
        await peik.give_code("s1", CODE)
        await peik.give_password("s1", PASSWORD)
        await connected(peik, "s1")


def address_of(place: Any) -> str:
    return str(place.url) if hasattr(place, "url") else f"sqlite:///{place.path}"


def play(folder: Path, story: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        scene = Scene(folder)
        async with asyncio.timeout(PATIENCE_S), scene.telegram.running():
            await story(scene)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Telethon leaves connections behind that it has given up
        asyncio.run(main())
        gc.collect()


async def texts(peik: Peik) -> list[str]:
    return sorted([one.text async for one in peik.find_messages(session_id="s1")])


@places
def test_an_account_is_archived_heard_sends_and_moves_to_another_archive(tmp_path: Path, kind: type[Place]) -> None:
    place, other = kind(tmp_path), PLACES[(PLACES.index(kind) + 1) % len(PLACES)]
    (tmp_path / "other").mkdir()
    elsewhere = other(tmp_path / "other")

    async def story(scene: Scene) -> None:
        telegram = scene.telegram
        async with scene.peik(address_of(place)) as peik:
            await scene.sign_in(peik)
            heard = peik.listen(reader="crm")
            telegram.private("one")
            telegram.post(TEAM, "two")
            assert sorted(line.message.text for line in await some(heard, 2) if line.message) == ["one", "two"]
            letter = await peik.send_text(SARA, "from Peik", bot_id=ME)
            receipt = await peik.wait(letter.id, timeout=PATIENCE_S)
            assert receipt.state == "completed"
            await counted(peik, 3, session_id="s1")
        telegram.private("while it was away")
        async with scene.peik(address_of(place)) as peik:
            await connected(peik, "s1")
            await counted(peik, 4, session_id="s1")
            # The last line that was heard is heard again: nobody asked for the one behind it.
            again = [line.message.text for line in await some(peik.listen(reader="crm"), 3) if line.message]
            assert again[-2:] == ["from Peik", "while it was away"]
        async with opened(place) as origin, opened(elsewhere) as target:
            await move(origin, target, name="here")
        telegram.private("after the move")
        async with scene.peik(address_of(elsewhere)) as peik:
            await connected(peik, "s1")
            await counted(peik, 5, session_id="s1")
            assert await texts(peik) == ["after the move", "from Peik", "one", "two", "while it was away"]
            numbers = [line.number for line in await some(peik.listen(reader="crm"), 2)]
            assert numbers == [4, 5], "the reader's place moved with it"
        assert [one.message for one in telegram._in(_peer())].count("from Peik") == 1

    play(tmp_path, story)


def _peer() -> Any:
    from telethon import types

    return types.PeerUser(SARA)


@pytest.mark.gate
@pytest.mark.parametrize("kind", [SocksProxy, HttpProxy])
def test_an_account_goes_by_its_proxy_and_waits_for_it(tmp_path: Path, kind: type[LittleProxy]) -> None:
    async def story(scene: Scene) -> None:
        proxy = kind(login=("ali", "secret"))
        await proxy.revive()
        scheme = "socks5" if kind is SocksProxy else "http"
        async with scene.peik(f"sqlite:///{tmp_path}/archive.db") as peik:
            await scene.sign_in(peik, proxy=f"{scheme}://ali:secret@127.0.0.1:{proxy.port}")
            assert {host for host, _ in proxy.asked} == {"127.0.0.1"}
            assert len(proxy.asked) >= scene.telegram.opened, "nothing went past it"
            await proxy.kill()
            await connected(peik, "s1", is_connected=False)
            scene.telegram.private("while the proxy was away")
            await proxy.revive()
            await connected(peik, "s1")
            await counted(peik, 1, session_id="s1")
            assert len(proxy.asked) >= scene.telegram.opened
        await proxy.kill()

    play(tmp_path, story)


@pytest.mark.parametrize("keeps_files", [False, True])
def test_files_of_before_are_checked_taken_in_and_run(tmp_path: Path, keeps_files: bool) -> None:
    (tmp_path / "old").mkdir()

    async def story(scene: Scene) -> None:
        telegram = scene.telegram
        for name, key in (("good", b"g" * 256), ("foreign", b"f" * 256), ("ended", b"e" * 256)):
            session = SQLiteSession(str(tmp_path / "old" / name))
            session.set_dc(HOME, "127.0.0.1", telegram.ports[HOME])
            session.auth_key = AuthKey(key)
            session.save()
            session.close()
            if name != "foreign":
                telegram.keys[HOME][AuthKey(key).key_id] = key
        telegram.signed_in.add(b"g" * 256)
        telegram.ended[b"e" * 256] = "SESSION_REVOKED"
        settings = {"sessions_dir": str(tmp_path / "kept")}
        async with scene.peik(f"sqlite:///{tmp_path}/archive.db", **settings) as peik:
            found = {
                one.file: one
                async for one in peik.import_sessions(
                    tmp_path / "old", agent_id="a", check=True, keep_files=keeps_files
                )
            }
            assert {name: one.verdict for name, one in found.items()} == {
                "good.session": "imported",
                "foreign.session": "signed_out",
                "ended.session": "signed_out",
            }
            session_id = found["good.session"].session_id
            assert session_id is not None
            taken = await connected(peik, session_id)
            assert (taken.user_id, taken.phone, taken.runs_from) == (ME, PHONE, "file" if keeps_files else "key")
            telegram.private("seen by an account that was taken in")
            await counted(peik, 1, session_id=session_id)
        telegram.private("while it was away")
        async with scene.peik(f"sqlite:///{tmp_path}/archive.db", **settings) as peik:
            await counted(peik, 2, session_id=session_id)
            telegram.end_keys("USER_DEACTIVATED_BAN")
            for line in list(telegram.lines):
                line.close()

            async def is_over() -> bool:
                return (await peik.get_session_by_id(session_id)).state == "revoked"  # type: ignore[union-attr]

            await until(is_over)

    play(tmp_path, story)
