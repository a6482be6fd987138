"""What went wrong with a send, said as the Bot API says it: so that one table of errors serves bots and accounts alike."""

import msgspec
from telethon.errors import RPCError

from peik.core.reply import Fault, Reply
from peik.sessions.client import ClientError, Trouble
from peik.sessions.formatting import BadMarkup
from peik.sessions.telethon_errors import client_error, name_of, wait_of


class Impossible(Exception):
    """It cannot be done, and Telegram was not asked. The words are for the caller."""


class NotLeft(Exception):
    """There is no connection, so nothing can have left."""


def reply_of(error: Exception) -> Reply:
    """What went wrong, as a carrier would say it."""
    match error:
        case Impossible() | BadMarkup():
            prefix = "can't parse entities: " if isinstance(error, BadMarkup) else ""
            return refusal(400, f"Bad Request: {prefix}{error}")
        case msgspec.DecodeError():
            return refusal(400, "Bad Request: the parameters are not a JSON object")
        case NotLeft():
            return Reply(fault=Fault.NOT_TRIED, left=False, detail="the session is not connected")
        case FileNotFoundError():
            return Reply(fault=Fault.SPOILED, left=False, detail="a file of the letter is gone")
        case RPCError():
            return _answer_of(error)
        case ClientError():
            return _told(error)
    told = client_error(error)
    return Reply(fault=Fault.RESET, detail=told.words)


def _told(error: ClientError) -> Reply:
    """A question that had to be asked before the send went wrong: nothing was sent."""
    match error.trouble:
        case Trouble.FLOOD:
            return _limited(error.wait_s)
        case Trouble.REVOKED:
            return refusal(401, f"Unauthorized: {error.words}")
        case Trouble.OFFLINE:
            return Reply(fault=Fault.NOT_TRIED, left=False, detail=error.words)
        case _:
            return refusal(400, f"Bad Request: {error.words}")


# Where the Bot API has words of its own for an error, ours are the same: what reads them knows those.
_BOT_WORDS: dict[str, tuple[int, str]] = {
    "MESSAGE_NOT_MODIFIED": (400, "Bad Request: message is not modified"),
    "PEER_ID_INVALID": (400, "Bad Request: chat not found"),
    "CHAT_ID_INVALID": (400, "Bad Request: chat not found"),
    "CHANNEL_INVALID": (400, "Bad Request: chat not found"),
    "USERNAME_NOT_OCCUPIED": (400, "Bad Request: chat not found"),
    "USERNAME_INVALID": (400, "Bad Request: chat not found"),
    "MESSAGE_EMPTY": (400, "Bad Request: message text is empty"),
    "MESSAGE_TOO_LONG": (400, "Bad Request: message is too long"),
    "CHANNEL_PRIVATE": (403, "Forbidden: the account is not a member of the channel chat"),
    "USER_BANNED_IN_CHANNEL": (403, "Forbidden: the account may not write to channels (USER_BANNED_IN_CHANNEL)"),
    "USER_IS_BLOCKED": (403, "Forbidden: the user blocked the account"),
    "YOU_BLOCKED_USER": (403, "Forbidden: the account blocked the user"),
    "INPUT_USER_DEACTIVATED": (403, "Forbidden: user is deactivated"),
    "CHAT_WRITE_FORBIDDEN": (403, "Forbidden: CHAT_WRITE_FORBIDDEN"),
    "PRIVACY_PREMIUM_REQUIRED": (403, "Forbidden: PRIVACY_PREMIUM_REQUIRED"),
    "PEER_FLOOD": (400, "Bad Request: PEER_FLOOD (Telegram thinks that this account sends spam; ask @SpamBot)"),
}


def _answer_of(error: RPCError) -> Reply:
    name = name_of(error)
    if name == "RANDOM_ID_DUPLICATE":
        # The first of two equal sends was taken; which id it got is not said.
        return Reply(status=200, body=msgspec.json.encode({"ok": True, "result": {"message_id": 0, "date": 0}}))
    wait_s = wait_of(error)
    if wait_s is not None:
        return _limited(wait_s)
    told = client_error(error)
    match told.trouble:
        case Trouble.REVOKED:
            return refusal(401, f"Unauthorized: {name}")
        case Trouble.FLOOD:
            return _limited(told.wait_s)
        case Trouble.OFFLINE:
            return refusal(500, f"Internal Server Error: {name}")
    code, words = _BOT_WORDS.get(name, (400, f"Bad Request: {name}"))
    return refusal(code, words)


def _limited(wait_s: float) -> Reply:
    seconds = int(-(-wait_s // 1))
    body = {
        "ok": False,
        "error_code": 429,
        "description": f"Too Many Requests: retry after {seconds}",
        "parameters": {"retry_after": seconds},
    }
    return Reply(status=429, body=msgspec.json.encode(body))


def refusal(code: int, words: str) -> Reply:
    return Reply(status=code, body=msgspec.json.encode({"ok": False, "error_code": code, "description": words}))
