"""Real nodes on a server's store: those with the key share its bots, and no other starts."""

import base64
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.errors import StartError
from peik.secrets.seals import is_sealed
from peik.settings.config import load
from peik.testing import Telegram
from peik.testing.virtual import SimCarrier
from tests.outbox.story import BOT, TOKEN, call
from tests.storage.shared_places import SHARED, SharedPlace

ONE, TWO = (base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))


@pytest.fixture(params=SHARED, ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    return request.param(tmp_path)


@asynccontextmanager
async def node(place: SharedPlace, folder: Path, telegram: Telegram, **settings: str) -> AsyncIterator[Runtime]:
    flags = {"store": place.url, "home": str(folder), "bot_tokens": TOKEN, "inbound": "off", "grace": "1s", **settings}
    config = load(flags, environment={}, folder=folder)
    async with running(config, carrier=SimCarrier(telegram)) as runtime:
        yield runtime


async def texts(runtime: Runtime) -> list[str]:
    return [one.text for one in await runtime.store.sealed.kept()]


def simulated() -> Telegram:
    telegram = Telegram(now=time.time, chance=random.Random(7))
    telegram.bot(TOKEN)
    return telegram


async def sent(runtime: Runtime, telegram: Telegram, text: str) -> None:
    (accepted,) = await runtime.outbox.service.accept([call(params={"chat_id": 5, "text": text})])
    assert (await runtime.outbox.service.wait(accepted.letter_id, 60)).state == "completed"
    assert telegram.sent.texts(5)[-1] == text


async def test_nodes_with_the_key_share_a_sealed_store_and_others_do_not_start(
    place: SharedPlace, tmp_path: Path
) -> None:
    telegram = simulated()
    async with node(place, tmp_path, telegram, secret_key=ONE) as first:
        assert all(map(is_sealed, await texts(first)))
        async with node(place, tmp_path, telegram, secret_key=f"{TWO},{ONE}") as second:
            assert second.outbox.service.bot(BOT).token.reveal() == TOKEN
            await sent(second, telegram, "accepted by one, sent by either")
        before = await texts(first)
        for settings, words in (({}, "is not set"), ({"secret_key": TWO}, "another key")):
            with pytest.raises(StartError, match=words):
                async with node(place, tmp_path, telegram, **settings):
                    raise AssertionError("it started")
        assert await texts(first) == before
        await sent(first, telegram, "goes on")


async def test_a_node_without_the_key_goes_on_until_it_is_restarted_with_it(place: SharedPlace, tmp_path: Path) -> None:
    telegram = simulated()
    async with node(place, tmp_path, telegram) as first, node(place, tmp_path, telegram, secret_key=ONE) as second:
        assert second.secrets.is_waiting
        await second.outbox.service.change_bot(BOT, paused=None)
        assert not any(map(is_sealed, await texts(second)))
        await sent(first, telegram, "by the one without")
    async with node(place, tmp_path, telegram, secret_key=ONE) as third:
        assert all(map(is_sealed, await texts(third)))
        await sent(third, telegram, "by the one with")
