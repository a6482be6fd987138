"""No secret is in the log, wherever it stood: in an address, an error, the cause of its cause, the words of a library."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from peik.core.events import Surprise
from peik.monitoring.log import EventLog
from peik.monitoring.log_file import LogFile, plain_log, set_up

SECRET = "AAF4x-9_zQeRtYuIoPaSdFgHjKlZxCvBnM0"
TOKEN = f"7000001:{SECRET}"
PASSWORD = "s3cr3t-p4ssword"
WORDS = (
    f"GET https://api.telegram.org/bot{TOKEN}/getMe failed",
    f"Cannot connect to host api.telegram.org ssl:default path=/bot{TOKEN}@stats/getUpdates?offset=5",
    f"/file/bot{TOKEN}/documents/file_1.pdf",
    f"https://proxy.example/?url=https%3A%2F%2Fapi.telegram.org%2Fbot{TOKEN.replace(':', '%3A')}%2FgetMe",
    f"https://proxy.example/?next=bot{TOKEN.replace(':', '%253a').replace('-', '%252D')}",
    f'{{"url":"https://api.telegram.org/bot{TOKEN.replace(":", chr(92) + "u003a")}/getMe"}}',
    f"https://telegram.example/bot{TOKEN}/test/getMe",
    f"{{'token': '{TOKEN}'}}",
    f"could not connect to postgresql://peik:{PASSWORD}@db.example:5432/peik",
    f"socks5://user:{PASSWORD}@proxy.example:1080 refused; redis://:{PASSWORD}@cache.example/0 too",
    f"mongodb+srv://peik:{PASSWORD}@a.example,b.example/?replicaSet=rs0",
)
LIBRARIES = (
    "uvicorn.error", "uvicorn.access", "asyncio", "aiohttp.client", "aiohttp.access", "httpx", "httpcore.connection",
    "telethon.network.mtprotosender", "pymongo.connection", "asyncpg", "redis", "apscheduler",
)  # fmt: skip


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # as in a program of its own
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def raised(words: str, depth: int) -> Exception:
    """An error with such a cause, so many causes deep, each with its own message."""
    try:
        try:
            if depth:
                raise raised(words, depth - 1)
            raise OSError(words)
        except Exception as cause:
            if depth % 2:
                raise RuntimeError("it failed") from cause
            raise ValueError(f"it failed: {cause}")  # noqa: B904  by its context
    except Exception as error:  # noqa: BLE001  it is what was asked for
        return error


def is_clean(text: str) -> bool:
    return SECRET[8:] not in text and PASSWORD not in text


def everything_said(words: str, depth: int, library: str) -> None:
    error = raised(words, depth)
    log = structlog.get_logger("peik").bind(address=words)
    log.warning("! said", nested={"a": [words, (words,)]}, data=words.encode())
    log.error(words, exc_info=error)
    EventLog(level="debug")([Surprise(where=words, error=f"{type(error).__name__}: {words}")])
    plain_log().error("! said", why=words)
    foreign = logging.getLogger(library)
    foreign.warning("%s of %r", words, [words])
    foreign.error("it failed", exc_info=error)
    foreign.error(words, stack_info=True)


@settings(max_examples=25)
@given(
    words=st.sampled_from(WORDS),
    around=st.tuples(st.text(max_size=8), st.text(max_size=8)),
    depth=st.integers(0, 4),
    library=st.sampled_from(LIBRARIES),
    form=st.sampled_from(["json", "text"]),
)
def test_nothing_secret_is_on_stderr_or_in_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    words: str,
    around: tuple[str, str],
    depth: int,
    library: str,
    form: str,
) -> None:
    path: Path = tmp_path_factory.mktemp("log") / "peik.log"
    said = f"{around[0]} {words} {around[1]}"
    stderr, sys.stderr = sys.stderr, io.StringIO()
    try:
        logging.getLogger().handlers = []
        structlog.reset_defaults()
        with LogFile(path, bytes_max=10_000_000, files_kept=1) as file:
            set_up(level="debug", form=form, file=file)
            everything_said(said, depth, library)
        shown = sys.stderr.getvalue()
    finally:
        sys.stderr = stderr
    written = path.read_text(encoding="utf-8")
    for text in (shown, written):
        assert text.count("it failed") >= 2, "all of it was said"
        assert is_clean(text), text
        assert "***" in text


def test_where_the_log_is_json_lines_of_libraries_are_json_too() -> None:
    stderr, sys.stderr = sys.stderr, io.StringIO()
    try:
        logging.getLogger().handlers = []
        structlog.reset_defaults()
        set_up(level="info", form="json")
        structlog.get_logger().info("-> ours")
        logging.getLogger("telethon.network").warning("Attempt %d at connecting failed: %s", 1, "two\nlines")
        try:
            raise OSError("no route")
        except OSError:
            logging.getLogger("asyncio").exception("of theirs")
        shown = sys.stderr.getvalue()
    finally:
        sys.stderr = stderr
    ours, first, second = [json.loads(line) for line in shown.splitlines()]
    assert ours["event"] == "-> ours"
    assert (first["event"], first["logger"], first["level"]) == (
        "Attempt 1 at connecting failed: two\nlines", "telethon.network", "warning",
    )  # fmt: skip
    assert "OSError: no route" in second["exception"]
    assert first["timestamp"].endswith("Z")
