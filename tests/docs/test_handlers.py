"""The example of docs/handlers.md, run as it stands: somebody writes, and is answered."""

import asyncio
import os
import re
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

from peik.testing import Limits, Options, SimServer
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN

PAGE = Path(__file__).parents[2] / "docs" / "handlers.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_example_answers_until_it_is_told_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = EXAMPLES
    names: dict[str, Any] = {"TOKEN": TOKEN}
    exec(compile("async def example():\n" + textwrap.indent(example, "    "), str(PAGE), "exec"), names)
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), SimServer(options=Options(limits=Limits(on=False)), seed=7) as sim:
            sim.telegram.bot(TOKEN)
            sim.telegram.write(TOKEN, 5, "hello")
            monkeypatch.setenv("PEIK_API_ROOT", sim.url)
            program = asyncio.create_task(names["example"]())
            await sim.until(lambda: sim.telegram.sent.texts(5) == ["You said: hello"], timeout=PATIENCE_S)
            os.kill(os.getpid(), signal.SIGTERM)
            await program

    asyncio.run(main())
