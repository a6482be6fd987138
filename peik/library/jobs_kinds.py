"""Kinds of jobs as a program declares them. What it leaves open the settings say, once Peik is opened."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from peik.core.letter import Backoff
from peik.core.units import parse_duration_s, parse_size_bytes
from peik.errors import BadInput
from peik.job_ports import KindTerms, Quota
from peik.jobs.desk import ATTEMPTS_MAX, BACKOFF_MS_MAX, TIMEOUT_S_MAX
from peik.jobs.kinds import Kind, Kinds, Where

if TYPE_CHECKING:
    from peik.config import Config

Work = Callable[..., Any]
_USUAL = KindTerms(concurrency=1, per_user=1)


class GivenKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind, and what it says of its terms."""

    kind: Kind
    concurrency: int | None
    per_user: int | None

    def settled(self, config: "Config") -> Kind:
        terms = KindTerms(
            concurrency=self.concurrency or config.jobs_at_once, per_user=self.per_user or config.jobs_per_user
        )
        return msgspec.structs.replace(self.kind, terms=terms)


def given_kind(
    name: str,
    work: Work,
    *,
    concurrency: int | None,
    per_user: int | None,
    timeout: float | str | None,
    attempts: int,
    backoff_ms: int,
    backoff: str,
    where: str | None,
    folder: int | str | None,
    jobs_a_day: int | None,
    bytes_a_day: int | str | None,
) -> GivenKind:
    """Raises BadInput for what cannot be."""
    timeout_s = _measured("timeout", timeout, parse_duration_s)
    folder_bytes = _measured("folder", folder, parse_size_bytes)
    day_bytes = _measured("bytes_a_day", bytes_a_day, parse_size_bytes)
    bounds: tuple[tuple[str, float | None, float, float], ...] = (
        ("concurrency", concurrency, 1, 1_000_000),
        ("per_user", per_user, 1, 1_000_000),
        ("attempts", attempts, 1, ATTEMPTS_MAX),
        ("backoff_ms", backoff_ms, 0, BACKOFF_MS_MAX),
        ("timeout", timeout_s, 0.001, TIMEOUT_S_MAX),
        ("folder", folder_bytes, 1, 2**60),
        ("jobs_a_day", jobs_a_day, 1, 2**53),
        ("bytes_a_day", day_bytes, 1, 2**60),
    )
    for what, value, least, most in bounds:
        if value is not None and not least <= value <= most:
            raise BadInput(code=f"bad_{what}", detail=f"{what} must be between {least:g} and {most:g}.")
    try:
        waits = Backoff(backoff)
    except ValueError:
        raise BadInput(code="bad_backoff", detail=f"backoff is one of {', '.join(Backoff)}.") from None
    kind = Kind(
        name=name,
        work=work,
        where=_where(work, where),
        terms=_USUAL,
        attempts=attempts,
        backoff_ms=backoff_ms,
        backoff=waits,
        timeout_s=timeout_s,
        folder_bytes=0 if folder_bytes is None else int(folder_bytes),
        quota=Quota(jobs=jobs_a_day, bytes=None if day_bytes is None else int(day_bytes)),
    )
    Kinds().add(kind)  # raises if it cannot be called so
    return GivenKind(kind=kind, concurrency=concurrency, per_user=per_user)


def _where(work: Work, given: str | None) -> Where:
    """An async function runs beside everything else. A plain one would stop everything else, so it says where it may."""
    if not callable(work):
        raise BadInput(code="bad_work", detail="A kind of jobs is a function: async def download(job).")
    call = getattr(work, "__call__", None)  # noqa: B004  an object may be one, too
    is_async = inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(call)
    if given is None and not is_async:
        raise BadInput(
            code="where",
            detail='A plain function says where it runs: where="process" (it can be killed) or where="thread". An async '
            "function runs here by itself.",
        )
    try:
        where = Where(given or Where.LOOP)
    except ValueError:
        raise BadInput(code="where", detail=f"where is one of {', '.join(Where)}.") from None
    if is_async != (where is Where.LOOP):
        raise BadInput(
            code="where", detail='An async function runs in the "loop", a plain one in a "thread" or a "process".'
        )
    if where is Where.PROCESS:
        from peik.jobs.children import check_work  # with all that processes need: who only asks need not load it

        check_work(work)
    return where


def _measured(name: str, given: float | str | None, parse: Callable[[str], float]) -> float | None:
    try:
        return parse(given) if isinstance(given, str) else given
    except ValueError as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name}: {error}.") from None
