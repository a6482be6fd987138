"""`peik send` with files on a store that nobody runs: whoever interrupts it loses no file that its letter needs."""

import asyncio
from pathlib import Path

import pytest

from peik.cli.local import StoreClient
from peik.core.token import Token
from peik.errors import BadInput, StoreUnavailable
from peik.outbox.api import BotApi
from peik.settings.config import load

LETTER = {"method": "sendDocument", "params": {"chat_id": 5}}


@pytest.fixture
def client(tmp_path: Path) -> StoreClient:
    made = StoreClient(
        load({"store": f"sqlite:///{tmp_path}/peik.db"}, environment={}, folder=tmp_path),
        may_create=True,
    )
    made.document(BotApi.add_bot, body={"token": Token("7000001:AAE-first-first-first-first-first-00").reveal()})
    (tmp_path / "report.txt").write_text("all is well")
    return made


def test_ctrl_c_after_the_commit_was_asked_for_leaves_the_letter_its_file(client: StoreClient, tmp_path: Path) -> None:
    async def interrupted() -> None:
        writer, asked = client._store._writer, asyncio.Event()
        submit = writer.submit
        writer.submit = lambda operation: (submit(operation), asked.set())
        accepting = asyncio.ensure_future(
            client._accept(LETTER, [("document", tmp_path / "report.txt")], lambda count: None)
        )
        await asked.wait()
        accepting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await accepting
        await writer.drained()

    client._runner.run(interrupted())
    (blob,) = client._runner.run(client._store.blobs())
    assert client._spool.path_of(blob).read_text() == "all is well"
    client.close()


def test_a_letter_that_is_refused_leaves_no_file_behind(client: StoreClient, tmp_path: Path) -> None:
    spool = client._spool.path_of("0" * 32).parent
    attached = [("document", tmp_path / "report.txt")]
    with pytest.raises(BadInput):
        client.accept({**LETTER, "params": {}}, attached, lambda count: None)
    with pytest.raises(StoreUnavailable):
        client._runner.run(client._accept(LETTER, [*attached, ("thumbnail", tmp_path / "no.png")], lambda count: None))
    assert list(spool.iterdir()) == []
    client.close()
