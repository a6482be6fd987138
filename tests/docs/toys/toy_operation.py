"""In the copy: the new operations answer, are described, want a key, are audited, and have commands."""

import asyncio
from pathlib import Path

import aiohttp

from tests.cli.shell import Shell, served, telegram
from tests.dashboard.visiting import KEY, house

ROOT = Path(__file__).parents[3]


def test_it_answers_wants_a_key_and_is_in_the_document_and_in_the_audit_log(tmp_path: Path) -> None:
    async def story() -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with house(tmp_path) as home, aiohttp.ClientSession(home.url) as http:
            assert (await http.get("/v1/toys")).status == 401
            assert await (await http.get("/v1/toys", headers=headers)).json() == {"count": 3}
            assert await (await http.post("/v1/toys/break", headers=headers)).json() == {"count": 2}
            described = await (await http.get("/openapi.json")).json()
            assert described["paths"]["/v1/toys"]["get"]["summary"] == "How many toys there are."
            assert "Toys" in described["components"]["schemas"]
            audit = await (await http.get("/v1/audit", headers=headers)).json()
            assert "breakToy" in str(audit)

    asyncio.run(story())


def test_it_has_a_command_and_a_line_of_the_reference(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with telegram(shell) as sim, served(shell, sim.url) as url:
        asks = Shell(shell.folder, PEIK_URL=url)
        assert asks.asked("toys", "break") == {"count": 2}
        assert asks.asked("toys", "count") == {"count": 2}
    assert "`GET /v1/toys`" in (ROOT / "docs/reference/rest.md").read_text(encoding="utf-8")
    assert "peik toys count" in (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
