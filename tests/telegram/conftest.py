import asyncio
import gc
import shutil
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.patience import PATIENCE_S

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a story to its end on each loop, and lets nothing be left open behind it."""

    def run_to_the_end(story: Coroutine[Any, Any, None]) -> None:
        surprises: list[dict[str, Any]] = []

        async def guarded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context))
            async with asyncio.timeout(PATIENCE_S):
                await story

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(guarded())
        gc.collect()  # a socket or file that was forgotten warns now, and warnings are errors
        assert surprises == []

    return run_to_the_end


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost with its key, made for this run and kept nowhere."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    where = tmp_path_factory.mktemp("tls") / "localhost.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command += " -addext subjectAltName=DNS:localhost"
    subprocess.run([*command.split(), "-keyout", where, "-out", f"{where}.crt"], check=True, capture_output=True)
    where.write_bytes(where.read_bytes() + Path(f"{where}.crt").read_bytes())
    return where


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def client_tls(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=f"{certificate}.crt")
