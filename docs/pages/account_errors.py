"""Which errors Telegram documents for the methods that accounts use, and what Peik does with each. The strict test server answers
them on demand (tests/accounts/test_strict_server.py)."""

import enum
import json
import re
from collections.abc import Iterator
from typing import Any

from telethon.errors import rpc_message_to_error
from telethon.errors.rpcerrorlist import rpc_errors_dict, rpc_errors_re
from telethon.tl.core.rpcresult import RpcError

from docs.pages.markdown import REFERENCE, code, figure, table
from peik.accounts.client import Trouble
from peik.accounts.telethon.client import NOBODY
from peik.accounts.telethon.errors import client_error, reply_of
from peik.core.outcome import Delivered, Limited, Outcome, Refused, Uncertain, judge


class Role(enum.Enum):
    SIGNING_IN = "Signing in"
    CONNECTING = "Connecting"
    FOLLOWING = "Following what happens"
    READING = "Reading chats"
    MEMBERS = "Reading members"
    FILES = "Fetching files"
    ASKING = "Joining, and contacts"
    SENDING = "Sending"


# As Telethon's list of methods (methods.csv) and core.telegram.org have them. Errors that only a bot can meet stand there, too.
DOCUMENTED: dict[Role, dict[str, str]] = {
    Role.SIGNING_IN: {
        "auth.sendCode": (
            "API_ID_INVALID API_ID_PUBLISHED_FLOOD AUTH_RESTART INPUT_REQUEST_TOO_LONG "
            "PHONE_NUMBER_APP_SIGNUP_FORBIDDEN PHONE_NUMBER_BANNED PHONE_NUMBER_FLOOD PHONE_NUMBER_INVALID "
            "PHONE_PASSWORD_FLOOD PHONE_PASSWORD_PROTECTED "
        ),
        "auth.resendCode": "PHONE_NUMBER_INVALID SEND_CODE_UNAVAILABLE",
        "auth.signIn": (
            "PHONE_CODE_EMPTY PHONE_CODE_EXPIRED PHONE_CODE_INVALID PHONE_NUMBER_INVALID "
            "PHONE_NUMBER_UNOCCUPIED SESSION_PASSWORD_NEEDED "
        ),
        "account.getPassword": "",
        "auth.checkPassword": "PASSWORD_EMPTY PASSWORD_HASH_INVALID SRP_ID_INVALID SRP_PASSWORD_CHANGED",
        "auth.exportLoginToken": "SESSION_PASSWORD_NEEDED",
        "auth.importLoginToken": (
            "AUTH_TOKEN_ALREADY_ACCEPTED AUTH_TOKEN_EXPIRED AUTH_TOKEN_INVALID SESSION_PASSWORD_NEEDED "
        ),
    },
    Role.CONNECTING: {
        "users.getUsers": (
            "AUTH_KEY_PERM_EMPTY MEMBER_NO_LOCATION NEED_MEMBER_INVALID SESSION_PASSWORD_NEEDED TIMEOUT "
        ),
        "updates.getState": "AUTH_KEY_DUPLICATED MSGID_DECREASE_RETRY SESSION_PASSWORD_NEEDED TIMEOUT",
    },
    Role.FOLLOWING: {
        "updates.getDifference": (
            "AUTH_KEY_PERM_EMPTY CDN_METHOD_INVALID DATE_EMPTY NEED_MEMBER_INVALID PERSISTENT_TIMESTAMP_EMPTY "
            "PERSISTENT_TIMESTAMP_INVALID SESSION_PASSWORD_NEEDED STORE_INVALID_SCALAR_TYPE TIMEOUT "
        ),
        "updates.getChannelDifference": (
            "CHANNEL_INVALID CHANNEL_PRIVATE CHANNEL_PUBLIC_GROUP_NA HISTORY_GET_FAILED "
            "PERSISTENT_TIMESTAMP_EMPTY PERSISTENT_TIMESTAMP_INVALID PERSISTENT_TIMESTAMP_OUTDATED "
            "RANGES_INVALID TIMEOUT "
        ),
    },
    Role.READING: {
        "messages.getDialogs": "INPUT_CONSTRUCTOR_INVALID OFFSET_PEER_ID_INVALID SESSION_PASSWORD_NEEDED TIMEOUT",
        "messages.getHistory": (
            "AUTH_KEY_DUPLICATED AUTH_KEY_PERM_EMPTY CHANNEL_INVALID CHANNEL_PRIVATE CHAT_ID_INVALID "
            "PEER_ID_INVALID TIMEOUT "
        ),
    },
    Role.MEMBERS: {
        "channels.getParticipants": (
            "CHANNEL_INVALID CHANNEL_PRIVATE CHAT_ADMIN_REQUIRED INPUT_CONSTRUCTOR_INVALID TIMEOUT"
        ),
        "messages.getFullChat": "CHAT_ID_INVALID PEER_ID_INVALID",
    },
    Role.FILES: {
        "messages.getMessages": "",
        "channels.getMessages": "CHANNEL_INVALID CHANNEL_PRIVATE MESSAGE_IDS_EMPTY",
        "upload.getFile": (
            "AUTH_KEY_PERM_EMPTY FILE_ID_INVALID FILE_REFERENCE_EXPIRED INPUT_FETCH_FAIL LIMIT_INVALID "
            "LOCATION_INVALID OFFSET_INVALID TIMEOUT "
        ),
    },
    Role.ASKING: {
        "messages.importChatInvite": (
            "CHANNELS_TOO_MUCH INVITE_HASH_EMPTY INVITE_HASH_EXPIRED INVITE_HASH_INVALID INVITE_REQUEST_SENT USERS_TOO_MUCH"
        ),
        "messages.checkChatInvite": "INVITE_HASH_EMPTY INVITE_HASH_EXPIRED INVITE_HASH_INVALID",
        "channels.joinChannel": "CHANNELS_TOO_MUCH CHANNEL_INVALID CHANNEL_PRIVATE INVITE_REQUEST_SENT",
        "contacts.getContacts": "",
        "contacts.importContacts": "",
    },
    Role.SENDING: {
        "contacts.resolveUsername": (
            "AUTH_KEY_PERM_EMPTY SESSION_PASSWORD_NEEDED USERNAME_INVALID USERNAME_NOT_OCCUPIED "
        ),
        "messages.sendMessage": (
            "AUTH_KEY_DUPLICATED BOT_DOMAIN_INVALID BUTTON_DATA_INVALID BUTTON_TYPE_INVALID "
            "BUTTON_URL_INVALID CHANNEL_INVALID CHANNEL_PRIVATE CHAT_ADMIN_REQUIRED CHAT_ID_INVALID "
            "CHAT_RESTRICTED CHAT_WRITE_FORBIDDEN ENTITIES_TOO_LONG ENTITY_BOUNDS_INVALID "
            "ENTITY_MENTION_USER_INVALID INPUT_USER_DEACTIVATED MESSAGE_EMPTY MESSAGE_TOO_LONG MSG_ID_INVALID "
            "PEER_ID_INVALID POLL_OPTION_INVALID RANDOM_ID_DUPLICATE REPLY_MARKUP_INVALID "
            "REPLY_MARKUP_TOO_LONG SCHEDULE_BOT_NOT_ALLOWED SCHEDULE_DATE_TOO_LATE SCHEDULE_STATUS_PRIVATE "
            "SCHEDULE_TOO_MUCH TIMEOUT TOPIC_DELETED USER_BANNED_IN_CHANNEL USER_IS_BLOCKED USER_IS_BOT "
            "YOU_BLOCKED_USER "
        ),
        "messages.sendMedia": (
            "BOT_PAYMENTS_DISABLED BOT_POLLS_DISABLED BROADCAST_PUBLIC_VOTERS_FORBIDDEN CHANNEL_INVALID "
            "CHANNEL_PRIVATE CHAT_ADMIN_REQUIRED CHAT_SEND_MEDIA_FORBIDDEN CHAT_WRITE_FORBIDDEN "
            "CURRENCY_TOTAL_AMOUNT_INVALID EMOTICON_INVALID ENTITY_BOUNDS_INVALID EXTERNAL_URL_INVALID "
            "FILE_PARTS_INVALID FILE_PART_0_MISSING FILE_PART_LENGTH_INVALID FILE_REFERENCE_EMPTY "
            "FILE_REFERENCE_EXPIRED GAME_BOT_INVALID INPUT_USER_DEACTIVATED MEDIA_CAPTION_TOO_LONG "
            "MEDIA_EMPTY PAYMENT_PROVIDER_INVALID PEER_ID_INVALID PHOTO_EXT_INVALID PHOTO_INVALID_DIMENSIONS "
            "PHOTO_SAVE_FILE_INVALID POLL_ANSWERS_INVALID POLL_OPTION_DUPLICATE POLL_QUESTION_INVALID "
            "POSTPONED_TIMEOUT QUIZ_CORRECT_ANSWERS_EMPTY QUIZ_CORRECT_ANSWERS_TOO_MUCH "
            "QUIZ_CORRECT_ANSWER_INVALID QUIZ_MULTIPLE_INVALID RANDOM_ID_DUPLICATE SCHEDULE_DATE_TOO_LATE "
            "SCHEDULE_TOO_MUCH STORAGE_CHECK_FAILED TIMEOUT TOPIC_DELETED USER_BANNED_IN_CHANNEL "
            "USER_IS_BLOCKED USER_IS_BOT VIDEO_CONTENT_TYPE_INVALID WEBPAGE_CURL_FAILED WEBPAGE_MEDIA_EMPTY "
        ),
        "messages.forwardMessages": (
            "BROADCAST_PUBLIC_VOTERS_FORBIDDEN CHANNEL_INVALID CHANNEL_PRIVATE CHAT_ADMIN_REQUIRED "
            "CHAT_ID_INVALID CHAT_SEND_GIFS_FORBIDDEN CHAT_SEND_MEDIA_FORBIDDEN CHAT_SEND_STICKERS_FORBIDDEN "
            "CHAT_WRITE_FORBIDDEN GROUPED_MEDIA_INVALID INPUT_USER_DEACTIVATED MEDIA_EMPTY MESSAGE_IDS_EMPTY "
            "MESSAGE_ID_INVALID PEER_ID_INVALID PTS_CHANGE_EMPTY QUIZ_ANSWER_MISSING RANDOM_ID_DUPLICATE "
            "RANDOM_ID_INVALID SCHEDULE_DATE_TOO_LATE SCHEDULE_TOO_MUCH TIMEOUT TOPIC_DELETED "
            "USER_BANNED_IN_CHANNEL USER_IS_BLOCKED USER_IS_BOT YOU_BLOCKED_USER "
        ),
        "messages.editMessage": (
            "CHANNEL_INVALID CHANNEL_PRIVATE CHAT_WRITE_FORBIDDEN ENTITY_BOUNDS_INVALID INLINE_BOT_REQUIRED "
            "INPUT_USER_DEACTIVATED MEDIA_GROUPED_INVALID MEDIA_NEW_INVALID MEDIA_PREV_INVALID "
            "MESSAGE_AUTHOR_REQUIRED MESSAGE_EDIT_TIME_EXPIRED MESSAGE_EMPTY MESSAGE_ID_INVALID "
            "MESSAGE_NOT_MODIFIED PEER_ID_INVALID "
        ),
        "messages.deleteMessages": "MESSAGE_DELETE_FORBIDDEN",
        "channels.deleteMessages": "CHANNEL_INVALID CHANNEL_PRIVATE MESSAGE_DELETE_FORBIDDEN",
        "messages.updatePinnedMessage": "BOT_ONESIDE_NOT_AVAIL",
        "messages.sendReaction": "MESSAGE_ID_INVALID REACTION_INVALID",
        "upload.saveBigFilePart": "FILE_PARTS_INVALID FILE_PART_EMPTY FILE_PART_INVALID FILE_PART_SIZE_INVALID TIMEOUT",
        "upload.saveFilePart": "FILE_PART_EMPTY FILE_PART_INVALID INPUT_FETCH_FAIL SESSION_PASSWORD_NEEDED",
    },
}

# What every method may answer, whatever it is asked for.
ANYWHERE = (
    "AUTH_KEY_UNREGISTERED AUTH_KEY_INVALID AUTH_KEY_PERM_EMPTY AUTH_KEY_DUPLICATED SESSION_REVOKED SESSION_EXPIRED "
    "SESSION_PASSWORD_NEEDED USER_DEACTIVATED USER_DEACTIVATED_BAN FLOOD_WAIT_30 FLOOD_PREMIUM_WAIT_5 TIMEOUT RPC_CALL_FAIL "
    "RPC_MCGET_FAIL INTERDC_2_CALL_ERROR MSG_WAIT_FAILED CONNECTION_NOT_INITED"
)
SLOW_MODE, SPAM = "SLOWMODE_WAIT_60", "PEER_FLOOD"

_BY_TROUBLE: dict[Role, dict[Trouble, str]] = {
    Role.SIGNING_IN: {
        Trouble.OFFLINE: "said (503); the step may be repeated",
        Trouble.FLOOD: "the session is `flood_wait` until then",
        Trouble.BAD_CODE: "said; five tries in all",
        Trouble.CODE_EXPIRED: "the session is `new`: ask for another code",
        Trouble.PASSWORD_NEEDED: "the session is `password_needed`",
        Trouble.BAD_PASSWORD: "said; five tries in all",
        Trouble.BAD_PHONE: "the session is `failed`",
        Trouble.PHONE_BANNED: "the session is `failed`",
        Trouble.NOT_REGISTERED: "the session is `failed`",
        Trouble.REVOKED: "the session is `failed`",
        Trouble.BAD_KEYS: "said: TELEGRAM_API_ID and TELEGRAM_API_HASH are wrong",
        Trouble.REFUSED: "said, by Telegram's name of the error",
    },
    Role.CONNECTING: {
        Trouble.REVOKED: "the session is `revoked`; alert `session-ended`",
        Trouble.FLOOD: "the session is `flood_wait`, and connects again after it",
        Trouble.OFFLINE: "connects again, at most 5 minutes later each time; alert `session-down`",
        Trouble.REFUSED: "connects again, at most 5 minutes later each time; alert `session-down`",
    },
    Role.FOLLOWING: {
        Trouble.REVOKED: "the session is `revoked`; alert `session-ended`",
        Trouble.PASSWORD_NEEDED: "connects again, and is `revoked`: nobody is signed in",
        Trouble.FLOOD: "asked again when the wait is over, at most 15 minutes later",
        Trouble.OFFLINE: "asked again, at most 15 minutes later each time; after five times the history is read as well",
        Trouble.REFUSED: "asked again, at most 15 minutes later each time; after five times the history is read as well",
    },
    Role.READING: {
        Trouble.REVOKED: "the session is `revoked` at its next request; alert `session-ended`",
        Trouble.PASSWORD_NEEDED: "tried again, at most an hour later each time; other chats go on",
        Trouble.FLOOD: "waited for, once for all that the account asks; the session is `flood_wait`",
        Trouble.OFFLINE: "tried again, at most an hour later each time; other chats go on; alert `session-behind`",
        Trouble.REFUSED: "this chat is given up until the next connect, and told of; other chats go on",
    },
    Role.MEMBERS: {
        Trouble.REVOKED: "the session is `revoked` at its next request; alert `session-ended`",
        Trouble.PASSWORD_NEEDED: "asked again after ten minutes; all else goes on",
        Trouble.FLOOD: "waited for, once for all that the account asks; the list goes on where it was",
        Trouble.OFFLINE: "asked again after ten minutes; all else goes on",
        Trouble.REFUSED: "said where the members are listed; asked again at their next time",
    },
    Role.FILES: {
        Trouble.REVOKED: "the session is `revoked` at its next request; alert `session-ended`",
        Trouble.PASSWORD_NEEDED: "tried again up to five times, at most an hour later each time; other files go on",
        Trouble.FLOOD: "waited for, once for all that the account asks; the file goes on where it was",
        Trouble.OFFLINE: "tried again up to five times, at most an hour later each time; other files go on",
        Trouble.REFUSED: "this file is given up, and told of; other files go on",
    },
    Role.ASKING: {
        Trouble.REVOKED: "said (409); the session is `revoked` at its next request",
        Trouble.PASSWORD_NEEDED: "said, by Telegram's name of the error",
        Trouble.FLOOD: "said (409); the session is `flood_wait`, and asks nothing until then",
        Trouble.OFFLINE: "said (503); ask again",
        Trouble.REFUSED: "said, by Telegram's name of the error",
    },
}
PROOF = REFERENCE / "accounts_proof.json"
_RATES = "most of one account in a second, by method"
_ARCHIVES = {"postgres": "PostgreSQL", "mongo": "MongoDB"}
_LOST_CHANNELS = frozenset({"CHANNEL_PRIVATE", "CHANNEL_INVALID"})


def raised(name: str) -> Exception:
    """The error as Telethon raises it."""
    return rpc_message_to_error(RpcError(code_of(name), name), None)  # type: ignore[no-any-return]


def code_of(name: str) -> int:
    kind = rpc_errors_dict.get(name) or next((kind for form, kind in rpc_errors_re if re.fullmatch(form, name)), None)
    return int(getattr(kind, "code", None) or 400)


def errors_of(role: Role, method: str) -> list[str]:
    more = (
        [SLOW_MODE, SPAM]
        if method in ("messages.sendMessage", "messages.sendMedia", "messages.forwardMessages")
        else []
    )
    return sorted({*DOCUMENTED[role][method].split(), *ANYWHERE.split(), *more})


def taken_for(name: str) -> Trouble:
    return client_error(raised(name)).trouble


def outcome_of(method: str, name: str) -> Outcome:
    bot_method = "editMessageText" if method == "messages.editMessage" else "sendMessage"
    return judge(reply_of(raised(name)), method=bot_method)


def done_with(role: Role, method: str, name: str) -> str:
    """As the page says it."""
    if role is Role.SENDING:
        match outcome_of(method, name):
            case Delivered():
                return "delivered; the message is looked for in the chat" if "RANDOM" in name else "delivered"
            case Limited() if name == "PEER_FLOOD":
                return "the account's letters wait, and one is tried each hour; said in its health; alert `session-flooded`"
            case Limited(retry_after_s=wait_s):
                return f"waits as long as Telegram says ({wait_s:.0f} s here)"
            case Uncertain():
                return "sent again with the same random id, which makes it the same message"
            case Refused():
                return (
                    "the account's letters wait" if code_of_reply(name) == 401 else "the letter fails, with the reason"
                )
            case _:
                return "sent again"
    if role is Role.FILES and name == "FILE_REFERENCE_EXPIRED":
        return "the message is asked for again, for another reference; given up after three"
    if role is Role.CONNECTING and name in NOBODY:
        return _BY_TROUBLE[role][Trouble.REVOKED]
    if role is Role.FOLLOWING and method == "updates.getChannelDifference" and name in _LOST_CHANNELS:
        return "the channel is not followed any more"
    if method == "messages.getDialogs" and taken_for(name) is Trouble.REFUSED:
        return _BY_TROUBLE[role][Trouble.OFFLINE]
    return _BY_TROUBLE[role][taken_for(name)]


def code_of_reply(name: str) -> int | None:
    return reply_of(raised(name)).status  # type: ignore[arg-type]


def _proof_parts() -> Iterator[str]:
    """What the last runs of `make accounts-proof` wrote down."""
    runs: dict[str, Any] = json.loads(PROOF.read_text(encoding="utf-8"))
    yield "## An hour on a strict server"
    yield (
        "`make accounts-proof`: accounts on two nodes, real processes and sockets, against an MTProto server on loopback that "
        "answers as above. People write, edit and delete, letters go out, histories are read, while nodes are killed, stopped "
        "and frozen, Telegram restarts, loses pushes, floods, cannot replay and ends keys, and the PostgreSQL of the store "
        "restarts. In the end the archive should have what Telegram has, and each letter should be there once. The last row is "
        "what one account asked for most in any second. Two cores that others used as well."
    )
    for name, run in runs.items():
        broken = "; ".join(run["broken"]) or "none"
        rates = " · ".join(f"{method} {count}" for method, count in run[_RATES].items() if count > 1)
        rest = ", ".join(method for method, count in run[_RATES].items() if count == 1)
        rows = [(what, figure(value)) for what, value in run.items() if what not in (_RATES, "broken", "archive")]
        yield f"### Archive in {_ARCHIVES[name]}"
        yield table(
            ("what", "figure"),
            [*rows, ("promises broken", broken), (_RATES, f"{rates}; once: {rest}" if rates else rest)],
        )


def account_errors_parts() -> Iterator[str]:
    yield (
        "What Telegram may answer to an account, as it is documented, and what Peik does with each. Bots have "
        "[a table of their own](errors.md). An error that is not documented is taken by its code: 500 and above for trouble "
        "inside Telegram, any other for a refusal."
    )
    yield "## Anywhere"
    rows = [
        (code(name), str(code_of(name)), *(done_with(role, "", name) for role in Role)) for name in ANYWHERE.split()
    ]
    yield table(("error", "code", *(role.value for role in Role)), rows)
    for role in Role:
        yield f"## {role.value}"
        rows = [
            (code(method), code(name), str(code_of(name)), done_with(role, method, name))
            for method in DOCUMENTED[role]
            for name in sorted({*errors_of(role, method)} - {*ANYWHERE.split()})
        ]
        yield table(("method", "error", "code", "what Peik does"), rows)
    yield from _proof_parts()
