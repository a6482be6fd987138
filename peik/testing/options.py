"""Every figure of the simulated Telegram that may be changed, also while it runs: Telegram moves its limits too.

See docs/telegram.md, Flood limits.
"""

from typing import Literal

import msgspec

from peik.core.problem import BadInput

MIB = 1 << 20


class Limits(msgspec.Struct, kw_only=True):
    """How fast a bot may send before it is answered 429."""

    on: bool = True
    bot_per_s: float = 30.0  # bulk only: a reply to a person who has just been active is not counted
    bot_burst: int = 30
    paid_per_s: float = 1000.0  # with allow_paid_broadcast
    chat_per_s: float = 1.0  # in a private chat
    chat_burst: int = 5
    group_per_min: int = 20  # groups, supergroups and channels; edits count too
    reply_window_s: float = 60.0
    flood_s_min: int = 1  # the least retry_after
    flood_lengthens_s: float = 0.0  # added by each send that comes during a flood wait


class Options(msgspec.Struct, kw_only=True):
    """How strict, how large and how patient the simulated Telegram is."""

    mode: Literal["cloud", "local"] = "cloud"  # sizes, webhook rules, the answer to a malformed token
    accept_any_token: bool = True  # a well-formed token becomes a bot at its first use
    accept_any_chat: bool = True  # an unknown chat id becomes a willing person or group at its first use
    limits: Limits = msgspec.field(default_factory=Limits)

    anti_busy_loop: bool = True  # the 3 s and 0.5 s rules of getUpdates (docs/telegram.md, Polling)
    poll_batch_s: float = 0.001  # a parked poll is woken 1-2 ms after the first update
    verify_webhooks: bool = False  # a TCP connect before setWebhook is answered
    webhook_timeout_s: float = 60.0

    callback_s: float = 30.0  # how long an answer to a button press is taken (docs/telegram.md, Answers in time)
    inline_s: float = 20.0
    checkout_s: float = 10.0

    ledger_max: int | None = None  # None keeps every delivery
    messages_max: int = 200_000  # in all chats together; older ones can be neither edited nor replied to
    files_bytes_max: int = 256 * MIB  # per bot; the contents of older files are forgotten

    def change(self, patch: dict[str, object]) -> None:
        """Set some options, nested `limits` too. Raises BadInput for a wrong name or type, and then nothing has changed."""
        whole = msgspec.to_builtins(self)
        limits = patch.get("limits")
        unknown = set(patch) - set(whole)
        if isinstance(limits, dict):
            unknown |= {f"limits.{name}" for name in set(limits) - set(whole["limits"])}
            patch = {**patch, "limits": {**whole["limits"], **limits}}
        if unknown:
            raise BadInput(code="unknown_option", detail=f"There is no option {', '.join(sorted(unknown))}.")
        try:
            fresh = msgspec.convert({**whole, **patch}, Options)
        except msgspec.ValidationError as error:
            raise BadInput(code="wrong_option", detail=str(error)) from error
        for name in whole:
            setattr(self, name, getattr(fresh, name))

    @property
    def upload_bytes_max(self) -> int:
        return 50_000_000 if self.mode == "cloud" else 2_000_000_000

    @property
    def download_bytes_max(self) -> int | None:
        return 20 * MIB if self.mode == "cloud" else None
