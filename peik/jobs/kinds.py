"""What kinds of jobs there are in this process, and how each is to be run."""

import enum
import re
from collections.abc import Callable
from typing import Any

import msgspec

from peik.core.letter import Backoff
from peik.core.problem import BadInput
from peik.job_ports import KindTerms, Quota

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Where(enum.StrEnum):
    """In what the work is done."""

    LOOP = "loop"  # an async function, beside everything else
    THREAD = "thread"  # a blocking function; it cannot be killed, only asked and given up
    PROCESS = "process"  # a blocking function in a process of its own, killed for real with all that it started


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    work: Callable[..., Any]  # takes a Job; see peik.jobs.job
    where: Where = Where.LOOP
    terms: KindTerms
    attempts: int = 3
    backoff_ms: int = 5000
    backoff: Backoff = Backoff.EXPONENTIAL
    timeout_s: float | None = None  # of one run
    folder_bytes: int = 0  # what a job of this kind may keep in its folder; 0: as much as the settings allow
    quota: Quota = Quota()


class Kinds:
    """Those that this process can do. Others may be queued here, and are done elsewhere."""

    def __init__(self) -> None:
        self._known: dict[str, Kind] = {}

    def add(self, kind: Kind) -> None:
        if not _NAME.fullmatch(kind.name):
            raise BadInput(code="bad_kind", detail="A kind of jobs is named by 1 to 64 letters, digits and . _ - only.")
        if kind.name in self._known:
            raise BadInput(code="known_kind", detail=f"There is a kind {kind.name} already.")
        self._known[kind.name] = kind

    def get(self, name: str) -> Kind | None:
        return self._known.get(name)

    def all(self) -> list[Kind]:
        return list(self._known.values())
