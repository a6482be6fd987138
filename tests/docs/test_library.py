"""Every example of docs/library.md, run as it stands against a simulated Telegram."""

import asyncio
import re
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from peik.testing import Limits, Options, SimServer
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, TOKEN, served

PAGE = Path(__file__).parents[2] / "docs" / "library.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def runnable(example: str, names: dict[str, Any]) -> Callable[[], Coroutine[Any, Any, None]]:
    exec(compile("async def example():\n" + textwrap.indent(example, "    "), str(PAGE), "exec"), names)
    run: Callable[[], Coroutine[Any, Any, None]] = names["example"]
    return run


def test_the_page_has_its_examples() -> None:
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.pdf").write_bytes(b"%PDF")
    names = {"TOKEN": TOKEN, "KEY": KEY, "chat_id": 5, "subscribers": [1, 2, 3]}

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), SimServer(options=Options(limits=Limits(on=False)), seed=7) as sim:
            if "Peik.connect(" not in EXAMPLES[number]:
                monkeypatch.setenv("PEIK_API_ROOT", sim.url)
                monkeypatch.setenv("PEIK_PACE", "off")
                await runnable(EXAMPLES[number], names)()
                return
            async with aiohttp.ClientSession() as http, served(tmp_path, sim.url, http) as server:
                await runnable(EXAMPLES[number], names | {"URL": server.url})()

    asyncio.run(main())
