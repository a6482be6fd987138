"""The table of Telegram's errors, row by row, as Telethon raises them."""

import asyncio

import pytest
from telethon.errors import AuthKeyNotFound, rpc_message_to_error
from telethon.errors.rpcerrorlist import rpc_errors_dict
from telethon.tl.core.rpcresult import RpcError

from docs.pages.account_errors import code_of
from peik.accounts.client import ClientError, Trouble
from peik.accounts.telethon import updates
from peik.accounts.telethon.errors import TROUBLES, client_error, name_of, reply_of, translated
from peik.core.outcome import Limited, judge
from peik.errors import StartError


def raised(name: str) -> ClientError:
    return client_error(rpc_message_to_error(RpcError(code_of(name), name), None))


@pytest.mark.parametrize(("name", "trouble"), TROUBLES.items())
def test_each_row_means_what_it_says(name: str, trouble: Trouble) -> None:
    error = raised(name)
    assert error.trouble is trouble
    assert error.words.endswith(".") or name in error.words
    assert (error.wait_s > 0) is (trouble is Trouble.FLOOD)


@pytest.mark.parametrize(
    ("name", "wait_s"),
    [("FLOOD_WAIT_42", 42), ("SLOWMODE_WAIT_9", 9), ("FLOOD_PREMIUM_WAIT_3", 3), ("FLOOD_WAIT_0", 1)],
)
def test_a_flood_says_for_how_long(name: str, wait_s: float) -> None:
    error = raised(name)
    assert (error.trouble, error.wait_s) == (Trouble.FLOOD, wait_s)


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        ("BRAND_NEW_ERROR", Trouble.REFUSED),
        ("CHANNEL_PRIVATE", Trouble.REFUSED),
        ("HISTORY_GET_FAILED", Trouble.OFFLINE),
    ],
)
def test_what_is_not_in_the_table(name: str, trouble: Trouble) -> None:
    error = raised(name)
    assert error.trouble is trouble
    assert name in error.words


def test_a_key_that_the_server_does_not_know_is_revoked_and_a_dead_network_is_offline() -> None:
    assert client_error(AuthKeyNotFound()).trouble is Trouble.REVOKED
    assert client_error(ConnectionError("no route")).trouble is Trouble.OFFLINE
    assert client_error(TimeoutError()).trouble is Trouble.OFFLINE


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "ConnectionRefusedError, Connection refused."),
        (ConnectionError("Connection to Telegram failed 5 time(s)"), "failed 5 time(s)."),
        (TimeoutError(), "no answer in time."),
        (asyncio.IncompleteReadError(b"", 4), "the connection was closed."),
        (ConnectionError(), "cannot be reached: ConnectionError."),
    ],
)
def test_an_error_of_the_network_says_what_it_was(error: Exception, words: str) -> None:
    assert client_error(error).words.endswith(words)


def test_rows_name_errors_that_telethon_knows_or_passes_on_by_name() -> None:
    unknown = {name for name in TROUBLES if name not in rpc_errors_dict}
    assert unknown <= {"CONNECTION_NOT_INITED"}, unknown


def test_a_future_that_telethon_cancels_is_no_cancellation_of_ours() -> None:
    async def story() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        with pytest.raises(ClientError) as caught, translated():
            await future
        assert caught.value.trouble is Trouble.OFFLINE

        async def waits() -> None:
            with translated():
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())


def test_a_telethon_that_is_built_differently_is_refused() -> None:
    updates.check_telethon()

    async def other(self: object) -> None: ...

    calls = updates._CALLS
    calls[other] = ("_preprocess_updates",)
    try:
        with pytest.raises(StartError, match="built differently"):
            updates.check_telethon()
    finally:
        del calls[other]


@pytest.mark.parametrize(
    ("told", "name", "wait_s"),
    [("FLOOD_WAIT_30", "FLOOD_WAIT", 30), ("SLOWMODE_WAIT_9", "SLOWMODE_WAIT", 9), ("NEW_FLOOD_OF_2027_44", None, 44)],
)
def test_a_wait_is_a_wait_also_by_a_name_that_is_new(told: str, name: str | None, wait_s: int) -> None:
    error = rpc_message_to_error(RpcError(420, told), None)
    assert name_of(error) == (name or told)
    found = client_error(error)
    assert (found.trouble, found.wait_s) == (Trouble.FLOOD, wait_s)
    assert isinstance(judge(reply_of(error), method="sendMessage"), Limited)
