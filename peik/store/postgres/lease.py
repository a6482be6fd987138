"""The right to send: a row with an epoch and an end by the server's clock, renewed while this node lives.

A mark is written only under it (`mark` in letters.sql), and it changes hands only after every commit that marks under it:
a node that was frozen, or cut off, marks nothing any more once another has it.
"""

from peik.store.postgres.queries import load
from peik.store.postgres.session import Session

_SQL = load("session.sql")

OWNER = "owner"  # the one right there is: to send for all bots
TTL_S = 15.0


async def take(session: Session, node: str, *, ttl_s: float = TTL_S) -> int:
    """Take the right if it is free or over. Its epoch; 0 if another node has it."""
    async with session.connection.transaction():
        await session.rows(_SQL["hold_lease"], name=OWNER)
        return await session.number(_SQL["take_lease"], name=OWNER, node=node, ttl_s=ttl_s)


async def renew(session: Session, epoch: int, *, ttl_s: float = TTL_S) -> bool:
    """Whether it is still ours: nobody has taken it since."""
    return bool(await session.number(_SQL["renew_lease"], name=OWNER, epoch=epoch, ttl_s=ttl_s))


async def give_back(session: Session, epoch: int) -> None:
    await session.run(_SQL["end_lease"], name=OWNER, epoch=epoch)


async def holder(session: Session) -> tuple[str, float] | None:
    """Who has it, and for how many seconds more."""
    row = await session.row(_SQL["lease_holder"], name=OWNER)
    return None if row is None else (row[0], row[1])
