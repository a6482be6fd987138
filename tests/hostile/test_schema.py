"""The OpenAPI document describes every route, and schemathesis finds nothing between it and a whole Peik.

`TEST_SCHEMA_EXAMPLES` is how many requests are made up for each operation and phase; more of them for long runs.
"""

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from peik.app.rest import OPERATIONS
from tests.hostile.offices import BOT, KEY, Resident, resident

pytestmark = pytest.mark.gate  # thousands of made-up requests

EXAMPLES = int(os.environ.get("TEST_SCHEMA_EXAMPLES", "20"))
SEED = 20261115
ASKED_MIN = 5  # of each operation, however little there is to make up about it
PROBLEM = {"type", "title", "status", "code", "detail"}

SETTINGS = {
    "seed": SEED,
    "headers": {"Authorization": f"Bearer {KEY}"},
    "workers": 1,
    "continue-on-failure": True,
    "generation": {"deterministic": True, "max-examples": EXAMPLES, "database": "none"},
    "phases": {"stateful": {"max-steps": 6, "generation": {"max-examples": EXAMPLES}}},
    "checks": {
        # Not asked: that whatever fits the schema is accepted. A letter must fit its method, its bot and the clock as well.
        "positive_data_acceptance": {"enabled": False},
        # 503 only where it is documented: a bot with a token of nobody's cannot be recovered.
        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "503"]},
    },
}


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    with resident() as one:
        for text in ("one", "two"):
            letter = {"bot_id": str(BOT), "method": "sendMessage", "params": {"chat_id": 5, "text": text}}
            assert one.rest("POST", "/v1/letters", json=letter, query="wait=200ms").status in (200, 202)
        yield one
        assert not one.surprises()
        assert not one.crashes


def test_schemathesis_finds_nothing_in_any_operation(peik: Resident) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", peik.asgi, config=SchemathesisConfig.from_dict(SETTINGS))
    failures: dict[str, str] = {}
    asked: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tool itself
        for event in from_schema(schema).execute():
            if isinstance(event, events.NonFatalError | events.FatalError):
                failures[str(event)] = repr(getattr(event, "value", event))
            elif isinstance(event, events.ScenarioFinished):
                _collect(event.recorder, asked, failures)
    assert not failures, "\n\n".join(f"{name}\n{text}" for name, text in sorted(failures.items()))
    operations = [found.ok() for found in schema.get_all_operations()]
    assert {one.definition.raw["operationId"] for one in operations} == set(OPERATIONS)
    assert [one.label for one in operations if asked[one.label] < ASKED_MIN] == []


def _collect(recorder: Any, asked: Counter[str], failures: dict[str, str]) -> None:
    """What a scenario asked, what its checks found, and whether every refusal is a problem as RFC 9457 has it."""
    for case_id, nodes in recorder.checks.items():
        for node in nodes:
            if node.failure_info is not None:
                case = recorder.cases[case_id].value
                failure = node.failure_info.failure
                failures[f"{case.operation.label}: {node.name}"] = f"{failure}\n{case.as_curl_command()}"
    for case_id, interaction in recorder.interactions.items():
        label = recorder.cases[case_id].value.operation.label
        asked[label] += 1
        response = interaction.response
        if response is None or response.status_code < 400:
            continue
        kind = response.headers.get("content-type", [""])[0]
        problem = response.json() if kind == "application/problem+json" else None
        if (
            problem is None
            or set(problem) != PROBLEM
            or problem["status"] != response.status_code
            or not problem["code"]
        ):
            failures[f"{label}: no problem"] = f"{response.status_code} {kind} {response.content[:200]!r}"


def test_every_operation_has_a_stable_id_a_sentence_and_an_example(peik: Resident) -> None:
    document = peik.rest("GET", "/openapi.json").json
    assert document["openapi"] == "3.1.0"
    ids = []
    for verbs in document["paths"].values():
        for operation in verbs.values():
            ids.append(operation["operationId"])
            assert operation["summary"].endswith("."), operation
            body = operation.get("requestBody")
            assert body is None or body["content"]["application/json"]["example"]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(OPERATIONS)
