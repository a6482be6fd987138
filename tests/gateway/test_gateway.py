"""The gateway as a bot meets it: Telegram's own paths, encodings, envelopes and answers, and letters behind them."""

import asyncio
import base64
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from peik.app.lifetime import running
from peik.core.provisional import FIRST_ID
from peik.settings.config import load
from tests.gateway.gateways import Client, play, until
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, TOKEN, Server, Sim

PHOTO = bytes(range(256)) * 40


def form(**fields: Any) -> aiohttp.FormData:
    data = aiohttp.FormData(quote_fields=False)
    for name, value in fields.items():
        if isinstance(value, bytes | io.BytesIO):
            data.add_field(name, value, filename=f"{name}.bin", content_type="application/octet-stream")
        else:
            data.add_field(name, value if isinstance(value, str) else json.dumps(value))
    return data


# ---- sends ----


def test_a_send_is_answered_with_telegrams_own_message(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        sent = await bot.call("sendMessage", chat_id=5, text="سلام")
        assert sent.status == 200
        assert sent.result["text"] == "سلام"
        assert sent.result["message_id"] > 0
        assert set(sent.json) == {"ok", "result"}
        assert (await peik.quiet())["completed"] == 1
        (letter,) = (await peik.get("/v1/letters?state=completed"))["letters"]
        assert letter["priority"] == 0  # nobody had asked for it

    play(tmp_path, story)


def test_an_answer_is_high_news_are_bulk_and_a_caller_may_say_it(tmp_path: Path) -> None:
    async def priority(peik: Server, text: str) -> int:
        letters = (await peik.get("/v1/letters?limit=200"))["letters"]
        (found,) = [one["priority"] for one in letters if one["params"]["text"] == text]
        assert isinstance(found, int)
        return found

    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        for chat in range(100, 130):
            await bot.call("sendMessage", chat_id=chat, text=f"news {chat}")
        await sim.post("write", bot=BOT, user=5, text="hello")
        await until(lambda: bot.call("getUpdates", timeout=5), lambda answer: bool(answer.result))
        await bot.call("sendMessage", chat_id=5, text="the answer")
        await bot.call("sendMessage", chat_id=5, text="more")
        told = [await priority(peik, text) for text in ("news 100", "news 129", "the answer", "more")]
        assert told == [0, -1, 1, 0]

        said = {"critical": 2, "1": 1, "normal": 0, " BULK ": -1}
        for word, worth in said.items():
            await bot.call("sendMessage", chat_id=6, text=f"json {word}", peik_priority=word)
            await bot.send("POST", "sendMessage", data=form(chat_id="7", text=f"form {word}", peik_priority=word))
            asked = {"chat_id": "8", "text": f"header {word}"}
            await bot.send("GET", "sendMessage", params=asked, headers={"Peik-Priority": word})
            assert {await priority(peik, f"{how} {word}") for how in ("json", "form", "header")} == {worth}
        await bot.call("sendMessage", chat_id=9, text="number", peik_priority=-1)
        assert await priority(peik, "number") == -1
        both = {"chat_id": 9, "text": "both", "peik_priority": 2}
        await bot.send("POST", "sendMessage", json=both, headers={"Peik-Priority": "bulk"})
        assert await priority(peik, "both") == 2
        refused = await bot.call("sendMessage", chat_id=9, text="no", peik_priority="urgent")
        assert refused.refusal == (
            400,
            "Bad Request: peik_priority is one of -1, bulk, 0, normal, 1, high, 2, critical.",
        )
        deliveries = (await sim.get("sent"))["deliveries"]
        assert not [one for one in deliveries if "peik_priority" in json.dumps(one)]

    play(tmp_path, story, options={"limits": {"on": False}}, pace="off")


def test_every_way_to_write_a_call_arrives_the_same(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        fields = {"chat_id": "5", "text": "a b&c=d+e٪", "reply_markup": '{"force_reply":true}'}
        await bot.send("GET", "sendMessage", params=fields)
        await bot.send("POST", "SENDMESSAGE", data=fields)
        await bot.send("POST", "sendmessage", data=form(**fields))
        await bot.call("sendMessage", **fields)
        await bot.call("sendMessage", chat_id=5, text=fields["text"], reply_markup={"force_reply": True})
        await bot.send("POST", "sendMessage", params={"chat_id": "5"}, data={"text": fields["text"], "chat_id": "6"})
        await bot.send("POST", "test/sendMessage", data=fields)
        deliveries = (await sim.get("sent"))["deliveries"]
        assert {(one["chat_id"], one["text"]) for one in deliveries} == {(5, fields["text"])}
        assert len(deliveries) == 7

    play(tmp_path, story, pace="off", options={"limits": {"on": False}})


def test_files_and_albums_go_up_by_field_and_by_attach(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        photo = await bot.send("POST", "sendPhoto", data=form(chat_id="5", photo=PHOTO, caption="one"))
        assert photo.result["photo"][-1]["file_size"] == len(PHOTO)
        document = await bot.send("POST", "sendDocument", data=form(chat_id="5", document="attach://a", a=PHOTO))
        assert document.result["document"]["file_size"] == len(PHOTO)
        media = [{"type": "photo", "media": "attach://x"}, {"type": "photo", "media": "attach://y"}]
        album = await bot.send("POST", "sendMediaGroup", data=form(chat_id="-7", media=media, x=PHOTO, y=PHOTO + b"!"))
        assert len(album.result) == 2
        assert album.result[0]["media_group_id"] == album.result[1]["media_group_id"]
        again = await bot.call("sendPhoto", chat_id=5, photo=photo.result["photo"][-1]["file_id"])
        assert again.result["photo"]
        assert not list((tmp_path / "peik.db.files").iterdir())

    play(tmp_path, story, pace="off", options={"limits": {"on": False}})


@pytest.mark.parametrize("words", ["wrong file identifier/HTTP URL specified", "failed to get HTTP URL content"])
@pytest.mark.parametrize("key", [None, "once"])
def test_a_refusal_that_bots_catch_is_passed_on_at_once(tmp_path: Path, words: str, key: str | None) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("faults", kind="error", status=400, words=f"Bad Request: {words}", count=1, method="sendPhoto")
        keyed = {} if key is None else {"peik_idempotency_key": key}
        refused = await bot.call("sendPhoto", chat_id=5, photo="https://example.com/a.jpg", **keyed)
        assert refused.refusal == (400, f"Bad Request: {words}")
        (letter,) = (await peik.get("/v1/letters?state=failed"))["letters"]
        assert letter["attempts_made"] == 1

    play(tmp_path, story, gateway_wait="60s")


def test_a_final_refusal_is_passed_on_as_it_came(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        refused = await bot.call("sendMessage", chat_id=5, text="<b>", parse_mode="HTML")
        direct = await Client(peik, bot._http).call("getChat", chat_id="x y")
        assert refused.status == 400
        assert refused.refusal[1].startswith("Bad Request: can't parse entities")
        assert set(refused.json) == {"ok", "error_code", "description"}
        assert direct.status == 400
        await bot.call("sendMessage", chat_id=9, text="first")
        await sim.post("block", bot=BOT, user=9)
        for text in ("Telegram says so", "and Peik remembers"):
            blocked = await bot.call("sendMessage", chat_id=9, text=text)
            assert blocked.refusal == (403, "Forbidden: bot was blocked by the user")

    play(tmp_path, story, pace="off")


def test_what_telegram_has_not_answered_in_time_is_answered_with_ids_of_peiks_own_and_arrives(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("dark", on=True)
        media = [{"type": "photo", "media": "id1"}, {"type": "photo", "media": "id2"}]
        message, album, copy, copies, edit, gone = await asyncio.gather(
            bot.call("sendMessage", chat_id=5, text="later", message_thread_id="3"),
            bot.call("sendMediaGroup", chat_id=-1001000000000005, media=json.dumps(media)),
            bot.call("copyMessage", chat_id=5, from_chat_id=6, message_id=1),
            bot.call("copyMessages", chat_id=5, from_chat_id=6, message_ids=[1, 2, 3]),
            bot.call("editMessageText", chat_id=5, message_id=1, text="new"),
            bot.call("deleteMessage", chat_id=5, message_id=1),
        )
        assert message.result == {
            "message_id": message.result["message_id"],
            "from": {"id": BOT, "is_bot": True, "first_name": ""},
            "chat": {"id": 5, "type": "private"},
            "date": message.result["date"],
            "message_thread_id": 3,
            "text": "later",
        }
        assert message.json["peik"]["state"] in ("waiting", "active")
        first, following = [one["message_id"] for one in album.result]
        assert following == first + 1
        assert album.result[0]["photo"][0]["file_id"] == "id1"
        assert album.result[0]["chat"] == {"id": -1001000000000005, "type": "supergroup", "title": ""}
        told = [message.result, *album.result, copy.result, *copies.result]
        assert sorted(one["message_id"] for one in told) == list(range(FIRST_ID, FIRST_ID + 7))
        assert edit.result is True
        assert gone.result is True
        await sim.post("dark", on=False)
        letter = await peik.get(f"/v1/letters/{message.json['peik']['letter_id']}?wait=200s")
        assert letter["state"] == "completed"
        assert 0 < letter["result"]["message_id"] < FIRST_ID
        assert letter["provisional_ids"] == [message.result["message_id"]]

    play(tmp_path, story, gateway_wait="300ms")


def test_what_cannot_be_made_up_waits_for_telegram(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("chats", type="supergroup", title="Club", id=-100500, is_forum=True, bots=[BOT])
        await sim.post("faults", kind="slow", least_s=0.6, most_s=0.6, method="createForumTopic")
        topic = await bot.call("createForumTopic", chat_id=-100500, name="News")
        assert topic.result["message_thread_id"] > 0

    play(tmp_path, story, gateway_wait="100ms")


def test_a_flood_wait_never_reaches_the_bot(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("faults", kind="flood", retry_after=1, count=1, method="sendMessage")
        sent = await bot.call("sendMessage", chat_id=5, text="patience")
        assert sent.result["message_id"] > 0
        await sim.post("faults", kind="flood", retry_after=7, count=1, method="getChat")
        read = await bot.call("getChat", chat_id=5)
        assert read.refusal == (429, "Too Many Requests: retry after 7")
        assert read.json["parameters"] == {"retry_after": 7}
        assert read.headers["Retry-After"] == "7"

    play(tmp_path, story)


async def accepted(peik: Server, count: int) -> None:
    """Until so many letters were."""
    while len((await peik.get("/v1/letters"))["letters"]) < count:
        pass


def test_a_client_that_goes_away_does_not_stop_its_letter(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("faults", kind="slow", least_s=600, most_s=600, method="sendMessage")
        waiting = asyncio.create_task(bot.call("sendMessage", chat_id=5, text="I cannot wait"))
        await accepted(peik, 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert (await sim.get("sent", at_least=1))["deliveries"][0]["text"] == "I cannot wait"

    play(tmp_path, story, gateway_wait="5m")


def test_an_idempotency_key_makes_a_repeat_answer_the_same(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        first = await bot.call("sendMessage", chat_id=5, text="once", peik_idempotency_key="k1")
        again = await bot.send(
            "GET", "sendMessage", params={"chat_id": 5, "text": "once", "peik_idempotency_key": "k1"}
        )
        by_header = await bot.send(
            "POST", "sendMessage", json={"text": "once", "chat_id": "5"}, headers={"Idempotency-Key": "k1"}
        )
        assert first.json == again.json == by_header.json
        other = await bot.call("sendMessage", chat_id=5, text="twice", peik_idempotency_key="k1")
        assert other.status == 409
        photos = [
            await bot.send("POST", "sendPhoto", data=form(chat_id="5", photo=PHOTO, peik_idempotency_key="k2"))
            for _ in range(2)
        ]
        assert photos[0].json == photos[1].json
        assert not list((tmp_path / "peik.db.files").iterdir())
        assert (await sim.get("sent"))["total"] == 2

    play(tmp_path, story, pace="off")


def test_a_repeat_of_what_was_cleared_away_says_what_became_of_it(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("block", bot=7000001, user=5)
        call = {"chat_id": 5, "text": "once", "peik_idempotency_key": "k1"}
        assert (await bot.call("sendMessage", **call)).status == 403
        assert (await peik.call("DELETE", "/v1/dead?chat_id=5"))[0] == 200
        again = await bot.call("sendMessage", **call)
        assert (again.status, again.json["description"]) == (400, "Bad Request: it failed, and was cleared away since")
        body = {"method": "sendMessage", "params": {"chat_id": 5, "text": "once"}, "idempotency_key": "k1"}
        for path, status in (("/v1/letters", 202), ("/v1/letters?wait=10s", 200)):
            answered, letter = await peik.call("POST", path, json=body)
            assert (answered, letter["id"], letter["state"]) == (status, again.json["peik"]["letter_id"], "failed")

    play(tmp_path, story, pace="off")


def test_a_reply_may_name_a_letter_that_is_not_sent_yet(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("dark", on=True)
        first = await bot.call("sendMessage", chat_id=5, text="question")
        letter = first.json["peik"]["letter_id"]
        reply = await bot.send(
            "POST",
            "sendMessage",
            data={"chat_id": "5", "text": "answer", "reply_parameters": f'{{"message_id": {{"letter": "{letter}"}}}}'},
        )
        await sim.post("dark", on=False)
        question = await peik.get(f"/v1/letters/{letter}?wait=200s")
        answer = await peik.get(f"/v1/letters/{reply.json['peik']['letter_id']}?wait=200s")
        assert answer["result"]["reply_to_message"]["message_id"] == question["result"]["message_id"]

    play(tmp_path, story, gateway_wait="200ms")


def test_peiks_own_checks_speak_telegrams_words(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        assert (await bot.call("sendMessage", text="to whom?")).refusal == (400, "Bad Request: chat_id is empty")
        assert (await bot.call("sendMessage", chat_id=5, text=" ")).refusal == (
            400,
            "Bad Request: message text is empty",
        )
        long = await bot.call("sendMessage", chat_id=5, text="x" * 4097)
        assert long.refusal == (400, "Bad Request: message is too long")
        broken = await bot.send("POST", "sendMessage", data=b"{", headers={"Content-Type": "application/json"})
        assert broken.status == 400
        assert (await peik.get("/v1/stats"))["failed"] == 0

    play(tmp_path, story)


def test_edits_of_one_message_that_wait_are_merged_and_all_are_answered(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        sent = await bot.call("sendMessage", chat_id=5, text="0")
        message_id = sent.result["message_id"]
        edits = [
            bot.call("editMessageText", chat_id=chat, message_id=message_id, text=str(number))
            for number, chat in enumerate((5, "5", 5, "5"), 1)
        ]
        answers = []
        await sim.post("faults", kind="slow", least_s=0.5, most_s=0.5, method="editMessageText", count=1)
        async with asyncio.TaskGroup() as group:
            answers.append(group.create_task(edits[0]))
            while not (await sim.get("counters"))["requests"].get("editMessageText"):
                pass
            await peik.call("PATCH", f"/v1/bots/{BOT}", json={"paused": True})  # what is under way goes on
            for number, edit in enumerate(edits[1:], 3):
                answers.append(group.create_task(edit))
                await accepted(peik, number)
            await peik.call("PATCH", f"/v1/bots/{BOT}", json={"paused": False})
        assert [task.result().result["text"] for task in answers] == ["1", "4", "4", "4"]
        assert len((await sim.get("applied", method="editMessageText"))["deliveries"]) == 2

    play(tmp_path, story, gateway_wait="5m")


# ---- straight through ----


def test_answers_and_reads_go_straight_through_even_beside_a_long_queue(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        message = await bot.call("sendMessage", chat_id=5, text="menu")
        query = await sim.post("press", bot=BOT, user=5, message_id=message.result["message_id"], data="a")
        waiting = [{"method": "sendMessage", "params": {"chat_id": 5, "text": str(one)}} for one in range(200)]
        await peik.call("POST", "/v1/letters/batch", json={"letters": waiting})
        assert (await bot.call("answerCallbackQuery", callback_query_id=query["id"], text="ok")).result is True
        assert (await bot.send("GET", "getChat", params={"chat_id": 5})).result["id"] == 5
        assert (await bot.call("sendChatAction", chat_id=5, action="typing")).result is True
        assert (await peik.get("/v1/stats"))["waiting"], "they did not wait for the others"
        unknown = await bot.call("beamHologram", chat_id=5)
        assert unknown.refusal == (404, "Not Found: method not found")
        assert (await bot.call("BAD METHOD", chat_id=5)).refusal == (404, "Not Found")

    play(tmp_path, story)


def test_a_read_survives_a_moment_of_trouble_and_an_answer_is_not_given_twice(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("faults", kind="error", status=502, count=1, method="getChat")
        assert (await bot.call("getChat", chat_id=5)).result["id"] == 5
        await sim.post("faults", kind="lose_before", count=1, method="getChat")
        assert (await bot.call("getChat", chat_id=5)).result["id"] == 5
        await sim.post("faults", kind="lose_after", count=1, method="answerPreCheckoutQuery")
        query = await sim.post("ask", bot=BOT, user=5, kind="pre_checkout", payload={})
        paid = await bot.call("answerPreCheckoutQuery", pre_checkout_query_id=query["id"], ok=True)
        assert paid.status == 504
        assert (await sim.get("counters"))["requests"]["answerPreCheckoutQuery"] == 1

    play(tmp_path, story)


def test_while_telegram_is_away_reads_are_refused_at_once_in_its_envelope(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("dark", on=True)
        first = await bot.call("getChat", chat_id=5)
        assert first.refusal == (502, "Bad Gateway: Telegram cannot be reached")
        (route,) = (await peik.get("/v1/routes"))["routes"]
        assert route["state"] == "open"  # so that nobody is asked
        assert (await bot.call("getChat", chat_id=5)).status == 502
        await sim.post("dark", on=False)
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: bot.call("getChat", chat_id=5), lambda answer: answer.status == 200)

    play(tmp_path, story)


def test_a_page_of_some_server_in_between_is_never_taken_for_telegrams_answer(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("faults", kind="error", status=502, html=True, method="getChat")
        assert (await bot.call("getChat", chat_id=5)).refusal == (502, "Bad Gateway")

    play(tmp_path, story)


def test_a_bot_that_starts_while_telegram_is_away_is_told_who_it_is(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        me = await bot.call("getMe")
        assert me.result["id"] == BOT
        await peik.program.kill()
        await sim.post("dark", on=True)
        await peik.start()
        again = await bot.call("getMe")
        assert again.result == me.result
        sent = await bot.call("sendMessage", chat_id=5, text="I am up")
        assert sent.result["from"]["username"] == me.result["username"]

    play(tmp_path, story, gateway_wait="100ms")


# ---- who may come ----


def test_an_unknown_token_is_shown_to_telegram_once_and_then_served(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        other = "7000009:other"
        await sim.post("bots", token=other)
        answers = await asyncio.gather(
            *(bot.call("sendMessage", token=other, chat_id=n, text="hi") for n in range(1, 9))
        )
        assert all(answer.result["from"]["id"] == 7000009 for answer in answers)
        assert (await sim.get("counters"))["requests"]["getMe"] == 1
        bots = (await peik.get("/v1/bots"))["bots"]
        assert {one["bot_id"]: one["inbound"] for one in bots} == {str(BOT): "off", "7000009": "off"}

    play(tmp_path, story, options={"accept_any_token": False}, bot_tokens=TOKEN)


def test_a_wrong_token_costs_telegram_one_question_however_often_it_comes(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        answers = await asyncio.gather(*(bot.call("getMe", token=f"{BOT}:wrong") for _ in range(50)))
        answers += [await bot.call("sendMessage", token=f"{BOT}:wrong", chat_id=5, text="x") for _ in range(5)]
        assert {answer.refusal for answer in answers} == {(401, "Unauthorized")}
        for malformed in ("nonsense", "0:abc", "12", ":", "1:"):
            assert (await bot.call("getMe", token=malformed)).status == 401
        assert (await sim.get("counters"))["answers"]["401"] == 1
        assert (await bot.call("sendMessage", chat_id=5, text="mine")).result["message_id"]

    play(tmp_path, story, options={"accept_any_token": False})


def test_many_wrong_tokens_do_not_use_up_telegrams_patience_with_this_address(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        answers = [await bot.call("getMe", token=f"{number}:wrong") for number in range(1, 40)]
        assert {answer.status for answer in answers} == {401, 429}
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert (await sim.get("counters"))["answers"]["401"] == 20
        assert (await bot.call("getMe")).result["id"] == BOT

    play(tmp_path, story, options={"accept_any_token": False})


def test_a_token_is_not_called_wrong_because_telegram_is_away(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await sim.post("bots", token="7000009:other")
        await sim.post("dark", on=True)
        for _ in range(30):  # more than Telegram would be asked in a minute; it hears of none
            assert (await bot.call("getMe", token="7000009:other")).status == 502
        await sim.post("dark", on=False)
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: bot.call("getMe", token="7000009:other"), lambda answer: answer.status != 502)
        assert (await bot.call("getMe", token="7000009:other")).result["id"] == 7000009

    play(tmp_path, story, options={"accept_any_token": False})


def test_a_rotated_token_is_taken_up_and_the_old_one_is_refused(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await bot.call("sendMessage", chat_id=5, text="before")
        new = (await sim.post("revoke", bot=BOT))["token"]
        queued = await bot.call("sendMessage", chat_id=5, text="with the old token")
        assert queued.result["message_id"] == FIRST_ID
        async with asyncio.timeout(PATIENCE_S):  # Telegram refuses it, and from then on so do we
            await until(lambda: bot.call("sendMessage", chat_id=5, text="x"), lambda answer: answer.status == 401)
        assert (await bot.call("sendMessage", token=new, chat_id=5, text="after")).result["message_id"] > 0
        assert (await bot.call("getMe")).refusal == (401, "Unauthorized")
        await peik.quiet()
        texts = [one["text"] for one in (await sim.get("sent"))["deliveries"]]
        assert texts[:2] == ["before", "with the old token"]
        assert "after" in texts

    play(tmp_path, story, options={"accept_any_token": False}, gateway_wait="100ms", pace="off")


def test_a_closed_gateway_asks_nobody(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        assert (await bot.call("getMe", token="7000009:other")).refusal == (401, "Unauthorized")
        assert "getMe" not in (await sim.get("counters"))["requests"]
        assert (await bot.call("getMe")).result["id"] == BOT

    play(tmp_path, story, gateway_open="off")


# ---- paths and bytes ----


def test_anything_else_is_not_found_and_rest_keeps_its_own(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        for verb, method in (
            ("PUT", "getMe"),
            ("DELETE", "sendMessage"),
            ("POST", ""),
            ("GET", "a/b"),
            ("POST", "no-name"),
        ):
            assert (await bot.send(verb, method)).status == 404
        assert (await bot.send("GET", f"getMe/../../bot{TOKEN}/getMe")).status == 200  # the client's own arithmetic
        status, problem = await peik.call("GET", "/botany", key=None)
        assert (status, problem) == (404, {"ok": False, "error_code": 404, "description": "Not Found"})
        status, problem = await peik.call("GET", "/v1/stats", key=None)
        assert (status, problem["code"]) == (401, "no_key")
        status, problem = await peik.call("GET", "/nowhere")
        assert problem["code"] == "not_found"

    play(tmp_path, story)


def test_odd_bytes_are_read_as_telegram_reads_them(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        body = b"--b\r\ncontent-disposition: form-data; name=chat_id\r\n\r\n5\r\n--b\r\n"
        body += b'Content-Disposition: form-data; name="text"\r\nContent-Type: text/plain\r\n\r\nraw\r\n--b--\r\n'
        chunked = b"".join(b"%x\r\n%b\r\n" % (1, bytes([one])) for one in body) + b"0\r\n\r\n"
        heads = b"Host: x\r\nConnection: close\r\n"
        for request in (
            b'POST /bot%b/sendMessage HTTP/1.1\r\n%bContent-Type: multipart/form-data; boundary="b"\r\n'
            b"Transfer-Encoding: chunked\r\n\r\n%b" % (TOKEN.encode(), heads, chunked),
            b"POST /bot%b/sendmessage?chat_id=5 HTTP/1.1\r\n%bContent-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: 11\r\n\r\ntext=r%%61w&" % (TOKEN.replace(":", "%3A").encode(), heads),
            b"GET /bot%b/sendMessage?text=raw&chat_id=5 HTTP/1.0\r\n\r\n" % TOKEN.encode(),
        ):
            answer = await bot.raw(request)
            assert b'"text":"raw"' in answer, answer

    play(tmp_path, story, pace="off")


def test_a_request_that_could_be_read_in_two_ways_is_refused(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        path = f"/bot{TOKEN}/sendMessage?chat_id=5&text=smuggled".encode()
        smuggled = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path
        both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"
        for headers in (
            both,
            b"Content-Length: 4\r\nContent-Length: 9\r\n",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            b"Transfer-Encoding : chunked\r\n",
            b"Content-Length: +4\r\n",
            b"X: a\rContent-Length: 4\r\n",
        ):
            head = b"POST /bot%b/getMe HTTP/1.1\r\nHost: x\r\n%b\r\n" % (TOKEN.encode(), headers)
            answer = await bot.raw(head + b"0\r\n\r\n" + smuggled)
            assert b" 400 " in answer.partition(b"\r\n")[0], (headers, answer)
        assert (await sim.get("sent"))["total"] == 0

    play(tmp_path, story)


def test_a_body_over_the_limit_is_refused_in_telegrams_envelope(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        large = await bot.send(
            "POST", "sendMessage", data=io.BytesIO(b" " * (1 << 21)), headers={"Content-Type": "application/json"}
        )
        assert large.status == 413
        file = await bot.send("POST", "sendDocument", data=form(chat_id="5", document=io.BytesIO(b"x" * (5 << 20))))
        assert file.status == 413
        assert not list((tmp_path / "peik.db.files").glob("*"))
        assert (await bot.call("sendMessage", chat_id=5, text="small")).status == 200

    play(tmp_path, story, upload_max="4M")


# ---- through a crash ----


def test_nothing_that_was_answered_ok_is_lost_when_peik_and_telegram_fail_in_turn(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        answered: list[str] = []

        async def send(number: int) -> None:
            text = f"message {number}"
            try:
                answer = await bot.call("sendMessage", chat_id=1000 + number % 7, text=text)
            except (aiohttp.ClientError, OSError):
                return
            if answer.json["ok"]:
                answered.append(text)

        for turn in range(3):
            await sim.post("dark", on=turn == 1)
            sends = [asyncio.create_task(send(turn * 30 + one)) for one in range(30)]
            await asyncio.wait(sends, return_when=asyncio.FIRST_COMPLETED)
            if turn != 1:
                await peik.program.kill()
                await peik.start()
            await asyncio.gather(*sends)
        await sim.post("dark", on=False)
        await peik.quiet()
        arrived = {one["text"] for one in (await sim.get("sent"))["deliveries"]}
        assert answered
        assert set(answered) <= arrived

    play(tmp_path, story, gateway_wait="200ms", pace="off", options={"limits": {"on": False}})


# ---- files ----


async def uploaded(bot: Client, sim: Sim, content: bytes) -> str:
    """The path of a file that a person has sent to the bot."""
    message = await sim.post(
        "upload", bot=BOT, user=5, kind="document", base64=base64.b64encode(content).decode(), filename="a.bin"
    )
    found = await bot.call("getFile", file_id=message["document"]["file_id"])
    return str(found.result["file_path"])


def test_a_file_comes_through_whole_in_ranges_and_once(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        content = bytes(range(251)) * 2500
        path = await uploaded(bot, sim, content)
        fetched = await asyncio.gather(*(bot.file(path) for _ in range(8)))
        assert all((status, body) == (200, content) for status, body, _ in fetched)
        status, body, headers = await bot.file(path, Range="bytes=100-199")
        assert (status, body) == (206, content[100:200])
        assert headers["content-range"] == f"bytes 100-199/{len(content)}"
        assert (await bot.file(path, Range="bytes=-5"))[1] == content[-5:]
        assert (await bot.file(path, Range=f"bytes={len(content)}-"))[0] == 416
        status, body, headers = await bot.file(path, verb="HEAD")
        assert (status, body, headers["content-length"]) == (200, b"", str(len(content)))
        assert (await sim.get("counters"))["downloads"] == 1
        await sim.post("dark", on=True)
        assert (await bot.file(path))[1] == content

    play(tmp_path, story)


def test_files_are_kept_within_their_bound_and_larger_ones_stream(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        contents = [bytes([number]) * 250_000 for number in range(5)] + [b"large" * 140_000]
        paths = [await uploaded(bot, sim, content) for content in contents]
        for path, content in zip(paths, contents, strict=True):
            assert (await bot.file(path))[1] == content
        kept = sum(file.stat().st_size for file in (tmp_path / "peik.db.cache").iterdir())
        assert 0 < kept <= 600 * 1024
        status, body, _ = await bot.file(paths[-1], Range="bytes=2-3")
        assert (status, body) == (206, contents[-1][2:4])

    play(tmp_path, story, file_cache="600k")


def test_a_download_goes_on_where_the_network_broke_off(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        content = bytes(range(251)) * 2500
        path = await uploaded(bot, sim, content)
        await sim.post("faults", kind="truncate", share=0.4, count=2, method="download")
        assert (await bot.file(path))[:2] == (200, content)
        assert (await sim.get("counters"))["downloads"] == 3

    play(tmp_path, story)


def test_files_of_others_and_paths_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        path = await uploaded(bot, sim, b"mine")
        assert (await bot.file(path, token=f"{BOT}:wrong"))[0] == 401
        status, body, _ = await bot.file("documents/file_99.bin")
        assert (status, json.loads(body)["description"]) == (404, "Not Found")
        for bad in ("../getMe", "%2e%2e/x", "..%2fx", "%252e%252e/x", "/etc/passwd", "a%5c..%5cb", "a%00b", "a%0d%0ab"):
            answer = await bot.raw(
                f"GET /file/bot{TOKEN}/{bad} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
            )
            assert answer.startswith(b"HTTP/1.1 404 "), (bad, answer)
        await sim.post("dark", on=True)
        status, body, _ = await bot.file("documents/file_98.bin")
        assert (status, json.loads(body)["error_code"]) == (502, 502)

    play(tmp_path, story, options={"accept_any_token": False})


def test_a_server_beside_another_owner_passes_reads_through_an_outage_and_letters_to_the_owner(tmp_path: Path) -> None:
    async def story(bot: Client, sim: Sim, peik: Server) -> None:
        await peik.program.kill()
        config = load(
            {"store": f"sqlite:///{tmp_path}/peik.db", "api_root": sim.url, "inbound": "off"},
            environment={},
            folder=tmp_path,
        )
        async with running(config):
            await peik.start()
            assert (await bot.call("getChat", chat_id=5)).status == 200
            await sim.post("dark", on=True)
            assert (await bot.call("getChat", chat_id=5)).status == 502
            await sim.post("dark", on=False)
            async with asyncio.timeout(PATIENCE_S):
                await until(lambda: bot.call("getChat", chat_id=5), lambda answer: answer.status == 200)
            assert (await bot.call("sendMessage", chat_id=5, text="by the other")).result["message_id"]

    play(tmp_path, story, gateway_wait="15s")
