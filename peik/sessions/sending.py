"""An account's letters through the ordinary outbox: the carrier that hands each try to the account's connection.

MTProto has what the Bot API lacks: a number that makes a send the same send. It is made from the letter, so that a try that may
have arrived is repeated without a second message.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable

import msgspec

from peik.carrier_ports import Request
from peik.core.reply import Fault, Reply
from peik.errors import described
from peik.sessions.client import Me
from peik.sessions.ports import Line

_ROOM = 1000  # messages of one call (an album, forwards) take the numbers that follow
_NOT_CONNECTED = Reply(fault=Fault.NOT_TRIED, left=False, detail="the account is not connected")
_CLOSING = Reply(fault=Fault.NOT_TRIED, left=False, detail="closing")
_BROKEN_OFF = Reply(fault=Fault.RESET, detail="closing")


def random_id_of(account: int, *, letter_id: int, number: int) -> int:
    """The same for every try of a letter. `number` is the letter's place in the account's order: a dead letter that is sent
    again gets another one, and so is another message."""
    digest = hashlib.blake2b(f"{account}|{letter_id}|{number}".encode(), digest_size=8, person=b"peik letter").digest()
    return int.from_bytes(digest, "big") % (2**63 - _ROOM) + 1


class AccountCarrier:
    """The port `Carrier`, for all accounts of a node: the token says whose letter it is."""

    def __init__(self, line_of: Callable[[int], Line | None]) -> None:
        """`line_of` finds the line of an account by its user id."""
        self._line_of = line_of
        self._tries: set[asyncio.Task[Reply]] = set()
        self._is_closing = False

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        if self._is_closing:
            asyncio.get_running_loop().call_soon(done, _CLOSING)
            return
        task = asyncio.create_task(self._try(request))
        self._tries.add(task)
        task.add_done_callback(lambda ended: self._settle(ended, done))

    def _settle(self, ended: asyncio.Task[Reply], done: Callable[[Reply], None]) -> None:
        self._tries.discard(ended)
        done(_BROKEN_OFF if ended.cancelled() else ended.result())

    async def carry(self, request: Request) -> Reply:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def settle(reply: Reply) -> None:
            if not answer.done():  # the caller may have stopped waiting
                answer.set_result(reply)

        self.start(request, settle)
        return await answer

    async def close(self) -> None:
        self._is_closing = True
        tries = list(self._tries)
        for task in tries:
            task.cancel()
        if tries:
            await asyncio.wait(tries)
            await asyncio.sleep(0)  # every `done` was handed to the loop before this

    async def _try(self, request: Request) -> Reply:
        try:
            return await self._carried(request)
        except TimeoutError:
            return Reply(fault=Fault.TIMEOUT, detail=f"no answer within {request.timeout_s:.0f} s")
        except Exception as error:  # noqa: BLE001  a client that breaks its word may have sent it
            return Reply(fault=Fault.RESET, detail=described(error))

    async def _carried(self, request: Request) -> Reply:
        account = request.token.bot_id
        line = self._line_of(account)
        client = None if line is None else line.client
        if line is None or client is None:
            return _NOT_CONNECTED
        if request.method == "getMe" and line.me is not None:
            return _me(line.me)  # what a route is probed with
        letter = request.letter
        if letter is None:
            random_id = secrets.randbelow(2**63 - _ROOM) + 1  # nobody repeats it
        else:
            random_id = random_id_of(account, letter_id=letter[0], number=letter[1])
        async with asyncio.timeout(request.timeout_s):
            return await client.carry(request, random_id=random_id)


def _me(me: Me) -> Reply:
    shown = {"id": me.user_id, "is_bot": me.is_bot, "first_name": me.first_name, "username": me.username}
    return Reply(status=200, body=msgspec.json.encode({"ok": True, "result": shown}))
