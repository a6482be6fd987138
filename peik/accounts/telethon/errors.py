"""What Telegram's errors mean for a session, as one table, and what Telethon raises in its own words turned into ours."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from telethon.errors import AuthKeyNotFound, RPCError, ServerError, SlowModeWaitError, TimedOutError
from telethon.errors.rpcerrorlist import rpc_errors_dict, rpc_errors_re

from peik.accounts.client import ClientError, Trouble
from peik.accounts.markup import BadMarkup
from peik.core.outcome import NetworkFault, Reply

# Telegram's name of the error → what it means. What is not here will not change by itself: REFUSED.
TROUBLES: dict[str, Trouble] = {
    "AUTH_KEY_UNREGISTERED": Trouble.REVOKED,
    "AUTH_KEY_INVALID": Trouble.REVOKED,
    "AUTH_KEY_PERM_EMPTY": Trouble.REVOKED,
    "AUTH_KEY_DUPLICATED": Trouble.REVOKED,
    "SESSION_REVOKED": Trouble.REVOKED,
    "SESSION_EXPIRED": Trouble.REVOKED,
    "USER_DEACTIVATED": Trouble.REVOKED,
    "USER_DEACTIVATED_BAN": Trouble.REVOKED,
    "PHONE_CODE_INVALID": Trouble.BAD_CODE,
    "PHONE_CODE_EMPTY": Trouble.BAD_CODE,
    "PHONE_CODE_EXPIRED": Trouble.CODE_EXPIRED,
    "PHONE_CODE_HASH_EMPTY": Trouble.CODE_EXPIRED,
    "PHONE_HASH_EXPIRED": Trouble.CODE_EXPIRED,
    "AUTH_TOKEN_EXPIRED": Trouble.CODE_EXPIRED,
    "AUTH_TOKEN_INVALID": Trouble.CODE_EXPIRED,
    "SESSION_PASSWORD_NEEDED": Trouble.PASSWORD_NEEDED,
    "PASSWORD_HASH_INVALID": Trouble.BAD_PASSWORD,
    "PASSWORD_EMPTY": Trouble.BAD_PASSWORD,
    "PHONE_NUMBER_INVALID": Trouble.BAD_PHONE,
    "PHONE_NUMBER_BANNED": Trouble.PHONE_BANNED,
    "PHONE_NUMBER_UNOCCUPIED": Trouble.NOT_REGISTERED,
    "PHONE_NUMBER_APP_SIGNUP_FORBIDDEN": Trouble.NOT_REGISTERED,
    "API_ID_INVALID": Trouble.BAD_KEYS,
    "API_ID_PUBLISHED_FLOOD": Trouble.BAD_KEYS,
    "PHONE_NUMBER_FLOOD": Trouble.FLOOD,
    "PHONE_PASSWORD_FLOOD": Trouble.FLOOD,
    "PEER_FLOOD": Trouble.FLOOD,  # it wrote to too many strangers; who goes on writing is banned
    "AUTH_RESTART": Trouble.OFFLINE,
    "SRP_ID_INVALID": Trouble.OFFLINE,  # the question had changed before the answer came
    "SRP_PASSWORD_CHANGED": Trouble.OFFLINE,
    "CONNECTION_NOT_INITED": Trouble.OFFLINE,
    "MSG_WAIT_FAILED": Trouble.OFFLINE,  # a request before this one, on the same connection
    "MSGID_DECREASE_RETRY": Trouble.OFFLINE,
}

# For people. Where there is nothing here Telegram's own name of the error is said.
_WORDS: dict[Trouble, str] = {
    Trouble.BAD_CODE: "The code is wrong.",
    Trouble.CODE_EXPIRED: "The code is too old; ask for another.",
    Trouble.PASSWORD_NEEDED: "This account has a password (two-step verification).",
    Trouble.BAD_PASSWORD: "The password is wrong.",
    Trouble.BAD_PHONE: "Telegram knows no such phone number.",
    Trouble.PHONE_BANNED: "Telegram has banned this phone number.",
    Trouble.NOT_REGISTERED: "This number has no Telegram account. Make one with Telegram's own app.",
    Trouble.BAD_KEYS: "Telegram does not accept TELEGRAM_API_ID and TELEGRAM_API_HASH.",
}
_REVOKED: dict[str, str] = {
    "AUTH_KEY_DUPLICATED": "Its key was used from two places at once, so Telegram ended the session. Sign in again.",
    "SESSION_REVOKED": "The session was ended from another device. Sign in again.",
    "SESSION_EXPIRED": "The session has expired. Sign in again.",
    "USER_DEACTIVATED": "The account was deleted.",
    "USER_DEACTIVATED_BAN": "Telegram has banned the account.",
}
_SIGNED_OUT = "Telegram does not know this session any more. Sign in again."

# An hour: what Telegram means by a flood for which it names no time is a day, and asking once an hour is no flood.
_UNTOLD_WAIT_S = 3600.0

WORDS_MAX = 200  # of a library's own

_NAMES = {kind: name for name, kind in rpc_errors_dict.items()}
# Those that end with a figure: FLOOD_WAIT_(\\d+).
_NAMES |= {kind: form.rpartition("_(")[0] for form, kind in rpc_errors_re if form.endswith("_(\\d+)")}
_WAIT = re.compile(r"_(\d{1,7})$")
_WAIT_CODE = 420


def name_of(error: RPCError) -> str:
    """As Telegram writes it, without the figure: FLOOD_WAIT, CHAT_WRITE_FORBIDDEN."""
    return str(_NAMES.get(type(error)) or error.message or type(error).__name__)


def wait_of(error: RPCError) -> float | None:
    """How long Telegram wants us to wait; None: it does not say so."""
    seconds = getattr(error, "seconds", None)
    if seconds is None and abs(error.code or 0) == _WAIT_CODE and (told := _WAIT.search(str(error.message or ""))):
        seconds = told[1]  # one that this Telethon does not know
    return None if seconds is None else max(1.0, float(seconds))


def client_error(error: BaseException) -> ClientError:
    """What a surprise of Telethon's means."""
    if isinstance(error, ClientError):
        return error
    if isinstance(error, AuthKeyNotFound):
        return ClientError(Trouble.REVOKED, _SIGNED_OUT)
    if isinstance(error, RPCError):
        return _of_telegram(error)
    if isinstance(error, OSError | TimeoutError | EOFError):
        return ClientError(Trouble.OFFLINE, f"Telegram cannot be reached: {_in_words(error)}.")
    return ClientError(Trouble.OFFLINE, f"Telethon met something unforeseen: {_in_words(error)}.")


def _in_words(error: BaseException) -> str:
    """Libraries raise many of these without a word."""
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}, {error.strerror}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, EOFError):
        return "the connection was closed"
    text = str(error).strip().rstrip(".")
    return f"{type(error).__name__}, {text[:WORDS_MAX]}" if text else type(error).__name__


def _of_telegram(error: RPCError) -> ClientError:
    name = name_of(error)
    wait_s = wait_of(error)
    if wait_s is not None:
        return ClientError(Trouble.FLOOD, f"Telegram asks to wait {wait_s:.0f} s ({name}).", wait_s=wait_s)
    trouble = TROUBLES.get(name)
    if trouble is None:
        is_passing = isinstance(error, ServerError | TimedOutError) or abs(error.code or 0) >= 500
        trouble = Trouble.OFFLINE if is_passing else Trouble.REFUSED
    match trouble:
        case Trouble.REVOKED:
            return ClientError(trouble, _REVOKED.get(name, _SIGNED_OUT))
        case Trouble.FLOOD:
            return ClientError(
                trouble, f"Too many tries; Telegram does not say for how long ({name}).", wait_s=_UNTOLD_WAIT_S
            )
        case Trouble.OFFLINE:
            return ClientError(trouble, f"Trouble inside Telegram ({name}).")
        case _:
            return ClientError(trouble, _WORDS.get(trouble, f"Telegram refused it: {name}."))


@contextmanager
def translated() -> Iterator[None]:
    """Let nothing out but ClientError, and a cancellation that was meant.

    Telethon cancels what waits for an answer when it disconnects. To the waiter that looks as if somebody had cancelled him.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ClientError(Trouble.OFFLINE, "The connection was closed.") from None
    except Exception as error:  # noqa: BLE001  whatever it is, it came from one library
        raise client_error(error) from None


# What went wrong with a send, said as the Bot API says it: so that one table of errors serves bots and accounts
# alike.


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
            return Reply(fault=NetworkFault.NOT_TRIED, left=False, detail="the session is not connected")
        case FileNotFoundError():
            return Reply(fault=NetworkFault.SPOILED, left=False, detail="a file of the letter is gone")
        case RPCError():
            return _answer_of(error)
        case ClientError():
            return _told(error)
    told = client_error(error)
    return Reply(fault=NetworkFault.RESET, detail=told.words)


def _told(error: ClientError) -> Reply:
    """A question that had to be asked before the send went wrong: nothing was sent."""
    match error.trouble:
        case Trouble.FLOOD:
            return _limited(error.wait_s)
        case Trouble.REVOKED | Trouble.PASSWORD_NEEDED:
            return refusal(401, f"Unauthorized: {error.words}")
        case Trouble.OFFLINE:
            return Reply(fault=NetworkFault.NOT_TRIED, left=False, detail=error.words)
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
}


# Telegram has lost a part of a file that it had taken.
_LOST_PART = re.compile("FILE_PART_MISSING|FILE_PARTS_INVALID|STORAGE_CHECK_FAILED|PHOTO_SAVE_FILE_INVALID")


def _answer_of(error: RPCError) -> Reply:
    name = name_of(error)
    if name == "RANDOM_ID_DUPLICATE":
        # The first of two equal sends was taken; which id it got is not said.
        return Reply(status=200, body=msgspec.json.encode({"ok": True, "result": {"message_id": 0, "date": 0}}))
    wait_s = wait_of(error)
    if wait_s is not None:
        is_of_chat = isinstance(error, SlowModeWaitError)  # it limits nothing else
        return _limited(wait_s, "" if is_of_chat else f"Telegram lets its letters wait for {wait_s:.0f} s ({name}).")
    told = client_error(error)
    match told.trouble:
        case Trouble.REVOKED | Trouble.PASSWORD_NEEDED:
            return refusal(401, f"Unauthorized: {name}")
        case Trouble.FLOOD:
            return _limited(told.wait_s, _SPAM if name == "PEER_FLOOD" else told.words)
        case Trouble.OFFLINE:
            return refusal(500, f"Internal Server Error: {name}")
    if _LOST_PART.fullmatch(name):
        return refusal(500, f"Internal Server Error: {name}")  # sent anew it is uploaded anew, and is the same message
    code, words = _BOT_WORDS.get(name, (400, f"Bad Request: {name}"))
    return refusal(code, words)


_SPAM = (
    "Telegram thinks that this account sends spam, and takes no messages to strangers of it (PEER_FLOOD). Its letters wait, "
    "and one is tried each hour."
)


def _limited(wait_s: float, of_account: str = "") -> Reply:
    """`of_account`: why it is not only for this chat."""
    seconds = int(-(-wait_s // 1))
    body = {
        "ok": False,
        "error_code": 429,
        "description": f"Too Many Requests: retry after {seconds}",
        "parameters": {"retry_after": seconds},
    }
    return Reply(status=429, body=msgspec.json.encode(body), retry_after_s=seconds, detail=of_account)


def refusal(code: int, words: str) -> Reply:
    return Reply(status=code, body=msgspec.json.encode({"ok": False, "error_code": code, "description": words}))
