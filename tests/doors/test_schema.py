"""The OpenAPI document describes every route, and schemathesis finds nothing between it and the real server."""

import asyncio
import sys
from pathlib import Path

from tests.doors.test_rest import play
from tests.processes.programs import KEY, Server, Sim

# Not asked: that whatever fits the schema is accepted. A letter must fit its method, its bot and the clock as well.
_NOT_ASKED = "positive_data_acceptance"


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"{server.url}/openapi.json",
            *("--header", f"Authorization: Bearer {KEY}"),
            *("--exclude-checks", _NOT_ASKED),
            *("--exclude-operation-id", "streamArrivals"),  # it never ends; tests/doors/test_sse.py listens to it
            *("--phases", "examples,coverage,fuzzing"),
            *("--max-examples", "20", "--seed", "20261115", "--request-timeout", "30"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()[-6000:]

    play(tmp_path, story, wait_max="1s")


def test_every_operation_has_a_stable_id_a_sentence_and_an_example(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        document = await server.get("/openapi.json")
        assert document["openapi"] == "3.1.0"
        ids = []
        for verbs in document["paths"].values():
            for operation in verbs.values():
                ids.append(operation["operationId"])
                assert operation["summary"].endswith("."), operation
                body = operation.get("requestBody")
                assert body is None or body["content"]["application/json"]["example"]
        assert len(ids) == len(set(ids))

    play(tmp_path, story)
