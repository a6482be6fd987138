"""The REST door as a client meets it: a real server process and a simulated Telegram behind it."""

import asyncio
import io
import json
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.processes.programs import BOT, Server, Sim, served, simulated

Story = Callable[[Server, Sim], Coroutine[Any, Any, None]]


def play(folder: Path, story: Story, **settings: str) -> None:
    async def main() -> None:
        async with simulated(folder) as (sim, http), served(folder, sim.url, http, **settings) as server:
            await story(server, sim)
            assert not server.surprises()

    asyncio.run(main())


def message(**params: object) -> dict[str, Any]:
    return {"method": "sendMessage", "params": {"chat_id": 5, "text": "hello"} | params}


def test_a_letter_from_acceptance_to_its_history(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        status, accepted = await server.call("POST", "/v1/letters", json=message())
        assert status == 202
        assert accepted["state"] == "waiting"
        assert isinstance(accepted["id"], str)
        letter = await server.get(f"/v1/letters/{accepted['id']}?wait=200s")
        assert letter["state"] == "completed"
        assert letter["attempts_made"] == 1
        assert letter["progress"] == 100
        assert letter["result"]["text"] == "hello"
        assert letter["bot_id"] == str(BOT)
        assert letter["chat_id"] == "5"
        assert letter["created_at"].endswith("Z")
        assert [line["outcome"] for line in letter["history"]] == ["delivered"]

    play(tmp_path, story)


def test_wait_answers_with_telegrams_result_at_once(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        status, letter = await server.call("POST", "/v1/letters?wait=200s", json=message())
        assert (status, letter["state"]) == (200, "completed")
        await server.call("PATCH", f"/v1/bots/{BOT}", json={"paused": True})
        status, letter = await server.call("POST", "/v1/letters?wait=200ms", json=message(text="later"))
        assert (status, letter["state"]) == (202, "waiting")

    play(tmp_path, story)


def test_all_terms_of_a_letter_are_taken(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        body = message() | {
            "bot_id": str(BOT),
            "priority": 2,
            "attempts": 3,
            "backoff": {"type": "fixed", "delay": 100},
            "timeout_ms": 30_000,
            "send_at": "2030-01-01T00:00:00+03:30",
            "expires_at": 1_900_000_000,
            "on_uncertain": "hold",
            "idempotency_key": "k1",
            "metadata": {"user_id": 17, "message_type": "receipt"},
        }
        status, accepted = await server.call("POST", "/v1/letters", json=body)
        assert (status, accepted["state"]) == (202, "delayed")
        letter = await server.get(f"/v1/letters/{accepted['id']}")
        assert (letter["priority"], letter["attempts"], letter["on_uncertain"]) == (2, 3, "hold")
        assert letter["send_at"] == "2029-12-31T20:30:00.000Z"
        assert letter["metadata"] == {"user_id": 17, "message_type": "receipt"}
        status, repeat = await server.call("POST", "/v1/letters", json=body)
        assert (status, repeat["id"]) == (202, accepted["id"])
        assert (await server.get("/v1/stats"))["delayed"] == 1

    play(tmp_path, story)


def test_a_batch_is_all_or_nothing(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        good = [message(chat_id=chat, text=f"to {chat}") for chat in range(1, 6)]
        status, answer = await server.call("POST", "/v1/letters/batch", json={"letters": good})
        assert status == 202
        assert len(answer["ids"]) == 5
        status, problem = await server.call(
            "POST", "/v1/letters/batch", json={"letters": [*good, {"method": "sendMessage", "params": {}}]}
        )
        assert (status, problem["code"]) == (422, "missing_chat_id")
        await sim.get("sent", at_least=5)
        assert (await server.quiet())["completed"] == 5

    play(tmp_path, story)


def test_a_file_goes_up_as_multipart_and_arrives_byte_for_byte(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        content = bytes(range(256)) * 1000
        form = aiohttp.FormData(quote_fields=False)
        form.add_field("letter", json.dumps({"method": "sendDocument", "params": {"chat_id": 5, "caption": "سلام"}}))
        form.add_field("document", content, filename="گزارش.bin", content_type="application/octet-stream")
        status, letter = await server.call("POST", "/v1/letters?wait=200s", data=form)
        assert (status, letter["state"]) == (200, "completed"), letter
        document = letter["result"]["document"]
        assert (document["file_size"], document["file_name"]) == (len(content), "گزارش.bin")
        assert letter["result"]["caption"] == "سلام"
        assert not any((tmp_path / "peik.db.files").iterdir())

    play(tmp_path, story)


BAD = [
    ({"json": {"params": {"chat_id": 5}}}, 422, "bad_request"),
    ({"json": message() | {"surprise": 1}}, 422, "bad_request"),
    ({"data": b"{not json"}, 422, "bad_json"),
    ({"data": b'{"method":"sendMessage","params":{"chat_id":5,"text":"\xff"}}'}, 422, "bad_params"),
    ({"json": message() | {"bot_id": 1}}, 404, "unknown_bot"),
    ({"json": {"method": "sendMessage", "params": {"text": "to whom?"}}}, 422, "missing_chat_id"),
    ({"json": message(text="x" * 4097)}, 422, "text_too_long"),
    ({"json": message(text=" ")}, 422, "text_empty"),
    ({"json": {"method": "send Message", "params": {}}}, 422, "bad_method"),
    ({"json": {"method": "getMe", "params": {}}}, 422, "not_queueable"),
    ({"json": {"method": "sendMessage", "params": [1]}}, 422, "bad_params"),
    ({"json": message() | {"priority": 7}}, 422, "bad_priority"),
    ({"json": message() | {"attempts": 0}}, 422, "bad_attempts"),
    ({"json": message() | {"send_at": "tomorrow"}}, 422, "bad_time"),
    ({"json": message() | {"expires_at": 5}}, 422, "already_expired"),
    ({"json": message() | {"metadata": "text"}}, 422, "bad_metadata"),
    ({"json": message(reply_parameters={"message_id": {"letter": "77"}})}, 422, "unknown_reference"),
]


def test_bad_input_is_refused_with_a_stable_code_and_a_sentence(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        for request, status, code in BAD:
            got, problem = await server.call("POST", "/v1/letters", **request)
            assert (got, problem["code"]) == (status, code), (request, problem)
            assert problem["status"] == status
            assert problem["detail"].endswith((".", "```", "!")) or ":" in problem["detail"]
        assert (await server.quiet())["completed"] == 0

    play(tmp_path, story)


def test_wrong_keys_paths_and_verbs_are_refused(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        for path in ("/v1/letters/1", "/v1/stats", "/v1/bots", f"/v1/bots/{BOT}"):
            assert (await server.call("GET", path, key=None))[1]["code"] == "no_key"
            assert (await server.call("GET", path, key="wrong"))[1]["code"] == "wrong_key"
        assert (await server.call("POST", "/v1/letters", key="wrong", json=message()))[0] == 401
        assert (await server.call("POST", "/v1/letters/batch", key=None, json={"letters": []}))[0] == 401
        assert (await server.call("POST", "/v1/bots", key=None, json={"token": "1:abc"}))[0] == 401
        assert (await server.call("DELETE", f"/v1/bots/{BOT}", key="wrong"))[0] == 401
        assert (await server.call("GET", "/nowhere"))[1]["code"] == "not_found"
        assert (await server.call("PUT", "/v1/letters"))[1]["code"] == "method_not_allowed"
        assert (await server.call("GET", "/v1/letters/999"))[1]["code"] == "unknown_letter"
        assert (await server.call("GET", "/v1/letters/abc"))[1]["code"] == "bad_letter_id"
        assert (await server.call("GET", "/health", key=None))[0] == 200
        assert (await server.call("HEAD", "/health", key=None))[0] == 200
        assert (await server.call("GET", "/v1/bots", key=None, headers={"X-Api-Key": "test-key"}))[0] == 200

    play(tmp_path, story)


def test_bots_are_added_shown_without_their_token_and_removed(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        assert (await server.call("POST", "/v1/bots", json={"token": "no token"}))[1]["code"] == "malformed_token"
        assert (await server.call("POST", "/v1/bots", json={"token": "42:SECRET", "inbound": "maybe"}))[1][
            "code"
        ] == "bad_inbound"
        status, bot = await server.call("POST", "/v1/bots", json={"token": "42:SECRET", "inbound": "off"})
        assert (status, bot["bot_id"]) == (201, "42")
        assert "SECRET" not in json.dumps(await server.get("/v1/bots"))
        assert (await server.call("POST", "/v1/letters", json=message()))[1]["code"] == "which_bot"
        status, letter = await server.call("POST", "/v1/letters?wait=200s", json=message() | {"bot_id": 42})
        assert (status, letter["bot_id"]) == (200, "42")
        assert (await server.call("DELETE", "/v1/bots/42"))[0] == 204
        assert (await server.call("GET", "/v1/bots/42"))[1]["code"] == "unknown_bot"

    play(tmp_path, story)


def test_bodies_and_uploads_over_the_limit_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        status, problem = await server.call("POST", "/v1/letters", data=io.BytesIO(b"x" * 3_000_000))
        assert (status, problem["code"]) == (413, "body_too_large")

        async def endless() -> Any:
            for _ in range(300):
                yield b"x" * 10_000

        status, problem = await server.call("POST", "/v1/letters", data=endless())
        assert (status, problem["code"]) == (413, "body_too_large")
        form = aiohttp.FormData()
        form.add_field("letter", json.dumps({"method": "sendDocument", "params": {"chat_id": 5}}))
        form.add_field("document", io.BytesIO(b"y" * 1_500_000), filename="big.bin")
        status, problem = await server.call("POST", "/v1/letters", data=form)
        assert (status, problem["code"]) == (413, "file_too_large")
        folder = tmp_path / "peik.db.files"
        assert not folder.exists() or not any(folder.iterdir())

    play(tmp_path, story, body_max="1M", upload_max="1M")


@pytest.mark.gate  # waits as long as a lock is waited for
def test_a_locked_database_is_a_503_that_says_so_and_nothing_is_lost(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        blocker = sqlite3.connect(tmp_path / "peik.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        status, problem = await server.call("POST", "/v1/letters", json=message())
        assert (status, problem["code"]) == (503, "store_locked")
        blocker.execute("ROLLBACK")
        blocker.close()
        status, letter = await server.call("POST", "/v1/letters?wait=200s", json=message())
        assert (status, letter["state"]) == (200, "completed")

    play(tmp_path, story)


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_the_api_describes_itself(tmp_path: Path, path: str) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with server._http.get(server.url + path) as response:
            assert response.status == 200

    play(tmp_path, story)


def test_a_client_that_breaks_off_leaves_neither_a_letter_nor_a_surprise(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = "POST /v1/letters HTTP/1.1\r\nHost: peik\r\nX-Api-Key: test-key\r\nContent-Length: 1000\r\n\r\n"
        writer.write(head.encode() + b'{"method": "sendMessage"')
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        status, letter = await server.call("POST", "/v1/letters?wait=200s", json=message())
        assert (status, letter["id"]) == (200, "1")
        await server.program.terminate()

    play(tmp_path, story)
