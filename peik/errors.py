"""What can be raised across Peik, drawn as a tree. A leaf is here because somebody catches it differently.

Problem                     a caller can fix it; has a stable code, a status and a sentence
├── BadInput                422: the request cannot be right
├── NotFound                404: no such letter, bot or chat
├── Conflict                409: right by itself, not in this state
├── Denied                  401: no key, or not a key of ours
│   └── Forbidden           403: a key of ours that does not reach so far
├── TooLarge                413
├── Refused                 a letter that somebody waited for has failed (the library's own: peik.client.calls)
└── Unavailable             503: Peik cannot promise durability now; nothing was accepted. Ask again later
    ├── TooMany             429: too often, by a key or from an address; nothing was done, and it says when to come back
    └── StoreUnavailable    the store said no: locked, read-only, full, gone
        └── InDoubt         a server's answer was lost: what was asked for may be stored, or may not

StartError                  Peik cannot start; the sentence says what to do. For people at a terminal.
"""

import copyreg
import math
from typing import Any

__all__ = [
    "BadInput",
    "Conflict",
    "Denied",
    "Forbidden",
    "InDoubt",
    "NotFound",
    "Problem",
    "StartError",
    "StoreUnavailable",
    "TooLarge",
    "TooMany",
    "Unavailable",
    "described",
    "to_install",
]


class Problem(Exception):
    """Something a caller can mend. `code` is stable and for programs; `detail` says what to do next, for people. `field` is
    that of a form in which it can be mended, if it is known where it is raised."""

    status = 400

    def __init__(self, *, code: str, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle, which would call the class with the bare sentence: task queues carry errors between processes."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class BadInput(Problem):
    """The request itself cannot be right, whatever the state of Peik."""

    status = 422


class NotFound(Problem):
    status = 404


class Conflict(Problem):
    status = 409


class Denied(Problem):
    status = 401


class Forbidden(Denied):
    status = 403


class TooLarge(Problem):
    status = 413


class Unavailable(Problem):
    status = 503
    retry_after_s = 2


class TooMany(Unavailable):
    status = 429

    def __init__(self, *, code: str, detail: str, wait_s: float) -> None:
        super().__init__(code=code, detail=detail)
        self.retry_after_s = max(1, math.ceil(wait_s))


class StoreUnavailable(Unavailable):
    pass


class InDoubt(StoreUnavailable):
    pass


class StartError(Exception):
    """Peik cannot start as it was told to."""


def described(error: BaseException) -> str:
    """What somebody met who did not foresee it, in one line."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(described(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# What pip is given: "." while Peik is installed from a checkout, "peik" as soon as it is on an index. Pages follow it, too.
INSTALL_FROM = "."


def to_install(extra: str) -> str:
    """The line that adds what is missing; docs/install.md says what each extra brings."""
    return f"pip install '{INSTALL_FROM}[{extra}]'" + (" in a checkout of Peik" if INSTALL_FROM == "." else "")
