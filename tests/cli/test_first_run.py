"""The first minutes with `peik serve`: what it says when nothing is set, and when something is wrong. Each time one line, with
the setting and the fix, and never a traceback."""

import asyncio
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from peik import __version__
from peik.app.serve import greeting, own_command
from peik.errors import StartError
from peik.settings.config import load
from tests.cli.shell import Shell, started
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, TOKEN, Server, simulated


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, PEIK_PORT="0")


def test_with_nothing_set_it_says_what_comes_next(shell: Shell) -> None:
    with started(
        shell, "serve", ready=r"start it with (http://\S+) in place of"
    ) as match:  # the last but one line of all
        answer = urllib.request.urlopen(match[1], timeout=PATIENCE_S)
        assert (
            answer.url == f"{match[1]}/admin/sign-in"
        )  # what stands there is the dashboard, for whoever has a browser
    said = greeting("http://127.0.0.1:8081", key_path=None, bots=0, is_open=False)
    for words in ("peik demo", "BOT_TOKEN=", "peik bots add", "`peik doctor`"):
        assert words in said
    assert greeting("http://[::1]:1", key_path=Path("peik.db.key"), bots=2, is_open=True).splitlines() == [
        "Peik listens on http://[::1]:1 (dashboard at /admin, API at /docs), 2 bots.",
        "The admin key is in peik.db.key.",
    ]
    by_name = greeting("http://[::1]:1", key_path=None, bots=1, is_open=True, redis="redis://cache:6379/0").splitlines()
    assert by_name[1:] == [
        "REDIS_HOST is set, so the store is redis://cache:6379/0. For a file: PEIK_STORE=sqlite:///peik.db."
    ]


def test_a_redis_by_the_name_of_others_says_why_it_is_the_store_where_its_package_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['hiredis'] = None; sys.argv = ['peik', 'serve']; from peik.app.cli import main; main()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PEIK_STORE"}
    for where in ("environment", ".env"):
        named = {"REDIS_HOST": "127.0.0.1"} if where == "environment" else {}
        (tmp_path / ".env").write_text("REDIS_HOST=127.0.0.1\n" if where == ".env" else "", encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={**environment, **named, "PEIK_PORT": "0"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        said = " ".join(ran.stderr.split())
        assert ran.returncode != 0
        assert "REDIS_HOST is set, so the store is that Redis, which needs a package" in said, said
        assert "(hiredis): pip install '.[redis]' in a checkout of Peik" in said, said
        assert "For a file: PEIK_STORE=sqlite:///peik.db." in said, said


def test_a_checkout_is_told_the_command_that_it_has() -> None:
    here = Path("/home/sara/peik")
    assert own_command("/home/sara/peik/.venv/bin/peik", folder=here, on_path=None) == ".venv/bin/peik"
    assert own_command("/opt/peik/bin/peik", folder=here, on_path=None) == "/opt/peik/bin/peik"
    assert own_command("/usr/bin/peik", folder=here, on_path="/usr/bin/peik") == "peik"
    assert own_command("/somewhere/peik/__main__.py", folder=here, on_path=None) == "peik"
    said = greeting("http://127.0.0.1:8081", key_path=None, bots=0, is_open=False, peik=".venv/bin/peik")
    assert ".venv/bin/peik demo" in said
    assert "`.venv/bin/peik doctor`" in said


def test_a_webhook_of_another_program_is_told_with_how_to_give_it_back_and_so_is_a_bot_that_stays_polled(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with simulated(tmp_path) as (sim, http):
            await sim.post("bots", token=TOKEN)
            async with http.post(f"{sim.url}/bot{TOKEN}/setWebhook", json={"url": "https://shop.example/tg"}) as set_up:
                assert set_up.status == 200
            server = Server(tmp_path, sim.url, http, inbound="polling", poll_timeout="1s")
            await server.start()
            try:
                while not any("the webhook of this bot led elsewhere" in line for line in server.output):  # noqa: ASYNC110  nobody rings for it
                    await asyncio.sleep(0.02)
                (line,) = [line for line in server.output if "led elsewhere" in line]
                assert "shop.example" in line
                assert f"peik bots inbound {BOT}" in line
                assert "/tg" not in line  # the rest of the address can be a secret
                assert not any("PEIK_INBOUND" in line for line in server.output)
                assert await server.program.terminate() == 0
                server.output.clear()
                server._environment["PEIK_INBOUND"] = "off"
                await server.start()
                await server.get("/v1/bots")
                assert await server.program.terminate() == 0
                (line,) = [line for line in server.output if "PEIK_INBOUND=off" in line]
                assert f"bot {BOT} keeps polling" in line
                assert f"peik bots inbound {BOT} off" in line
            finally:
                if server.program.process.returncode is None:
                    await server.program.kill()

    async def in_time() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(in_time())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"BOT_TOKEN": "hello"},
            "BOT_TOKEN or PEIK_BOT_TOKENS: This is not a bot token. It should look like 123456789:",
        ),
        ({"PEIK_PORT": "abc"}, "PEIK_PORT: 'abc' is not a whole number."),
        ({"PEIK_HOST": "192.0.2.7"}, "PEIK_HOST is no address of this machine: set 127.0.0.1"),
        ({"PEIK_HOST": "no.such.invalid"}, "PEIK_HOST is no address of this machine: set 127.0.0.1"),
        ({"PEIK_STORE": "sqlite:///note.txt/peik.db"}, "note.txt cannot be written: "),
        ({"PEIK_STORE": "sqlite:///note.txt"}, "not a SQLite database. Name another one in PEIK_STORE."),
        (
            {"PEIK_STORE": "redis://127.0.0.1:1"},
            "Redis cannot be reached. Start it, or set PEIK_STORE to where it is. (",
        ),
        (
            {"PEIK_STORE": "postgresql://a:b@127.0.0.1:1/c"},
            "server cannot be reached. Start it, or set PEIK_STORE to where it is. (",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_fix(shell: Shell, settings: dict[str, str], words: str) -> None:
    (shell.folder / "note.txt").write_text("Milk, bread and whatever else a person notes down.\n", encoding="utf-8")
    ran = shell.peik("serve", **settings)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("peik: ")
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_a_taken_port_is_told_with_the_way_out(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ran = shell.peik("serve", PEIK_PORT=str(other.getsockname()[1]))
    assert ran.code == 1
    assert "Another program listens there, perhaps another Peik. Stop it, or set PEIK_PORT to another port." in ran.err


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (b"PEIK_PORT=0\n\nport 8081\n", ".env, line 3: this is not NAME=value. Mend it, or put # before it."),
        ("PEIK_HOST=کتاب\n".encode("cp1256"), ".env cannot be read: it is not text in UTF-8. Save it as UTF-8."),
        ("PEIK_PORT=0\n".encode("utf-16"), ".env cannot be read: it is not text in UTF-8. Save it as UTF-8."),
    ],
)
def test_an_env_file_that_cannot_be_read_is_not_passed_over(shell: Shell, written: bytes, words: str) -> None:
    (shell.folder / ".env").write_bytes(written)
    ran = shell.peik("serve")
    assert (ran.code, ran.err) == (1, f"peik: {words}\n")


@pytest.mark.parametrize("name", [".env", "peik.toml"])
def test_a_file_that_the_system_does_not_let_us_read_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/proc/self/mem")  # a file that nobody can read from its start, root neither
    with pytest.raises(StartError, match=rf"{name} cannot be read: .*\. Give this user the right to read it"):
        load(environment={}, folder=tmp_path)


def test_an_admin_key_that_cannot_be_read_is_told(shell: Shell) -> None:
    (shell.folder / "peik.db.key").symlink_to("/proc/self/mem")
    ran = shell.peik("serve")
    assert ran.code == 1
    assert "peik.db.key cannot be read: " in ran.err
    assert "Start Peik as the user it belongs to, or set PEIK_ADMIN_KEY." in ran.err


def test_env_files_of_windows_and_folders_named_so_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes("\ufeffPEIK_PORT=7\r\nPEIK_HOST=h\r\n".encode())
    config = load(environment={}, folder=tmp_path)
    assert (config.port, config.host) == (7, "h")
    (tmp_path / ".env").unlink()
    (tmp_path / ".env").mkdir()  # many keep a virtual environment under that name
    assert load(environment={}, folder=tmp_path).port == 8081


def test_the_version_is_found_where_people_look_for_it(shell: Shell) -> None:
    for flag in ("--version", "-V"):
        assert (ran := shell.peik(flag)).out == __version__ + "\n", ran
        assert ran.code == 0
