"""The raw facts of one try: what came back, or how the network failed, and whether bytes had left. No judgement here."""

import enum

import msgspec


class Fault(enum.StrEnum):
    """How a try ended without an answer. The first group cannot have reached Telegram."""

    DNS = "dns"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    CONNECT_TIMEOUT = "connect_timeout"
    NOT_TRIED = "not_tried"  # closing, or no route is open
    SPOILED = "spoiled"  # the request itself cannot be made: a file of it is gone

    RESET = "reset"  # the peer closed or reset before a whole answer came
    TIMEOUT = "timeout"  # no answer within the try's time
    GARBLED = "garbled"  # what came back was not HTTP


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One try, as seen from our end of the wire.

    `status` is 0 when no whole answer came; then `fault` says why. `left` is False only if not one byte of the request
    can have reached the peer: that difference decides between "unsent" and "uncertain".
    """

    status: int = 0
    body: bytes = b""
    retry_after_s: int | None = None  # of the header; what Telegram asks for is in the body as well
    fault: Fault | None = None
    left: bool = True
    detail: str = ""
