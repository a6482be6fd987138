"""What people look for among jobs: walked page by page from the newest down, judged here, never all at once."""

from collections.abc import AsyncIterator, Sequence

from peik.core.job import Job
from peik.core.letter import State
from peik.job_ports import STANDING_COUNTED_MAX, JobFilter, Standing
from peik.store.job_rules import turns_ahead
from peik.store.redis.client import Client
from peik.store.redis.finding import PAGE, newest
from peik.store.redis.job_records import Held, held_of

_LINES_PAGE = 1000


async def find(client: Client, wanted: JobFilter, *, before: int | None, limit: int) -> list[Job]:
    found: list[Job] = []
    async for ids in _candidates(client, wanted, before):
        for held in await those(client, ids):
            if len(found) < limit and held is not None and _is_wanted(held.job, wanted):
                found.append(held.job)
        if len(found) >= limit:
            break
    return found


async def those(client: Client, ids: Sequence[int]) -> list[Held | None]:
    """As they stand, in the order of the ids; in pages, so that nobody waits for long while many are read."""
    found: list[Held | None] = []
    for start in range(0, len(ids), PAGE):
        (rows,) = await client.read(["job_rows", [str(one) for one in ids[start : start + PAGE]]])
        found += [None if row is None else held_of(row) for row in rows]
    return found


async def active(client: Client) -> list[Job]:
    (ids,) = await client.read(["job_ids_in", "job_leases"])
    found = await those(client, sorted(int(one) for one in ids))
    return [held.job for held in found if held is not None and held.job.state is State.ACTIVE]


async def standing(client: Client, job_id: int) -> Standing | None:
    (found,) = await client.read(["job_standing", str(job_id)])
    if found is None:
        return None
    kind, rank, better, own, place, lines, running, mean = found
    if own == 0:
        ahead = better + place  # of each line before its own one goes first, however long that is
    elif better + own + lines - 1 >= STANDING_COUNTED_MAX:
        ahead = STANDING_COUNTED_MAX  # of each other line at least one goes before it
    else:
        lengths = await _lengths(client, kind.decode(), rank, lines)
        ahead = turns_ahead(better=better, own=own, earlier=lengths[:place], later=lengths[place + 1 :])
    return Standing(
        ahead=min(ahead, STANDING_COUNTED_MAX), running=running, mean_run_ms=None if mean is None else int(mean)
    )


async def _lengths(client: Client, kind: str, rank: int, lines: int) -> list[int]:
    """In pages. Lines may come and go between two of them: where one stands is told to people, who know queues."""
    found: list[int] = []
    for start in range(0, lines, _LINES_PAGE):
        (page,) = await client.read(["job_lengths", kind, rank, start, start + _LINES_PAGE - 1])
        found += page
    return found


async def _candidates(client: Client, wanted: JobFilter, before: int | None) -> AsyncIterator[list[int]]:
    """Ids below a given one, the newest first: the fewest that are known to hold all that are wanted."""
    named = await _named(client, wanted)
    if named is None:
        async for page in newest(client, "job_blocks", before):
            yield page
        return
    ids = sorted((one for one in named if before is None or one < before), reverse=True)
    for start in range(0, len(ids), PAGE):
        yield ids[start : start + PAGE]


async def _named(client: Client, wanted: JobFilter) -> list[int] | None:
    """What an index names; None: there is none for this."""
    ids: Sequence[bytes]
    if wanted.user:
        ids = await client.ask(client.redis.smembers(f"{client.prefix}job_of:{wanted.user}"))
    elif wanted.state is State.FAILED:
        ids = await client.ask(client.redis.zrange(f"{client.prefix}job_dead", 0, -1))
    elif wanted.state is State.ACTIVE:
        (ids,) = await client.read(["job_ids_in", "job_leases"])
    elif wanted.state is State.DELAYED:
        (ids,) = await client.read(["job_ids_in", "job_due"])
    else:
        return None
    return [int(one) for one in ids]


def _is_wanted(job: Job, wanted: JobFilter) -> bool:
    same = ((wanted.kind, job.kind), (wanted.user, job.user), (wanted.state, job.state))
    return all(asked is None or asked == has for asked, has in same) and (
        wanted.since_ms is None or job.created_at_ms >= wanted.since_ms
    )
