"""The page about the outbox, block by block as it stands, and the example that it names."""

import json
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.storage.acts import all_lanes, front
from tests.storage.places import OTHER_BOT
from tests.storage.postgres.outbox_service import program
from tests.storage.postgres_place import PostgresPlace

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "transactional-outbox.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(sql|python)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
CUSTOMER = 4242


async def test_the_page_runs_from_its_first_block_to_its_last(place: PostgresPlace) -> None:
    async with place.open() as node, program(place) as app:
        await app.execute(f"CREATE TABLE orders (id bigint, customer bigint); CREATE ROLE shop_app_{place.schema}")
        names: dict[str, Any] = {"URL": f"{place.server.url}?search_path={place.schema}"}
        for language, block in BLOCKS:
            here = block.replace("peik.enqueue", f"{place.schema}.enqueue").replace(
                "SCHEMA peik", f"SCHEMA {place.schema}"
            )
            here = here.replace("shop_app", f"shop_app_{place.schema}").replace(
                "bot_id=7", f"bot_id=7, schema={place.schema!r}"
            )
            if language == "sql":
                await app.execute(here)
            else:
                exec("async def example():\n" + textwrap.indent(here, "    "), names)
                await names["example"]()
        texts = [json.loads(letter.params).get("text") for letter in await front(node, CUSTOMER)]
        told_by_trigger = told_by_program = "Order 18 is on its way."
        assert texts == ["Order 17 is on its way.", told_by_trigger, told_by_program, None]
        assert [language for language, _ in BLOCKS] == ["sql", "sql", "sql", "python", "sql"]
        await app.execute(f"DROP OWNED BY shop_app_{place.schema}; DROP ROLE shop_app_{place.schema}")


async def test_the_shop_tells_of_every_order_and_of_none_that_failed(place: PostgresPlace) -> None:
    shop = runpy.run_path(str(ROOT / "examples" / "transactional_outbox" / "shop.py"))
    async with place.open() as node, program(place) as app:
        await node.remove_bot(OTHER_BOT)
        await app.execute(shop["TABLES"])
        numbers = [await shop["order"](app, CUSTOMER, "lamp", schema=place.schema) for _ in range(3)]
        with pytest.raises(asyncpg.CheckViolationError):
            await shop["order"](app, CUSTOMER, "lamp", schema=place.schema)
        told = [json.loads(letter.params)["text"] for letter in await front(node, CUSTOMER)]
        assert told == [f"Your lamp is on its way. Order {number}." for number in numbers]
        assert [row[0] for row in await place.run("SELECT id FROM orders ORDER BY id")] == numbers
        assert list(await all_lanes(node)) == [(CUSTOMER, 0)]
