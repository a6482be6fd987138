"""Every refusal, in the words in which Telegram says it, and what it means for a letter (docs/telegram.md, Refusals)."""

import msgspec
import pytest

from peik.core.catalogue import CATALOGUE, Scope, look_up
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Reply, Uncertain, judge

M, C, B = Scope.MESSAGE, Scope.CHAT, Scope.BOT
PREFIXES = {400: "Bad Request: ", 403: "Forbidden: "}


def answer(
    code: int, words: str, *, method: str = "sendMessage", was_uncertain: bool = False, **parameters: object
) -> Outcome:
    body = {"ok": False, "error_code": code, "description": words, "parameters": parameters}
    return judge(Reply(status=code, body=msgspec.json.encode(body)), method=method, was_uncertain=was_uncertain)


# (code, words after the prefix, scope): a definite no, at once. A word that Telegram fills in is filled in here.
FINAL = [
    (400, "chat not found", C),
    (400, "private chat not found", C),
    (400, "user not found", C),
    (400, "PEER_ID_INVALID", C),
    (400, "have no write access to the chat", C),
    (400, "CHAT_WRITE_FORBIDDEN", C),
    (400, "need administrator rights in the channel chat", C),
    (400, "CHAT_RESTRICTED", C),
    # These depend on what is sent and where in the chat, so each letter is told by itself and the chat stays open.
    (400, "not enough rights to send photos to the chat", M),
    (400, "CHAT_ADMIN_REQUIRED", M),
    (400, "TOPIC_CLOSED", M),
    (400, "message thread not found", M),
    (400, "TOPIC_DELETED", M),
    (400, "message to be replied not found", M),
    (400, "REPLY_MESSAGE_ID_INVALID", M),
    (400, "QUOTE_TEXT_INVALID", M),
    (400, 'can\'t parse entities: Unsupported start tag "x" at byte offset 0', M),
    (400, "ENTITY_BOUNDS_INVALID", M),
    (400, "message text is empty", M),
    (400, "message is too long", M),
    (400, "message caption is too long", M),
    (400, "MESSAGE_TOO_LONG", M),
    (400, "reply markup is too long", M),
    (400, "BUTTON_DATA_INVALID", M),
    (400, "BUTTON_URL_INVALID", M),
    (400, "REPLY_MARKUP_INVALID", M),
    (400, "can't parse reply keyboard markup JSON object", M),
    (400, "Expected an Array of InputMedia", M),
    (400, "chat_id is empty", M),
    (400, "text buttons are unallowed in the inline keyboard", M),
    (400, "message to edit not found", M),
    (400, "message can't be edited", M),
    (400, "MESSAGE_ID_INVALID", M),
    (400, "there is no text in the message to edit", M),
    (400, "message is not a poll", M),
    (400, "poll has already been closed", M),
    (400, "message to delete not found", M),
    (400, "message can't be deleted", M),
    (400, "message can't be deleted for everyone", M),
    (400, "message to forward not found", M),
    (400, "message to copy not found", M),
    (400, "message to pin not found", M),
    (400, "message to unpin not found", M),
    (400, "message to react not found", M),
    (400, "IMAGE_PROCESS_FAILED", M),
    (400, "PHOTO_INVALID_DIMENSIONS", M),
    (400, "photo has unsupported extension. Use one of .jpg, .jpeg, .gif, .png, .tif or .bmp", M),
    (400, "can't use the media of the specified type in the album", M),
    (400, "file is too big", M),
    (400, "query is too old and response timeout expired or query ID is invalid", M),
    (400, "ALLOW_PAYMENT_REQUIRED_10", C),
    (400, "FROZEN_METHOD_INVALID", B),
    (400, "logged out", B),
    (400, "the bot has already been closed", M),
    (400, "a text that nobody has seen yet", M),
    (401, "Unauthorized", B),
    (401, "Unauthorized: invalid token specified", B),
    (401, "Unauthorized: invalid api-id/api-hash", B),
    (403, "bot was blocked by the user", C),
    (403, "user is deactivated", C),
    (403, "bot can't initiate conversation with a user", C),
    (403, "the bot can't send messages to the bot", C),
    (403, "bot can't send messages to bots", C),
    (403, "bot was kicked from the group chat", C),
    (403, "bot was kicked from the supergroup chat", C),
    (403, "bot was kicked from the channel chat", C),
    (403, "bot is not a member of the group chat", C),
    (403, "bot is not a member of the supergroup chat", C),
    (403, "bot is not a member of the channel chat", C),
    (403, "the group chat was deleted", C),
    (404, "Not Found", B),
    (404, "Not Found: method not found", M),
    (413, "Request Entity Too Large", M),
    (421, "Misdirected Request: unallowed token specified", B),
    (418, "I'm a teapot", M),
]


@pytest.mark.parametrize(("code", "words", "scope"), FINAL)
def test_a_definite_no_is_final_and_reaches_as_far_as_it_says(code: int, words: str, scope: Scope) -> None:
    said = PREFIXES.get(code, "") + words
    refused = answer(code, said)
    assert isinstance(refused, Refused)
    assert (refused.is_passing, refused.may_have_arrived) == (False, False)
    assert (refused.code, refused.words, refused.scope) == (code, said, scope)
    assert refused.advice


@pytest.mark.parametrize(
    ("code", "words", "attempts_max"),
    [
        (400, "wrong file identifier/HTTP URL specified", 3),
        (400, "wrong file_id or the file is temporarily unavailable", 3),
        (400, "wrong remote file identifier specified: Wrong padding in the string", 3),
        (400, "wrong HTTP URL specified", 3),
        (400, "failed to get HTTP URL content", 3),
        (400, "wrong type of the web page content", 3),
        (400, "can't upload file by URL", 3),
        (400, "Group send failed", None),
        (400, "Bad Gateway", None),
        (
            409,
            "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
            None,
        ),
    ],
)
def test_a_passing_no_may_be_tried_again(code: int, words: str, attempts_max: int | None) -> None:
    refused = answer(code, PREFIXES.get(code, "") + words)
    assert isinstance(refused, Refused)
    assert (refused.is_passing, refused.scope, refused.attempts_max) == (True, M, attempts_max)
    assert not refused.may_have_arrived


def test_an_edit_that_changes_nothing_is_delivered() -> None:
    words = "Bad Request: message is not modified: specified new message content and reply markup are exactly the same"
    outcome = answer(400, words, method="editMessageText")
    assert outcome == Delivered(result=b"true", note=words)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("deleteMessage", "Bad Request: message to delete not found"),
        ("stopPoll", "Bad Request: poll has already been closed"),
        ("refundStarPayment", "Bad Request: CHARGE_ALREADY_REFUNDED"),
        ("createNewStickerSet", "Bad Request: sticker set name is already occupied"),
    ],
)
def test_already_done_is_a_yes_only_after_a_try_that_may_have_done_it(method: str, words: str) -> None:
    assert isinstance(answer(400, words, method=method), Refused)
    assert answer(400, words, method=method, was_uncertain=True) == Delivered(result=b"true", note=words)
    assert isinstance(answer(400, words, method="sendMessage", was_uncertain=True), Refused)


def test_a_message_that_was_deleted_at_once_has_been_delivered() -> None:
    words = "Internal Server Error: sent message was immediately deleted and can't be returned"
    assert answer(500, words) == Delivered(result=b"null", note=words)


@pytest.mark.parametrize(
    "words",
    [
        'Bad Request: failed to send message #2 with the error message "Wrong file identifier"',
        'Bad Request: failed to send message #1 with the error message "Too Many Requests: retry after 8"',
    ],
)
def test_a_multi_send_that_broke_off_may_have_arrived_in_part(words: str) -> None:
    refused = answer(400, words, method="sendMediaGroup")
    assert isinstance(refused, Refused)
    assert (refused.is_passing, refused.may_have_arrived, refused.scope) == (False, True, M)


def test_a_group_that_became_a_supergroup_tells_where_it_went() -> None:
    words = "Bad Request: group chat was upgraded to a supergroup chat"
    assert answer(400, words, migrate_to_chat_id=-1001234567890) == Moved(to_chat_id=-1001234567890)
    assert isinstance(answer(400, words), Refused)  # without the new id there is nowhere to go


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (500, "Internal Server Error: restart"),
        (500, "Internal Server Error: Request aborted"),
        (500, "Internal Server Error"),
        (502, "Bad Gateway"),
        (503, "Service Unavailable"),
        (504, "Gateway Timeout"),
        (599, "something new"),
    ],
)
def test_a_server_error_is_no_verdict(code: int, words: str) -> None:
    assert answer(code, words) == Uncertain(why=words, code=code)


def test_a_429_is_limited_whatever_it_says() -> None:
    assert answer(429, "Too Many Requests: retry after 7", retry_after=7) == Limited(retry_after_s=7.0)


@pytest.mark.parametrize(
    ("method", "code", "words"),
    [
        ("banChatMember", 400, "Bad Request: user not found"),
        ("promoteChatMember", 400, "Bad Request: PEER_ID_INVALID"),
        ("forwardMessage", 400, "Bad Request: chat not found"),
        ("copyMessages", 400, "Bad Request: chat not found"),
        ("editMessageText", 403, "Forbidden: MESSAGE_AUTHOR_REQUIRED"),
    ],
)
def test_somebody_unknown_in_a_call_that_is_no_send_does_not_shut_the_chat(method: str, code: int, words: str) -> None:
    refused = answer(code, words, method=method)
    assert isinstance(refused, Refused)
    assert refused.scope is M


def test_every_row_can_be_reached_and_says_what_to_do() -> None:
    """A row that the rows above it hide would be a lie in the docs."""
    probes = [(code, PREFIXES.get(code, "") + words) for code, words, _ in FINAL] + [
        (code, words)
        for code in {entry.code for entry in CATALOGUE}
        for entry in CATALOGUE
        for words in [entry.words.split("|")[0].replace("\\d+", "1").replace("^(bad request: )?", "")]
    ]
    methods = ["sendMessage", "deleteMessage", "stopPoll", "refundStarPayment", "createNewStickerSet"]
    reached = {id(look_up(code=code, words=words, method=method)) for code, words in probes for method in methods}
    assert [entry for entry in CATALOGUE if id(entry) not in reached] == []
    assert all(entry.advice.endswith(".") for entry in CATALOGUE)
