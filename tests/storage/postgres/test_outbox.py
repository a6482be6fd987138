"""The outbox: a program's own rows and its letters are there together, or neither is."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import asyncpg
import pytest

from peik.core.nodes import News
from peik.outbox.store import Retention, Tally
from peik.storage.postgres import session as outbox
from tests.storage.acts import HOUR, NOW, SENT, accept, attempt, draft, find, front, mark, state, tally
from tests.storage.places import BOT, OTHER_BOT
from tests.storage.postgres.facts import locked_out, until
from tests.storage.postgres.outbox_service import SENDING, enqueue, program
from tests.storage.postgres_place import PostgresPlace

EDIT = {"chat_id": 1, "message_id": 5, "text": "new"}
NUMBERS = "SELECT number FROM letters WHERE bot_id = $1 AND phase = 0 ORDER BY number"


async def refusal(asking: Any) -> tuple[str, str]:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await asking
    return str(caught.value.sqlstate), str(caught.value.detail)


async def test_rows_and_letter_are_there_after_the_commit_and_a_node_hears_of_it(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        await app.execute("CREATE TABLE orders (id bigint)")
        async with app.transaction():
            await app.execute("INSERT INTO orders VALUES (1)")
            letter_id = await enqueue(app, "sendMessage", SENDING)
            assert await front(node) == []
        assert await node.nodes.news() == News(accepted=((BOT, letter_id, letter_id),))
        (letter,) = await node.nodes.new_letters([(BOT, letter_id, letter_id)])
        assert (letter.id, letter.number, json.loads(letter.params)) == (letter_id, 1, SENDING)
        assert await mark(node, letter) == [letter_id]
        assert await place.run("SELECT id FROM orders") == [(1,)]


async def test_after_a_rollback_there_is_nothing_and_no_gap(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        transaction = app.transaction()
        await transaction.start()
        for _ in range(3):
            await enqueue(app, "sendMessage", SENDING, idempotency_key="k")
            await enqueue(app, "sendMessage", SENDING)
        await transaction.rollback()
        assert await tally(node) == Tally()
        await accept(node, draft(1))
        again = await enqueue(app, "sendMessage", SENDING, idempotency_key="k")
        assert [letter.number for letter in await front(node)] == [1, 2]
        assert (await front(node))[-1].id == again


async def test_what_a_savepoint_takes_back_is_not_sent(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        async with app.transaction():
            first = await enqueue(app, "sendMessage", SENDING)
            savepoint = app.transaction()
            await savepoint.start()
            await enqueue(app, "sendMessage", SENDING)
            await savepoint.rollback()
            last = await enqueue(app, "sendMessage", SENDING)
        assert [(letter.id, letter.number) for letter in await front(node)] == [(first, 1), (last, 2)]


async def test_a_transaction_that_stays_open_keeps_nobody_waiting(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app, program(place) as other:
        async with app.transaction():
            slow = await enqueue(app, "sendMessage", SENDING)
            (accepted,) = await accept(node, draft(1))  # would wait for the bot, and for this transaction
            quick = await enqueue(other, "sendMessage", SENDING)
        assert [letter.id for letter in await front(node)] == [accepted, quick, slow], "in the order of commits"


async def test_twenty_callers_and_two_nodes_at_once_number_without_gaps_and_in_order(place: PostgresPlace) -> None:
    async def caller(place: PostgresPlace, name: int) -> list[int]:
        made = []
        async with program(place) as app:
            for turn in range(10):
                transaction = app.transaction()
                await transaction.start()
                ids = [await enqueue(app, "sendMessage", SENDING, bot_id=bot_id) for bot_id in (BOT, OTHER_BOT, BOT)]
                if (turn + name) % 4 == 0:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    made.append(ids[0])
        return made

    async def acceptor(node: Any) -> list[int]:
        return [(await accept(node, draft(1), draft(2), draft(1, bot_id=OTHER_BOT)))[0] for _ in range(20)]

    async with place.open() as one, place.open(is_owner=False) as other:
        async with program(place):
            pass  # the rules are there
        told = await asyncio.gather(*(caller(place, name) for name in range(20)), acceptor(one), acceptor(other))
        enqueued, accepted = sum(len(made) for made in told[:20]), 40
        assert enqueued == 150
        for bot_id, count in ((BOT, 2 * enqueued + 2 * accepted), (OTHER_BOT, enqueued + accepted)):
            assert [row[0] for row in await place.run(NUMBERS, bot_id)] == list(range(1, count + 1))
        lane = [letter.id for letter in await front(one, letters=1000)]
        for mine in told:
            assert [letter_id for letter_id in lane if letter_id in set(mine)] == mine, "each caller's own order"
        assert await tally(one) == Tally(waiting=2 * enqueued + 2 * accepted)
        assert await place.run("SELECT 1 FROM enqueued") == []


async def test_a_thousand_in_one_transaction_ring_one_bell(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        made = "SELECT enqueue('sendMessage', jsonb_build_object('chat_id', n, 'text', 'hi'), 7) FROM generate_series(1, 1000) n"
        ids = [row[0] for row in await app.fetch(made)]
        assert await node.nodes.news() == News(accepted=((BOT, ids[0], ids[-1]),))
        assert len(await node.nodes.new_letters([(BOT, ids[0], ids[-1])])) == 1000
        assert await node.nodes.last_numbers() == {BOT: 1000, OTHER_BOT: 0}


# ---- idempotency keys ----


async def test_a_repeat_of_a_key_is_the_same_letter_and_another_call_is_refused(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        async with app.transaction():
            first = await enqueue(app, "sendMessage", SENDING, idempotency_key="k")
            assert await enqueue(app, "SendMessage", {"text": "hi", "chat_id": "1"}, idempotency_key="k") == first
        assert await enqueue(app, "sendMessage", SENDING, idempotency_key="k") == first
        changed = enqueue(app, "sendMessage", {**SENDING, "text": "ho"}, idempotency_key="k")
        assert await refusal(changed) == ("PK409", "idempotency_key_reused")
        assert await enqueue(app, "sendMessage", SENDING, idempotency_key="k", bot_id=OTHER_BOT) != first
        assert await tally(node) == Tally(waiting=1)
        await place.run("UPDATE idempotency SET expires_at = 0")
        assert await enqueue(app, "sendMessage", SENDING, idempotency_key="k") == first  # until the upkeep ends it
        await node.clean(Retention(completed_ms=HOUR, dead_ms=HOUR, log_ms=HOUR), at_ms=1, limit=10)
        assert await enqueue(app, "sendMessage", SENDING, idempotency_key="k") != first


async def test_a_repeat_in_an_open_transaction_keeps_no_other_repeat_waiting(place: PostgresPlace) -> None:
    async with place.open(), program(place) as app, program(place) as other:
        first = await enqueue(app, "sendMessage", SENDING, idempotency_key="k")
        async with app.transaction():
            for caller in (app, other):
                assert await enqueue(caller, "sendMessage", SENDING, idempotency_key="k") == first


async def test_one_key_in_two_transactions_at_once_makes_one_letter(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app, program(place) as other:
        for ending in ("COMMIT", "ROLLBACK"):
            await app.execute("BEGIN")
            first = await enqueue(app, "sendMessage", SENDING, idempotency_key=ending)
            second = asyncio.create_task(enqueue(other, "sendMessage", SENDING, idempotency_key=ending))
            await until(lambda: is_locked_out(place, other.get_server_pid()))
            await app.execute(ending)
            assert (await second == first) == (ending == "COMMIT")
        assert await tally(node) == Tally(waiting=2)


async def test_one_key_in_a_transaction_and_at_a_node_at_once_makes_one_letter(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        digest = await app.fetchval("SELECT digest_of('sendMessage', $1)", json.dumps(SENDING))
        await app.execute("BEGIN")
        enqueued = await enqueue(app, "sendMessage", SENDING, idempotency_key="k")
        at_ms = await app.fetchval("SELECT (extract(epoch FROM now()) * 1000)::bigint")  # both are of one time
        accepting = asyncio.create_task(accept(node, draft(1, idempotency_key="k", digest=digest), at_ms=at_ms))
        await until(lambda: locked_out(place, 1))  # by the key; and the commit will wait for the bot
        try:
            await app.execute("COMMIT")
        except asyncpg.DeadlockDetectedError:  # the server chooses who gives way, and either may
            assert await accepting != [enqueued]
        else:
            assert await accepting == [enqueued]
        assert await tally(node) == Tally(waiting=1)


async def is_locked_out(place: PostgresPlace, pid: int) -> bool:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'"
    return bool(await place.run(waiting, pid))


# ---- edits and references ----


async def test_a_newer_edit_replaces_one_that_waits_and_the_nodes_hear_both(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        async with app.transaction():
            older = await enqueue(app, "editMessageText", EDIT)
            dependent = await enqueue(
                app, "sendMessage", {**SENDING, "reply_parameters": {"message_id": {"letter": older}}}
            )
        await node.park(await find(node, dependent))
        assert (await node.nodes.news()).accepted == ((BOT, older, dependent),)
        async with app.transaction():
            await enqueue(app, "editMessageText", {**EDIT, "text": "newer"})
            newest = await enqueue(app, "editMessageText", {**EDIT, "message_id": "5", "text": "newest"})
        news = await node.nodes.news()
        assert (news.lanes, news.accepted) == (frozenset({BOT}), ((BOT, newest - 1, newest),))
        assert news.ended == {}
        assert [letter.id for letter in await front(node)] == [newest]
        view = await node.letter(older)
        assert view is not None
        assert (view.state, view.merged_into) == ("delayed", newest - 1)
        assert await tally(node) == Tally(waiting=1, delayed=3)
        await attempt(node, await find(node, newest), SENT)
        assert [await state(node, one) for one in (older, newest - 1)] == ["completed", "completed"]
        assert [letter.id for letter in await front(node)] == [dependent]
        assert await tally(node) == Tally(waiting=1, completed=3)


async def test_an_edit_in_flight_is_left_alone(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        older = await enqueue(app, "editMessageText", EDIT)
        await mark(node, await find(node, older))
        newer = await enqueue(app, "editMessageText", EDIT)
        assert [letter.id for letter in await front(node)] == [older, newer]


async def test_a_letter_may_refer_to_one_of_the_same_transaction(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        async with app.transaction():
            first = await enqueue(app, "sendMessage", SENDING)
            second = await enqueue(app, "editMessageText", {**EDIT, "message_id": {"letter": str(first)}})
        assert (await find(node, second)).awaits == first
        elsewhere = enqueue(app, "editMessageText", {**EDIT, "message_id": {"letter": first}}, bot_id=OTHER_BOT)
        assert await refusal(elsewhere) == ("PK422", "unknown_reference")


async def test_it_waits_under_the_last_key_of_its_chat_as_known_at_the_commit(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        async with app.transaction():
            letter_id = await enqueue(app, "sendMessage", {"chat_id": "@Shop", "text": "hi"})
            await node.readdress(BOT, "@shop", -1001)
        (letter,) = await front(node, -1001)
        assert (letter.id, letter.is_moved) == (letter_id, True)


# ---- refusals ----

REFUSED: list[tuple[str, Mapping[str, Any] | Any, Mapping[str, Any], tuple[str, str]]] = [
    ("sendMessage", SENDING, {"bot_id": 99}, ("PK404", "unknown_bot")),
    ("sendMessage", SENDING, {"bot_id": None}, ("PK422", "which_bot")),
    ("getMe", {}, {}, ("PK422", "not_queueable")),
    ("frobnicate", {}, {}, ("PK422", "not_queueable")),
    ("send message", SENDING, {}, ("PK422", "bad_method")),
    ("sendMessage", {"text": "hi"}, {}, ("PK422", "missing_chat_id")),
    ("sendMessage", {"chat_id": 1, "text": "x" * 4097}, {}, ("PK422", "text_too_long")),
    ("sendMessage", [1], {}, ("PK422", "bad_params")),
    ("sendMessage", {"chat_id": "@نام", "text": "hi"}, {}, ("PK422", "bad_params")),
    ("sendPhoto", {"chat_id": 1, "photo": "x" * 1024 * 1024}, {}, ("PK422", "params_too_large")),
    ("sendMessage", SENDING, {"on_uncertain": "shrug"}, ("PK422", "bad_request")),
    ("sendMessage", SENDING, {"backoff": "never"}, ("PK422", "bad_request")),
    ("sendMessage", SENDING, {"metadata": {"user_id": [1]}}, ("PK422", "bad_metadata")),
]


@pytest.mark.parametrize(("method", "params", "terms", "said"), REFUSED)
async def test_what_cannot_be_a_letter_is_refused_with_a_code(
    place: PostgresPlace, method: str, params: Any, terms: Mapping[str, Any], said: tuple[str, str]
) -> None:
    async with place.open() as node, program(place) as app:
        assert await refusal(enqueue(app, method, params, **terms)) == said
        assert await tally(node) == Tally()


async def test_a_bot_that_goes_before_the_commit_ends_the_transaction(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        await app.execute("BEGIN")
        await enqueue(app, "sendMessage", SENDING)
        await node.remove_bot(BOT)
        assert await refusal(app.execute("COMMIT")) == ("PK404", "unknown_bot")
        assert await place.run("SELECT 1 FROM letters") == []


async def test_the_only_bot_need_not_be_named(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        await node.remove_bot(OTHER_BOT)
        letter_id = await app.fetchval('SELECT enqueue(\'sendMessage\', \'{"chat_id": 1, "text": "hi"}\')')
        await node.cancel(letter_id, at_ms=NOW)
        await node.remove_bot(BOT)
        assert await refusal(enqueue(app, "sendMessage", SENDING, bot_id=None)) == ("PK404", "no_bot")


async def test_a_stricter_isolation_fails_rather_than_number_wrongly(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        await app.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await enqueue(app, "sendMessage", SENDING)
        await accept(node, draft(1))
        with pytest.raises(asyncpg.SerializationError):
            await app.execute("COMMIT")
        async with app.transaction(isolation="serializable"):
            await enqueue(app, "sendMessage", SENDING)
        assert [letter.number for letter in await front(node)] == [1, 2]


# ---- rights ----


async def test_a_role_that_may_only_execute_can_enqueue_and_nothing_else(place: PostgresPlace) -> None:
    role = f"app_{place.schema}"
    async with place.open() as node, program(place) as app:
        await app.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA {place.schema} TO {role}; SET ROLE {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await enqueue(app, "sendMessage", SENDING)
        await place.run(f"GRANT EXECUTE ON FUNCTION enqueue TO {role}")
        async with app.transaction():
            await enqueue(app, "sendMessage", SENDING, idempotency_key="k")
        assert await tally(node) == Tally(waiting=1)
        for table in ("letters", "enqueued", "bots", "idempotency", "methods", "tallies"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await app.fetch(f"SELECT * FROM {table}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await app.execute("INSERT INTO enqueued (id) VALUES (1)")
        await app.execute("RESET ROLE")
        await app.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_table_that_the_caller_made_for_itself_is_never_taken_for_ours(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        for table in ("letters", "enqueued", "bots", "idempotency", "methods", "tallies", "chats", "marks", "hooks"):
            await app.execute(f"CREATE TEMP TABLE {table} (trap bigint)")
        await app.execute("SET search_path = pg_temp, public")
        hooked = draft(
            1, method="editMessageText", target='editMessageText{"chat_id":1,"message_id":5}', hook="http://a.example/"
        )
        await accept(node, hooked)
        sql = f"SELECT {place.schema}.enqueue('editMessageText', $1, {BOT}, idempotency_key => 'k')"
        letter_id = await app.fetchval(sql, json.dumps(EDIT))
        assert [letter.id for letter in await front(node)] == [letter_id]
        await attempt(node, await find(node, letter_id), SENT)
        assert len(await place.run("SELECT 1 FROM hooks")) == 1, "the merged letter's end is told"


# ---- the rules ----


async def test_the_rules_are_written_once_and_again_when_they_differ(place: PostgresPlace) -> None:
    async with place.open(), program(place) as app:
        session = outbox.PostgresSession(app)
        before = await app.fetch("SELECT xmin, * FROM methods")
        await outbox.keep_rules(session)
        assert await app.fetch("SELECT xmin, * FROM methods") == before
        await app.execute(
            "DELETE FROM methods WHERE name = 'sendDice'; UPDATE method_verbs SET kind = 'read' WHERE place = 3"
        )
        await outbox.keep_rules(session)
        assert {row["name"] for row in await app.fetch("SELECT name FROM methods")} == {row["name"] for row in before}
        assert await app.fetchval("SELECT count(*) FROM method_verbs WHERE kind = 'read'") == 1
