"""How jobs begin in the PostgreSQL store: in turns, within the terms of their kind, whoever asks."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec

from peik.core.job import Job
from peik.core.letter import RANKS, State
from peik.job_ports import KindTerms
from peik.store.postgres.commit import Batch
from peik.store.postgres.job_lines import Ledger
from peik.store.postgres.job_reading import filled_with_job, job_of
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session

_SQL = load("jobs.sql")
BEGIN = filled_with_job(_SQL["begin"])
DUE_MAX = 10_000  # that join their lines in one step: a bound on how long the others of their kind wait


class Line(msgspec.Struct):
    rank: int
    user: str
    waiting: int


async def is_worth_it(session: Session, kind: str, terms: KindTerms, at_ms: int) -> bool:
    """Whether there may be something to take. Asked without a lock: who comes a moment later rings."""
    bound = {"kind": kind, "at": at_ms, "concurrency": terms.concurrency}
    return bool(await session.number(_SQL["is_worth_taking"], **bound))


async def take(
    batch: Batch, kind: str, terms: KindTerms, *, node: str, limit: int, lease_ms: int, at_ms: int
) -> list[Job]:
    session, ledger = batch.session, Ledger(batch.session)
    await _join_due(session, ledger, kind, at_ms)
    running = {row[0]: row[1] for row in await session.rows(_SQL["running"], kind=kind)}
    room = min(limit, terms.concurrency - sum(running.values()))
    if room <= 0 or terms.per_user <= 0:
        return []
    lines, is_cut = await _lines(session, kind, terms, running, room)
    turns = take_turns(lines, running, per_user=terms.per_user, room=room, is_cut=is_cut)
    if not turns:
        return []
    ids = await _heads(session, kind, turns)
    for turn, ticket in zip(turns, await ledger.numbers(len(turns)), strict=True):
        ledger.leave((kind, *turn), ticket=ticket)
    rows = await session.returned(BEGIN, jobs=ids, node=node, lease_ms=lease_ms, at=at_ms)
    begun = {row[0]: job_of(row) for row in rows}
    ledger.move(kind, State.WAITING, State.ACTIVE, len(begun))
    await ledger.write()
    return [begun[job_id] for job_id in ids]


async def _join_due(session: Session, ledger: Ledger, kind: str, at_ms: int) -> None:
    due = await session.rows(_SQL["due"], kind=kind, at=at_ms, most=DUE_MAX)
    if not due:
        return
    places = await ledger.numbers(len(due))
    await session.run(_SQL["join_due"], jobs=[row[0] for row in due], places=places)
    for (_, rank, user), place in zip(due, places, strict=True):
        ledger.join((kind, rank, user), place)
    ledger.move(kind, State.DELAYED, State.WAITING, len(due))
    await ledger.write()


async def _lines(
    session: Session, kind: str, terms: KindTerms, running: Mapping[str, int], room: int
) -> tuple[list[Line], bool]:
    """The lines that may go now, and whether there are more of them. So many are enough: each that is looked at goes, or
    its user has got full by another of its lines, of which there is one for each rank."""
    full = [user for user, count in running.items() if count >= terms.per_user]
    most = room * RANKS
    rows = await session.rows(_SQL["lines"], kind=kind, full=full, most=most)
    return [Line(*row) for row in rows], len(rows) == most


def take_turns(
    lines: Sequence[Line], running: Mapping[str, int], *, per_user: int, room: int, is_cut: bool
) -> list[tuple[int, str]]:
    """Which lines (rank, user) begin a job, one after the other. `lines` are in order. If they were cut off, nobody of the
    last rank goes twice: those behind the cut would go before."""
    counts = Counter(running)
    turns: list[tuple[int, str]] = []
    for rank, group in groupby(lines, key=lambda line: line.rank):
        waiting = deque((line.user, line.waiting) for line in group)
        may_repeat = not (is_cut and rank == lines[-1].rank)
        while waiting and len(turns) < room:
            user, left = waiting.popleft()
            if counts[user] >= per_user:
                continue
            counts[user] += 1
            turns.append((rank, user))
            if left > 1 and may_repeat:
                waiting.append((user, left - 1))
    return turns


async def _heads(session: Session, kind: str, turns: Sequence[tuple[int, str]]) -> list[int]:
    """The jobs that begin, in the order of the turns. A line that holds fewer than it says (somebody deleted rows) loses its
    turn, and so is put right."""
    wanted = Counter(turns)
    ranks, users = zip(*wanted, strict=True)
    found: dict[tuple[int, str], deque[int]] = {turn: deque() for turn in wanted}
    for rank, user, job_id in await session.rows(
        _SQL["heads"], kind=kind, ranks=ranks, users=users, counts=list(wanted.values())
    ):
        found[rank, user].append(job_id)
    return [found[turn].popleft() for turn in turns if found[turn]]
