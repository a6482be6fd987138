"""What proxies say of their clients: whose word counts, and what it changes in a request."""

from collections.abc import MutableMapping, Sequence
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_SAID = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})


class Proxies:
    """`trusted`: the addresses and networks that are believed."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._middleware = ProxyHeadersMiddleware(_nobody, list(trusted))

    def believe(self, scope: MutableMapping[str, Any]) -> None:
        """Put the client and the scheme into a request that a trusted proxy names. Twice is as good as once."""
        for name, _ in scope["headers"]:
            if name in _SAID:
                self._read(scope)
                return

    def _read(self, scope: MutableMapping[str, Any]) -> None:
        reading = self._middleware(scope, _never, _never)  # type: ignore[arg-type]
        try:
            reading.send(None)  # nothing in it waits, so that it needs no task: it is at its end at once
        except StopIteration:
            return
        raise AssertionError("reading headers has waited for something")


async def _nobody(scope: object, receive: object, send: object) -> None:
    """What stands behind comes later, and elsewhere."""


async def _never(*_: object) -> Any:
    raise AssertionError("reading headers needs no messages")
