"""The bot of the README, run as it stands: it sends, and whoever writes is answered."""

import asyncio
import textwrap
from pathlib import Path
from typing import Any

import pytest

from peik.testing import Limits, Options, SimServer
from tests.docs.pages import blocks
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN

(BOT,) = blocks("README.md", "python")


def test_it_sends_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"TOKEN": TOKEN}
    exec(compile("async def example():\n" + textwrap.indent(BOT, "    "), "README.md", "exec"), names)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), SimServer(options=Options(limits=Limits(on=False)), seed=7) as sim:
            sim.telegram.bot(TOKEN)
            sim.telegram.write(TOKEN, 5, "hello")
            monkeypatch.setenv("PEIK_API_ROOT", sim.url)
            monkeypatch.setenv("PEIK_PACE", "off")
            running = asyncio.create_task(names["example"]())
            try:
                await sim.until(lambda: sim.telegram.sent.total >= 2 or running.done(), timeout=PATIENCE_S)
            finally:
                running.cancel()
                await asyncio.wait([running])
            assert sim.telegram.sent.texts(42) == ["Hello"]
            assert sim.telegram.sent.texts(5) == ["You said: hello"]

    asyncio.run(main())
