"""The rules of methods as rows, for `enqueue` (003.sql): core's table in the database, so that no second one is kept by hand."""

from peik.core.methods import TARGETS, VERBS, MethodClass, known_methods
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresSession

_SQL = load("outbox.sql")


async def keep_rules(session: PostgresSession) -> None:
    """Write this Peik's rules if others stand there; in the usual case one look at each table.

    Where two versions share a schema for a while, the one that was opened last has its way: both send what either lets in.
    """
    if await _is_current(session):
        return
    async with session.connection.transaction():
        await session.rows(_SQL["lock_rules"])
        await session.run(_SQL["clear_methods"])
        await session.run(_SQL["keep_methods"], *zip(*_methods(), strict=True))
        await session.run(_SQL["clear_verbs"])
        await session.run(_SQL["keep_verbs"], *zip(*_verbs(), strict=True))


async def _is_current(session: PostgresSession) -> bool:
    methods = {
        (*row[:5], None if row[5] is None else ",".join(row[5]))
        for row in map(tuple, await session.rows(_SQL["methods"]))
    }
    verbs = [tuple(row) for row in await session.rows(_SQL["verbs"])]
    return methods == set(_methods()) and verbs == _verbs()


def _methods() -> list[tuple[object, ...]]:
    return [
        (name.lower(), name, *_class(kind), ",".join(TARGETS[name]) if name in TARGETS else None)
        for name, kind in known_methods().items()
    ]


def _verbs() -> list[tuple[object, ...]]:
    return [(place, verb, *_class(kind)) for place, (verb, kind) in enumerate(VERBS)]


def _class(kind: MethodClass) -> tuple[str, bool, bool]:
    return kind.value, kind.is_queued, kind.is_at_most_once
