"""Known chats in the PostgreSQL store: what is asked goes into the commits that papers go into."""

from collections.abc import Sequence

from peik.paper_ports import CONTACTS_LOOKED_MAX, Contact, ContactFilter, ContactPage
from peik.store import contact_rules
from peik.store.contacts import COLUMNS, contact_from_row, row_of
from peik.store.postgres import inbox_consumers
from peik.store.postgres.inbox import Read
from peik.store.postgres.job_reading import seek
from peik.store.postgres.paper_writer import PaperWriter
from peik.store.postgres.queries import Query, filled, load
from peik.store.postgres.session import Row, Session

_CONTACT = ", ".join(f"c.{column}" for column in COLUMNS)
_SQL = load("contacts.sql")
THOSE = filled(_SQL["those"], contact=_CONTACT)

_BEFORE = "(c.last_seen, c.chat_id) < (:seen, :chat)"
_FROM_EDGE = "(c.last_seen, c.chat_id) >= (:edge_seen, :edge_chat)"
_SEEN = {"since": "c.last_seen >= :since", "until": "c.last_seen < :until"}
_LANGUAGES = (
    "EXISTS (SELECT 1 FROM unnest(:languages::text[]) AS l (value) WHERE lower(coalesce(c.language, '')) = l.value"
    " OR starts_with(lower(c.language), l.value || '-'))"
)


class PostgresContacts:
    """See `peik.paper_ports.ContactStore`. Made by the store when it is opened."""

    def __init__(self, writer: PaperWriter, *, read: Read) -> None:
        self._writer = writer
        self._read = read

    async def contacts_place(self, bot_id: int) -> int:
        return await self._read(lambda one: one.number(_SQL["place"], bot=bot_id))

    async def save_contacts(self, bot_id: int, contacts: Sequence[Contact], *, place: int) -> None:
        fresh = contact_rules.folded(contacts)
        await self._writer.run(lambda one: _save(one, bot_id, fresh, place), bots=[bot_id], weight=len(fresh) + 1)

    async def contact(self, bot_id: int, chat_id: int) -> Contact | None:
        rows = await self._read(lambda one: one.rows(THOSE, bot=bot_id, chats=[chat_id]))
        return next(map(_contact, rows), None)

    async def contacts(self, bot_id: int, wanted: ContactFilter, *, after: int | None, limit: int) -> list[Contact]:
        where, bound = _conditions(bot_id, wanted)
        if after is not None:
            where, bound = f"c.chat_id > :after AND {where}", bound | {"after": after}
        return await self._find(_SQL["page"], where, bound | {"limit": limit})

    async def newest_contacts(
        self,
        bot_id: int,
        wanted: ContactFilter,
        *,
        before: tuple[int, int] | None,
        limit: int,
        looked_max: int = CONTACTS_LOOKED_MAX,
    ) -> ContactPage:
        where, bound = _conditions(bot_id, wanted)
        within = " AND ".join(sql for name, sql in _SEEN.items() if name in bound) or "true"
        if before is not None:
            within, bound = f"{_BEFORE} AND {within}", bound | {"seen": before[0], "chat": before[1]}
        found, edge = await self._read(
            lambda one: seek(one, lambda seeker: _newest(seeker, where, within, bound, limit, looked_max))
        )
        return contact_rules.turned(found, limit=limit, edge=edge)

    async def count_contacts(self, bot_id: int, wanted: ContactFilter) -> int:
        where, bound = _conditions(bot_id, wanted)
        query = filled(_SQL["count_tallied" if contact_rules.is_tallied(wanted) else "count"], where=where)
        return await self._read(lambda one: one.number(query, **bound))

    async def count_campaigns(self, bot_id: int, *, since_ms: int) -> dict[str, int]:
        rows = await self._read(lambda one: one.rows(_SQL["count_campaigns"], bot=bot_id, since=since_ms))
        return {row[0]: row[1] for row in rows}

    async def _find(self, query: Query, where: str, bound: dict[str, object]) -> list[Contact]:
        whole = filled(query, contact=_CONTACT, where=where)
        rows = await self._read(lambda one: seek(one, lambda seeker: seeker.rows(whole, **bound)))
        return [_contact(row) for row in rows]


async def forget_bot(session: Session, bot_id: int) -> None:
    """Whoever wrote to a bot is forgotten with it: its arrivals are, too, and are numbered anew if it comes back."""
    for name in ("forget_contacts", "forget_tallies", "forget_place"):
        await session.run(_SQL[name], bot=bot_id)


async def _save(session: Session, bot_id: int, fresh: Sequence[Contact], place: int) -> None:
    await inbox_consumers.check_bot(session, bot_id)
    if place < await session.number(_SQL["place"], bot=bot_id):
        return
    if fresh:
        found = await session.rows(THOSE, bot=bot_id, chats=[contact.chat_id for contact in fresh])
        known = {one.chat_id: one for one in map(_contact, found)}
        rows = []
        for contact in fresh:
            before = known.get(contact.chat_id)
            rows.append(row_of(contact if before is None else contact_rules.met_again(before, contact)))
        await session.run(_SQL["save"], *zip(*rows, strict=True))
    await session.run(_SQL["move_place"], bot=bot_id, place=place)


async def _newest(
    session: Session, where: str, within: str, bound: dict[str, object], limit: int, looked_max: int
) -> tuple[list[Contact], tuple[int, int] | None]:
    """What was found, and the last chat that was looked at, if there are more."""
    found: list[Contact] = []
    edge: Row | None = None
    for most in (min(contact_rules.LOOKED_FIRST, looked_max), looked_max):
        edge = await session.row(filled(_SQL["edge"], within=within), **bound, behind=most - 1)
        whole, asked = f"{within} AND {where}", bound | {"limit": limit}
        if edge is not None:
            whole, asked = f"{_FROM_EDGE} AND {whole}", asked | {"edge_seen": edge[0], "edge_chat": edge[1]}
        rows = await session.rows(filled(_SQL["newest"], contact=_CONTACT, where=whole), **asked)
        found = [_contact(row) for row in rows]
        if len(found) >= limit or edge is None:
            break
    return found, None if edge is None else (edge[0], edge[1])


def _contact(row: Row) -> Contact:
    return contact_from_row(tuple(row))


def _conditions(bot_id: int, wanted: ContactFilter) -> tuple[str, dict[str, object]]:
    """What a filter asks for in SQL, and the values that are bound to it. Of kinds alone it also fits the tallies."""
    types = None if wanted.types is None else sorted(wanted.types)
    conditions: tuple[tuple[str, object, str], ...] = (
        ("types", types, "c.type = ANY (:types::text[])"),
        ("languages", contact_rules.languages_of(wanted), _LANGUAGES),
        ("since", wanted.seen_since_ms, "c.last_seen >= :since"),
        ("until", wanted.seen_before_ms, "c.last_seen < :until"),
        ("is_gone", wanted.is_gone, "c.is_gone = :is_gone"),
        ("text", None if wanted.text is None else wanted.text.casefold(), "strpos(c.words, :text) > 0"),
        ("campaign", wanted.campaign, "coalesce(c.campaign, '') = :campaign"),
    )
    given = [(name, value, sql) for name, value, sql in conditions if value is not None]
    where = " AND ".join(sql for _, _, sql in given) or "true"
    return where, {"bot": bot_id} | {name: value for name, value, _ in given}
