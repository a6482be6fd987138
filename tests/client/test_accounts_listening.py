"""Listening to what accounts see: in order, nothing lost, and told again only what was not confirmed."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from peik import Denied, FeedLine, LineKind, Peik, Unavailable
from peik.clock import SystemClock
from peik.testing.accounts import Accounts, Chat, Person
from tests.client.account_ways import both, counted, opened, play, signed_in, some
from tests.patience import PATIENCE_S
from tests.telegram.peers import peer
from tests.web.accounts import KEY, House, house

ALI, SARA, REZA = "+998900000001", "+998900000002", "+998900000003"


async def staged(peik: Peik, telegram: Accounts) -> tuple[Person, Person, Chat]:
    ali = telegram.register(ALI, first_name="Ali")
    sara = telegram.register(SARA, first_name="Sara")
    chat = telegram.private(ali, sara)
    await signed_in(peik, telegram, ali, "s1")
    return ali, sara, chat


def texts(lines: list[FeedLine]) -> list[str]:
    return [line.message.text for line in lines if line.message is not None]


@both
def test_all_kinds_come_in_order_with_the_numbers_of_their_session(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        _, sara, chat = await staged(peik, telegram)
        lines = peik.listen(after={}, kinds=["message", "edited", "deleted", "event"])
        post = telegram.say(chat, sara, "frist")
        await counted(peik, 1)
        telegram.edit(chat, post, "first")
        telegram.happen(chat, "reaction", emoji="+")
        telegram.delete(chat, post)
        heard: list[FeedLine] = []
        async with contextlib.aclosing(lines):
            async for line in lines:
                heard.append(line)
                if line.kind is LineKind.DELETED:
                    break
        assert [line.number for line in heard] == list(range(1, len(heard) + 1))
        told = [line for line in heard if line.kind is not LineKind.EVENT or line.event.event_type == "reaction"]  # type: ignore[union-attr]
        assert [line.kind for line in told] == ["message", "edited", "event", "deleted"]
        new, edited, reaction, deleted = told
        assert texts(told) == ["frist", "first"]
        assert reaction.event is not None
        assert reaction.event.payload == {"emoji": "+"}
        assert {(one.session_id, one.agent_id) for one in heard} == {("s1", "a")}
        assert (new.chat_id, new.message_id) == (sara.user_id, edited.message_id)
        assert (deleted.chat_id, deleted.message_id, deleted.message) == (None, new.message_id, None)
        # Behind a number, as a program kept it.
        async with contextlib.aclosing(peik.listen("s1", after=new.number)) as again:
            assert await some(again, len(heard) - new.number) == heard[new.number :]
        async with contextlib.aclosing(peik.listen(after={"s1": edited.number}, kinds="deleted")) as again:
            assert await some(again, 1) == [deleted]

    play(way, tmp_path, story)


@both
def test_a_line_is_confirmed_when_the_next_is_asked_for(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        _, sara, chat = await staged(peik, telegram)
        for n in range(6):
            telegram.say(chat, sara, f"n{n}")
        await counted(peik, 6)

        async def handle(until: str) -> list[str]:
            """Until it crashes over this one."""
            seen: list[str] = []
            with contextlib.suppress(ZeroDivisionError):
                async with contextlib.aclosing(peik.listen(kinds=["message"], reader="crm")) as lines:
                    async for line in lines:
                        seen += texts([line])
                        if seen[-1] == until:
                            raise ZeroDivisionError
            return seen

        assert await handle("n2") == ["n0", "n1", "n2"]
        assert await handle("n2") == ["n2"]
        assert await handle("n5") == ["n2", "n3", "n4", "n5"]
        async with contextlib.aclosing(peik.listen(kinds=["message"], reader="another")) as lines:
            assert texts(await some(lines, 6)) == [f"n{n}" for n in range(6)]
        assert await peik.forget_reader("crm")
        assert not await peik.forget_reader("crm")
        assert await handle("n0") == ["n0"]

    play(way, tmp_path, story)


@both
def test_several_sessions_agents_and_chats_are_heard_apart_and_together(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        ali, sara, chat = await staged(peik, telegram)
        reza = telegram.register(REZA, first_name="Reza")
        await signed_in(peik, telegram, reza, "s2", agent_id="b")
        other = telegram.private(reza, sara)
        group = telegram.group("All", ali, sara, reza)
        for n in range(40):
            telegram.say(chat, sara, f"to ali {n}")
            telegram.say(other, sara, f"to reza {n}")
        telegram.say(group, sara, "to all")
        await counted(peik, 82)
        alone = [f"to ali {n}" for n in range(40)]
        kinds = [LineKind.MESSAGE]
        async with contextlib.aclosing(peik.listen(agent_id="b", kinds=kinds, after={})) as lines:
            assert texts(await some(lines, 41)) == [*(f"to reza {n}" for n in range(40)), "to all"]
        async with contextlib.aclosing(
            peik.listen(chat_id=sara.user_id, session_id="s1", kinds=kinds, after=0)
        ) as lines:
            assert texts(await some(lines, 40)) == alone
        # Both, and the reader's places are kept for each.
        async with contextlib.aclosing(peik.listen(kinds=kinds, reader="r")) as lines:
            first = await some(lines, 50)
        async with contextlib.aclosing(peik.listen(kinds=kinds, reader="r")) as lines:
            rest = await some(lines, 33)
        assert rest[0] == first[-1]
        heard = [*first, *rest[1:]]
        assert texts([one for one in heard if one.session_id == "s1"]) == [*alone, "to all"]
        assert sorted(texts(heard)) == sorted([*alone, *(f"to reza {n}" for n in range(40)), "to all", "to all"])

    play(way, tmp_path, story)


@both
def test_what_comes_while_nobody_asks_is_heard_and_the_end_of_peik_ends_it(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        _, sara, chat = await staged(peik, telegram)
        lines = peik.listen(kinds=["message"])
        hearing = asyncio.ensure_future(anext(lines))
        n = 0
        while not hearing.done():  # from now on: whenever that is, all that comes after the first is heard
            telegram.say(chat, sara, f"n{n}")
            n += 1
            await asyncio.wait([hearing], timeout=0.1)
        first = texts([await hearing])[0]
        begun = int(first[1:])
        for later in range(n, n + 5):
            telegram.say(chat, sara, f"n{later}")
        await counted(peik, n + 5)
        heard = texts(await some(lines, n + 4 - begun))
        assert heard == [f"n{each}" for each in range(begun + 1, n + 5)]
        waiting = asyncio.ensure_future(anext(lines, None))
        await asyncio.sleep(0)
        await peik.close()
        assert await waiting is None
        assert await anext(lines, None) is None

    play(way, tmp_path, story)


_OTHER = """
import asyncio, contextlib, sys
from peik import Peik

async def main(store, archive):
    async with Peik.open(store, archive=archive) as peik:
        async with contextlib.aclosing(peik.listen(kinds=["message"], reader="other")) as lines:
            async for line in lines:
                print(line.message.text, await peik.count_messages(), len(await peik.get_all_active_sessions()), flush=True)
                if line.message.text == "last":
                    return

asyncio.run(main(*sys.argv[1:]))
"""


def test_another_process_on_the_same_files_asks_and_listens(tmp_path: Path) -> None:
    async def main() -> None:
        telegram = Accounts(SystemClock(), seed=1)
        archive = f"sqlite:///{tmp_path}/archive.db"
        async with asyncio.timeout(PATIENCE_S), opened(tmp_path, telegram, archive=archive) as owner:
            _, sara, chat = await staged(owner, telegram)
            telegram.say(chat, sara, "first")
            other = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _OTHER, f"sqlite:///{tmp_path}/peik.db", archive, stdout=asyncio.subprocess.PIPE
            )
            assert other.stdout is not None
            assert await other.stdout.readline() == b"first 1 1\n"
            telegram.say(chat, sara, "last")
            assert await other.stdout.readline() == b"last 2 1\n"
            assert await other.wait() == 0

    asyncio.run(main())


# ---- over REST only: breaks ----


class Relay:
    """Stands between the library and Peik, and can be cut or closed."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_down = False
        self.passed = 0  # connections
        self.began = asyncio.Event()  # a stream's first words came by

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            writer.transport.abort()
            return
        self.passed += 1
        host, _, port = self.target.removeprefix("http://").partition(":")
        there_reader, there = await asyncio.open_connection(host, int(port))
        self._writers |= {writer, there}
        try:
            await asyncio.gather(self._pipe(reader, there), self._pipe(there_reader, writer))
        finally:
            self._writers -= {writer, there}

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
                if b"retry:" in data:
                    self.began.set()
        writer.close()


@contextlib.asynccontextmanager
async def relayed(folder: Path) -> AsyncIterator[tuple[House, Relay, str]]:
    async with asyncio.timeout(PATIENCE_S), house(folder) as built, standing(Relay(built.url)) as (relay, url):
        yield built, relay, url


@contextlib.asynccontextmanager
async def standing(relay: Relay) -> AsyncIterator[tuple[Relay, str]]:
    async with await asyncio.start_server(relay.handle, "127.0.0.1", 0) as server:
        yield relay, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        relay.cut()


@pytest.mark.parametrize("reader", [None, "crm"])
def test_a_stream_that_is_cut_again_and_again_loses_and_repeats_nothing(tmp_path: Path, reader: str | None) -> None:
    async def main() -> None:
        async with relayed(tmp_path) as (built, relay, url), Peik.connect(url, key=KEY) as peik:
            _, sara, chat = await staged(peik, built.telegram)
            lines = peik.listen(kinds=["message"], reader=reader, after={} if reader is None else None)
            heard: list[str] = []
            for round_ in range(4):
                for n in range(30):
                    built.telegram.say(chat, sara, f"{round_} {n}")
                # Some of it before the cut, and the rest behind it.
                heard += texts(await some(lines, 20))
                relay.is_down = True
                relay.cut()
                following = asyncio.ensure_future(anext(lines))
                await asyncio.sleep(0)
                relay.is_down = False
                heard += texts([await following, *await some(lines, 9)])
            assert heard == [f"{round_} {n}" for round_ in range(4) for n in range(30)]
            assert relay.passed > 4
            await lines.aclose()

    asyncio.run(main())


def test_a_break_before_the_first_line_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with relayed(tmp_path) as (built, relay, url), Peik.connect(url, key=KEY) as peik:
            _, sara, chat = await staged(peik, built.telegram)
            built.telegram.say(chat, sara, "before")
            async with contextlib.aclosing(peik.listen(kinds=["message"], after={})) as told:
                assert texts([await anext(told)]) == ["before"]
            relay.began.clear()
            lines = peik.listen(kinds=["message"])
            hearing = asyncio.ensure_future(anext(lines))
            await relay.began.wait()
            for _ in range(100):  # turns of the loop that all of this shares
                await asyncio.sleep(
                    0.001
                )  # for the way from the relay; too early, and it would say that it cannot begin
            relay.is_down = True
            relay.cut()
            built.telegram.say(chat, sara, "while it was away")
            async with Peik.connect(built.url, key=KEY) as straight:
                await counted(straight, 2)
            relay.is_down = False
            assert texts([await hearing]) == ["while it was away"]
            await lines.aclose()

    asyncio.run(main())


@pytest.mark.gate  # two lives of a process
def test_the_next_peik_on_the_same_files_is_heard_as_the_last_one_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), standing(Relay()) as (relay, url), Peik.connect(url, key=KEY) as peik:
            lines = peik.listen(kinds=["message"], reader="crm")
            heard: list[FeedLine] = []
            following: asyncio.Future[FeedLine] | None = None
            for name in ("s1", "s2", "s3"):
                async with house(tmp_path) as built:
                    relay.target, relay.is_down = built.url, False
                    ali, sara = built.telegram.register(ALI), built.telegram.register(SARA)
                    built.telegram.say(built.telegram.private(ali, sara), sara, "before it was there")
                    async with Peik.connect(built.url, key=KEY) as straight:
                        for old in await straight.get_all_active_sessions():  # this Telegram knows nothing of them
                            await straight.deactivate_session(old)
                        await signed_in(straight, built.telegram, ali, name)
                    for n in range(3):
                        built.telegram.say(built.telegram.private(ali, sara), sara, f"{name} {n}")
                    heard += [await following] if following is not None else []
                    heard += await some(lines, 3 if following is None else 2)
                    following = asyncio.ensure_future(anext(lines))  # confirms the last one
                    async with Peik.connect(built.url, key=KEY) as straight:
                        await counted(straight, 3, session_id=name)
                    relay.is_down = True
                relay.cut()
            assert following is not None
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert [(line.session_id, line.message.text) for line in heard if line.message is not None] == [
                (name, f"{name} {n}") for name in ("s1", "s2", "s3") for n in range(3)
            ]

    asyncio.run(main())


def test_a_listener_that_cannot_begin_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with Peik.connect("http://127.0.0.1:9", key=KEY) as peik:
            for lines in (peik.listen(), peik.listen(reader="r")):
                with pytest.raises(Unavailable) as raised:
                    await anext(lines)
                assert raised.value.code == "unreachable"
        async with house(tmp_path) as built, Peik.connect(built.url, key="wrong") as peik:
            with pytest.raises(Denied):
                await anext(peik.listen())

    asyncio.run(main())


def test_a_stream_of_something_else_is_not_listened_to_for_ever(tmp_path: Path) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nretry: 1\nid: s1:1\n\nevent: message\ndata: hello\n\n")
        await reader.read()

    async def main() -> None:
        async with peer(other) as url, Peik.connect(url, key=KEY) as peik:
            lines = peik.listen()
            with pytest.raises(Unavailable) as raised:
                await anext(lines)
            assert raised.value.code == "not_peik"

    asyncio.run(main())
