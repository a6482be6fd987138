"""What proxies say of their clients: whose word counts, and what it changes in a request."""

from collections.abc import MutableMapping, Sequence
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_SAID = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})
_SAID_BYTES_MAX = 1_024  # of each, from its end: nearest to us stands what our own proxies wrote
_LINES_MAX = 20


class Proxies:
    """`trusted`: the addresses and networks that are believed."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._middleware = ProxyHeadersMiddleware(_nobody, list(trusted))

    def trusts(self, host: str) -> bool:
        return host in self._middleware.trusted_hosts

    def believe(self, scope: MutableMapping[str, Any]) -> None:
        """Put the client and the scheme into a request that a trusted proxy names. Twice is as good as once."""
        for name, _ in scope["headers"]:
            if name in _SAID:
                self._read(scope)
                return

    def _read(self, scope: MutableMapping[str, Any]) -> None:
        short = [(name, value[-_SAID_BYTES_MAX:]) for name, value in scope["headers"] if name in _SAID]
        said = {**scope, "headers": short[-_LINES_MAX:]}
        reading = self._middleware(said, _never, _never)  # type: ignore[arg-type]
        try:
            reading.send(None)  # nothing in it waits, so that it needs no task: it is at its end at once
        except StopIteration:
            scope["client"], scope["scheme"] = said["client"], said["scheme"]
            return
        raise AssertionError("reading headers has waited for something")


async def _nobody(scope: object, receive: object, send: object) -> None:
    """What stands behind comes later, and elsewhere."""


async def _never(*_: object) -> Any:
    raise AssertionError("reading headers needs no messages")
