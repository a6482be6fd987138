"""docs/node.md as it stands: the typed client is generated from what a running Peik says of itself, checked by the compiler,
and run."""

import asyncio
import json
import re
import shlex
import subprocess
from pathlib import Path

import aiohttp
import pytest

from peik.testing import Limits, Options, SimServer
from tests.clients import node
from tests.docs.pages import blocks, read
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, served

PAGE = "docs/node.md"
(PROGRAM,) = blocks(PAGE, "ts")
(TYPED,) = blocks(PAGE, "sh")
OPTIONS = {
    "target": "es2022",
    "module": "esnext",
    "moduleResolution": "bundler",
    "strict": True,
    "types": [],
    "outDir": "made",
}
COMPILED = {"compilerOptions": OPTIONS | {"rewriteRelativeImportExtensions": True}, "files": ["send.ts", "node.d.ts"]}
# What Node has and this folder's packages do not bring types for.
NODE = "declare const process: { env: Record<string, string | undefined> };\n"


def ran(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={"PATH": f"{Path(str(command[0])).parent}:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def made(folder: Path, url: str) -> Path:
    """The page's folder, with its client generated as the page says."""
    program = node.wanted(has_packages=True)
    (folder / "node_modules").symlink_to(node.PACKAGES)
    generating = TYPED.splitlines()[-1].replace("http://127.0.0.1:8081", url)
    _, name, *words = shlex.split(generating)
    said = ran(program, node.PACKAGES / name / "bin" / "cli.js", *words, folder=folder)
    assert said.returncode == 0, said.stdout + said.stderr
    (folder / "send.ts").write_text(PROGRAM, encoding="utf-8")
    (folder / "node.d.ts").write_text(NODE, encoding="utf-8")
    (folder / "tsconfig.json").write_text(json.dumps(COMPILED), encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return program


def compiled(program: Path, folder: Path) -> str:
    return ran(program, node.PACKAGES / "typescript" / "bin" / "tsc", folder=folder).stdout


@pytest.mark.gate  # a compiler of TypeScript, several times
def test_the_typed_client_of_the_page_compiles_sends_and_refuses_what_is_misspelt(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            SimServer(options=Options(limits=Limits(on=False)), seed=7) as sim,
            aiohttp.ClientSession() as http,
            served(tmp_path, sim.url, http) as server,
        ):
            document = await server.get("/openapi.json")
            asked = re.findall(r"(GET|POST|PUT|PATCH|DELETE) (/v1/[\w/{}-]+)", read(PAGE))
            assert len(asked) >= 10
            assert [one for one in asked if one[0].lower() not in document["paths"].get(one[1], {})] == []
            program = await asyncio.to_thread(made, tmp_path, server.url)
            assert await asyncio.to_thread(compiled, program, tmp_path) == ""
            given = {"PEIK_URL": server.url, "PEIK_KEY": KEY}
            said = [await asyncio.to_thread(ran, program, "made/send.js", folder=tmp_path, **given) for _ in "12"]
            assert [one.stdout for one in said] == ["completed 1 1\n"] * 2, said[0].stderr
            assert sim.telegram.sent.texts(7) == ["Order 17 is on its way"]
            refused = await asyncio.to_thread(ran, program, "made/send.js", folder=tmp_path, PEIK_URL=server.url)
            assert "Peik did not accept it" in refused.stderr

        wrong = PROGRAM
        for right, mistaken in (
            ("/v1/stats", "/v1/statistics"),
            ("chat_id: chatId", "chat_id: chatIds"),
            ("?.state", "?.status"),
        ):
            wrong = wrong.replace(right, mistaken)
        (tmp_path / "send.ts").write_text(wrong.replace("priority: 1", 'priority: "high"'), encoding="utf-8")
        told = compiled(program, tmp_path)
        assert {"chatIds", "status", "arguments"} <= set(re.findall(r"\w+", told)), told
        assert re.search(r"string. is not assignable to type .number", told), told

    asyncio.run(main())
