"""One push of one update to a webhook: where it goes and what it carries."""

import base64
from urllib.parse import unquote, urlsplit

import msgspec

from peik.testing.bots import Webhook
from peik.testing.updates import Event


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """To be POSTed once; then `Telegram.push_done` wants to know."""

    bot_id: int
    webhook: Webhook
    event: Event

    @property
    def url(self) -> str:
        return self.webhook.url

    @property
    def body(self) -> bytes:
        return self.event.body

    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"}
        if self.webhook.secret_token:
            headers["X-Telegram-Bot-Api-Secret-Token"] = self.webhook.secret_token
        parts = urlsplit(self.webhook.url)
        if parts.username:
            # Credentials in the URL are sent as HTTP Basic auth (docs/telegram.md, Setting a webhook).
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return headers
