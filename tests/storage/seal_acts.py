"""What the stories about sealed secrets share: a store with one of each kind, and the ways in which Peik reads them."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from peik.admin.model import Key
from peik.core.token import Token
from peik.outbox.store import BotRecord
from peik.secrets.seals import Seals, place_of_bot
from peik.secrets.service import OWED
from tests.storage.acts import NOW
from tests.storage.places import BOT, OTHER_BOT

OLD, NEW = (base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))
TOKEN, OTHER_TOKEN = "7:the-token-of-seven", "8:the-token-of-eight"
KEY = Key(
    id=0,
    name="shop",
    digest=b"\x07" * 32,
    scopes=("send",),
    bot_ids=None,
    created_at_ms=NOW,
    webhook_url="https://a.b/c",
)
SECRETS = {
    "bot:7": TOKEN,
    "bot:8": OTHER_TOKEN,
    f"key:{'07' * 32}": "whsec_of-the-shop",
    "consumer:7@default": "pushed-to-the-bot",
    "secret:webhook": "whsec_own",
    "secret:webhook:7": "set-at-telegram",
}


@asynccontextmanager
async def opened(place: Any, seals: Seals) -> AsyncIterator[Any]:
    """A store with these seals, and with nothing in it that was not there."""
    place.seals = seals
    store = place.make(is_owner=True)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def fill(store: Any) -> None:
    """Everything that is secret, once."""
    await store.save_bot(BotRecord(bot_id=BOT, token=Token(TOKEN)))
    await store.save_bot(BotRecord(bot_id=OTHER_BOT, token=Token(OTHER_TOKEN)))
    await store.add_key(KEY, webhook_secret="whsec_of-the-shop")
    await store.inbox.open_inbox(BOT, server="here", at_ms=NOW)
    consumer = await store.inbox.ensure_consumer(BOT, "default", at_ms=NOW)
    await store.inbox.save_consumer(
        msgspec.structs.replace(consumer, secret="pushed-to-the-bot", url="https://bot.example")
    )
    assert await store.secret("webhook", "whsec_own") == "whsec_own"
    assert await store.secret("webhook:7", "set-at-telegram") == "set-at-telegram"


async def read(store: Any) -> dict[str, str]:
    """All secrets as Peik reads them, by the ways that it takes."""
    bots = {place_of_bot(bot.bot_id): bot.token.reveal() for bot in await store.bots()}
    (consumer,) = await store.inbox.consumers(BOT)
    assert consumer == await store.inbox.ensure_consumer(BOT, "default", at_ms=NOW)
    own = {f"secret:{name}": await store.secret(name, "another") for name in ("webhook", "webhook:7")}
    return {**bots, "consumer:7@default": consumer.secret, **own}


async def texts(store: Any) -> dict[str, str]:
    return {one.place: one.text for one in await store.sealed.kept() if one.place != OWED}


KEPT_AS_READ = {place: text for place, text in SECRETS.items() if not place.startswith("key:")}
