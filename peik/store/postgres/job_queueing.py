"""New jobs in the PostgreSQL store: all of one question or none."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from peik.core.job import JobDraft
from peik.core.letter import State
from peik.job_ports import Queued, Quota
from peik.store import job_rules
from peik.store.postgres.commit import Batch
from peik.store.postgres.job_lines import Ledger
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session

_SQL = load("jobs.sql")

Key = tuple[str, str]  # kind, idempotency key


async def queue(batch: Batch, drafts: Sequence[JobDraft], quotas: Mapping[str, Quota], at_ms: int) -> list[Queued]:
    """Raises Conflict before it writes anything."""
    known = await _known(batch.session, drafts)
    new: list[JobDraft] = []
    places: dict[Key, int] = {}  # of new ones with a key, among the new
    found: list[Queued | int] = []  # for each draft the job that it was before, or its place among the new
    for draft in drafts:
        key = None if draft.key is None else (draft.kind, draft.key)
        if key is not None and key in known:
            digest, before = known[key]
            job_rules.check_same_job(draft, digest)
            found.append(before)
        elif key is not None and key in places:
            job_rules.check_same_job(draft, new[places[key]].digest)
            found.append(places[key])
        else:
            if key is not None:
                places[key] = len(new)
            found.append(len(new))
            new.append(draft)
    fresh: list[Queued] = []
    if new:
        await _check_quotas(batch.session, new, quotas, at_ms)
        fresh = await _write(batch, new, at_ms)
        batch.telling.jobs()
    answers: list[Queued] = []
    seen: set[int] = set()
    for one in found:
        if isinstance(one, Queued):
            answers.append(one)
        else:
            answers.append(msgspec.structs.replace(fresh[one], is_repeat=True) if one in seen else fresh[one])
            seen.add(one)
    return answers


async def _known(session: Session, drafts: Sequence[JobDraft]) -> dict[Key, tuple[str, Queued]]:
    """The jobs that these keys made before, each with the digest of what was asked for then."""
    keys = {(draft.kind, draft.key) for draft in drafts if draft.key is not None}
    if not keys:
        return {}
    kinds, names = zip(*keys, strict=True)
    return {
        (kind, key): (digest, Queued(job_id=job_id, state=State(state), is_repeat=True))
        for kind, key, digest, job_id, state in await session.rows(_SQL["find_keys"], kinds=kinds, keys=names)
    }


async def _check_quotas(session: Session, new: Sequence[JobDraft], quotas: Mapping[str, Quota], at_ms: int) -> None:
    asked = Counter((draft.kind, draft.user) for draft in new if draft.kind in quotas)
    if asked:
        kinds, users = zip(*asked, strict=True)
        rows = await session.rows(_SQL["used"], kinds=kinds, users=users, day=job_rules.day_of(at_ms))
        job_rules.check_quotas(quotas, {(row[0], row[1]): (row[2], row[3]) for row in rows}, asked)


async def _write(batch: Batch, new: Sequence[JobDraft], at_ms: int) -> list[Queued]:
    ledger = Ledger(batch.session)
    ids = sorted(row[0] for row in await batch.session.rows(_SQL["draw_ids"], count=len(new)))
    firsts = [job_rules.drafted(draft, at_ms=at_ms) for draft in new]
    numbers = iter(await ledger.numbers(sum(state is State.WAITING for state, _ in firsts)))
    rows: list[tuple[object, ...]] = []
    for job_id, draft, (state, due_at_ms) in zip(ids, new, firsts, strict=True):
        place = None
        if state is State.WAITING:
            place = next(numbers)
            ledger.join((draft.kind, draft.rank, draft.user), place)
        ledger.move(draft.kind, None, state)
        ledger.use(draft.kind, draft.user, at_ms=at_ms, jobs=1)
        rows.append(
            (
                job_id,
                draft.kind,
                draft.user,
                draft.params,
                draft.rank,
                state,
                draft.attempts,
                draft.backoff_ms,
                draft.backoff,
                draft.timeout_ms,
                due_at_ms,
                place,
                draft.key,
                draft.digest,
                draft.notice,
                draft.metadata,
                draft.bytes_max,
                at_ms,
            )
        )
    await batch.session.run(_SQL["queue"], *zip(*rows, strict=True))
    await ledger.write()
    return [Queued(job_id=job_id, state=state) for job_id, (state, _) in zip(ids, firsts, strict=True)]
