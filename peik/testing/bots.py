"""One bot as Telegram keeps it: its token, its queue, its way of receiving, and its recent past."""

import random

import msgspec

from peik.testing.answer import Pending, encode
from peik.testing.chats import Chat, User
from peik.testing.deliveries import Deliveries
from peik.testing.files import FileShelf
from peik.testing.limits import BotPace
from peik.testing.options import Options
from peik.testing.updates import DEFAULT_TYPES, UpdateQueue


class Poller(msgspec.Struct, kw_only=True):
    """What getUpdates remembers from call to call (docs/telegram.md, Polling)."""

    offset: int = 0
    started_at: float = float("-inf")
    parked: Pending | None = None
    next_conflict_at: float = float("-inf")  # the first 409 in 3 s is immediate, the following are held back


class Webhook(msgspec.Struct, kw_only=True):
    """A webhook as it was set, and how it fares."""

    url: str
    secret_token: str = ""
    ip_address: str = ""
    connections_max: int = 40
    has_certificate: bool = False
    deliveries: Deliveries
    error_at: float | None = None
    error: str = ""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the bot that must be answered soon: a press, an inline query, a checkout.

    See docs/telegram.md, Answers in time.
    """

    kind: str
    asked_at: float
    chat_id: int | None


class Bot:
    """Plain state; the rules are with the methods."""

    def __init__(self, *, token_text: str, user: User, now: float, chance: random.Random, options: Options) -> None:
        self.id = user.id
        self.token_text = token_text
        self.user = user
        self.face = msgspec.Raw(encode(user.as_json()))  # it is in every message the bot sends
        self.started_at = now
        self.logged_out_until = float("-inf")
        self.dialogs: dict[int, Chat] = {}  # private chats, by the person's id
        self.pace = BotPace()
        self.queue = UpdateQueue(chance, jumps=options.mode == "cloud")
        self.allowed = DEFAULT_TYPES  # shared by getUpdates and setWebhook, kept from call to call
        self.poller = Poller()
        self.webhook: Webhook | None = None
        self.webhook_set_at = float("-inf")
        self.webhook_check: Pending | None = None  # a setWebhook whose connection is being tried
        self.files = FileShelf(user.id, bytes_max=options.files_bytes_max)
        self.queries: dict[str, Query] = {}
        self.settings: dict[str, object] = {}  # what set… has set and get… gives back

    def __repr__(self) -> str:
        return f"Bot({self.id})"
