"""Schemathesis against a Peik with accounts: what the document says of them is what it answers. Without accounts, and for the
streams, tests/hostile/test_schema.py asks."""

import asyncio
import warnings
from collections import Counter
from pathlib import Path

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from tests.hostile.test_schema import SETTINGS
from tests.hostile.test_schema import _collect as collect
from tests.web.accounts import KEY, House, play_house

pytestmark = pytest.mark.gate  # thousands of made-up requests

PATHS = "^/v1/(sessions|messages|events|logs|readers)"
OPERATIONS_MIN = 25
ALI = "+998900000001"


def test_schemathesis_finds_nothing_in_any_operation_of_accounts(tmp_path: Path) -> None:
    def look(url: str) -> tuple[dict[str, str], Counter[str]]:
        failures: dict[str, str] = {}
        asked: Counter[str] = Counter()
        settings = SETTINGS | {"headers": {"Authorization": f"Bearer {KEY}"}}
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=SchemathesisConfig.from_dict(settings))
        chosen = schema.include(path_regex=PATHS).exclude(path_regex="/stream$")  # which never end
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the tool itself
            for event in from_schema(chosen).execute():
                if isinstance(event, events.NonFatalError | events.FatalError):
                    failures[str(event)] = repr(getattr(event, "value", event))
                elif isinstance(event, events.ScenarioFinished):
                    collect(event.recorder, asked, failures)
        return failures, asked

    async def story(house: House) -> None:
        ali = house.telegram.register(ALI, first_name="Ali")
        sara = house.telegram.register("+998900000002", first_name="Sara")
        chat = house.telegram.private(ali, sara)
        session_id = await house.signed_in(ali)
        house.telegram.say(chat, sara, "Salam")
        await house.messages(1, f"&session_id={session_id}")
        failures, asked = await asyncio.to_thread(look, house.url)
        assert not failures, "\n\n".join(f"{name}\n{text}" for name, text in sorted(failures.items()))
        assert len(asked) >= OPERATIONS_MIN
        await house.signed_in(house.telegram.register("+998900000003"), agent_id="after all that")

    play_house(tmp_path, story)
