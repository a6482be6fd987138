"""Telegram's errors as data: code and words → what they mean for a letter. Read from top to bottom; the first row that fits wins.

Texts have changed over the years and will again, so a row matches the error code and a lower-cased part of the words.
See docs/telegram.md, Refusals; docs/reference/errors.md is made from this table.
"""

import enum
import re

import msgspec


class Verdict(enum.Enum):
    ALREADY_SO = "already so"  # the state asked for is in place: success
    ALREADY_SO_ON_REPEAT = "already so, if tried before"  # success only if an earlier try may have arrived
    GONE_AGAIN = "delivered, then deleted"  # it arrived, and there is nothing to show for it
    PASSING = "passing"  # may work later: costs one of the attempts
    FINAL = "final"  # will never work: fails at once
    PARTIAL = "partly done"  # some of it may have arrived: fails at once, as uncertain
    UNCERTAIN = "uncertain"  # no verdict: may have arrived
    MOVED = "moved"  # same letter, new chat id
    LIMITED = "limited"  # wait, then the same letter again


class Scope(enum.Enum):
    """How far a refusal reaches."""

    MESSAGE = "message"
    CHAT = "chat"
    BOT = "bot"


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True):
    code: int  # 0: any
    words: str  # a regular expression, searched in the lower-cased description
    verdict: Verdict
    scope: Scope = Scope.MESSAGE
    methods: str = ""  # a regular expression on the method; empty: any
    attempts_max: int | None = None  # a tighter bound than the letter's own
    may_be_mended: bool = False  # bots catch it and send in another way: final to a bot that waits for the answer
    advice: str


def _row(code: int, words: str, verdict: Verdict, scope: Scope, advice: str, **more: object) -> CatalogueEntry:
    return CatalogueEntry(code=code, words=words, verdict=verdict, scope=scope, advice=advice, **more)  # type: ignore[arg-type]


_M, _C, _B = Scope.MESSAGE, Scope.CHAT, Scope.BOT
_FINAL, _PASSING = Verdict.FINAL, Verdict.PASSING
_NOT_A_SEND = r"^(?!send)"

CATALOGUE: tuple[CatalogueEntry, ...] = (
    # -- quotes the text of the message, and so whatever somebody wrote into it: no row below may be found in there
    _row(400, r"^(bad request: )?can't parse entities", _FINAL, _M, "The markup is broken: escape it, or send plain text."),
    # -- already so: the world is as the caller wants it
    _row(400, r"message is not modified", Verdict.ALREADY_SO, _M, "The message already looks like this."),
    _row(400, r"message to delete not found", Verdict.ALREADY_SO_ON_REPEAT, _M, "The message is not there.", methods=r"^delete"),
    _row(400, r"poll has already been closed", Verdict.ALREADY_SO_ON_REPEAT, _M, "The poll is closed.", methods=r"^stopPoll$"),
    _row(400, r"charge_already_refunded", Verdict.ALREADY_SO_ON_REPEAT, _M, "The payment is refunded.", methods=r"^refundStarPayment$"),
    _row(400, r"sticker set name is already occupied|shortname_occupy_failed", Verdict.ALREADY_SO_ON_REPEAT, _M, "A set of this name exists.", methods=r"^createNewStickerSet$"),
    _row(500, r"sent message was immediately deleted", Verdict.GONE_AGAIN, _M, "Telegram took the message and removed it: anti-spam or auto-delete."),
    # -- moved and limited
    _row(400, r"group chat was upgraded to a supergroup", Verdict.MOVED, _C, "The group has a new id; Peik uses it from now on."),
    _row(429, r"", Verdict.LIMITED, _C, "Telegram asked to slow down; Peik waits and tries again."),
    # -- multi-sends of which a part may be out
    _row(400, r"failed to send message #\d+", Verdict.PARTIAL, _M, "Some items may have arrived. Look, then resolve or retry."),
    # -- somebody named in the call is unknown. Only a send says something about the chat itself: a member who cannot be
    #    banned, or a chat to forward from that is gone, must not shut the chat that the letter goes to.
    _row(400, r"chat not found|user not found|peer_id_invalid|input_user_deactivated", _FINAL, _M, "It names a chat or a user that this bot does not know.", methods=_NOT_A_SEND),
    # -- the whole chat is closed to this bot
    _row(400, r"chat not found|user not found|peer_id_invalid|input_user_deactivated", _FINAL, _C, "No such chat for this bot: wrong id, or the user never wrote to it."),
    _row(403, r"bot was blocked by the user", _FINAL, _C, "The user blocked the bot; it opens again when they unblock it."),
    _row(403, r"user is deactivated", _FINAL, _C, "The account no longer exists."),
    _row(403, r"bot can't initiate conversation", _FINAL, _C, "The user must press Start first."),
    _row(403, r"can't send messages to (the )?bot", _FINAL, _C, "Bots cannot write to bots."),
    _row(403, r"bot was kicked|bot is not a member|group chat was deleted|chat was deleted", _FINAL, _C, "The bot is no longer in that chat; add it again."),
    _row(403, r"", _FINAL, _M, "Telegram forbids this bot to do that there.", methods=_NOT_A_SEND),
    _row(403, r"", _FINAL, _C, "Telegram forbids this bot to write there."),
    _row(400, r"have no write access to the chat|chat_write_forbidden|need administrator rights in the channel chat|chat_restricted|allow_payment_required", _FINAL, _C, "The bot may not write there; give it the right."),
    # -- the whole bot. Words that stop all of it count only where Telegram itself speaks, and not where it quotes
    _row(401, r"", _FINAL, _B, "Telegram does not accept the token: revoked or mistyped. Letters are kept; set the new token."),
    _row(404, r"method not found", _FINAL, _M, "This Bot API server does not know the method; it may be older than the method."),
    _row(404, r"", _FINAL, _B, "Telegram does not know this token. Letters are kept; set the right token."),
    _row(421, r"", _FINAL, _B, "This Bot API server does not serve this bot."),
    _row(400, r"^(bad request: )?logged out", _FINAL, _B, "The bot is logged out from this Bot API server."),
    _row(400, r"^(bad request: )?frozen_method_invalid", _FINAL, _B, "Telegram has frozen this account."),
    _row(409, r"", _PASSING, _M, "Two programs use this token at once."),
    # -- passing faults under code 400
    _row(400, r"wrong file_id or the file is temporarily unavailable|wrong file identifier|wrong remote file identifier", _PASSING, _M, "The file id is not usable now; it may belong to another bot.", attempts_max=3, may_be_mended=True),
    _row(400, r"wrong http url specified|failed to get http url content|wrong type of the web page content|can't upload file by url|webpage_(curl_failed|media_empty)", _PASSING, _M, "Telegram could not fetch that URL. Upload the file itself.", attempts_max=3, may_be_mended=True),
    _row(400, r"group send failed", _PASSING, _M, "Telegram refused the album as a whole, often a flood in disguise."),
    _row(400, r"^(bad request: )?bad gateway", _PASSING, _M, "Trouble inside Telegram."),
    # -- final, this message only: the caller's to fix
    _row(400, r"not enough rights|chat_admin_required|topic_closed", _FINAL, _M, "The bot lacks a right for this; give it, then retry."),
    _row(400, r"message thread not found|topic_deleted", _FINAL, _M, "The topic is gone."),
    _row(400, r"message to be replied not found|reply_message_id_invalid", _FINAL, _M, "Set allow_sending_without_reply to send it anyway."),
    _row(400, r"quote_text_invalid", _FINAL, _M, "The quoted text is not in the message."),
    _row(400, r"entity_bounds_invalid", _FINAL, _M, "The markup is broken: escape it, or send plain text."),
    _row(400, r"too long|message_too_long|message text is empty|button_data_invalid|button_url_invalid|reply_markup_invalid|can't parse|expected an array|chat_id is empty|text buttons are unallowed", _FINAL, _M, "The request is not well-formed."),
    _row(400, r"message to edit not found|message can't be edited|message_id_invalid|there is no text in the message|message is not a poll", _FINAL, _M, "That message cannot be edited."),
    _row(400, r"message can't be deleted", _FINAL, _M, "Older than 48 hours, or no right to delete it."),
    _row(400, r"message to \w+ not found", _FINAL, _M, "That message does not exist."),
    _row(400, r"image_process_failed|photo_invalid_dimensions|photo has unsupported extension|can't use the media of the specified type", _FINAL, _M, "Telegram cannot use this media."),
    _row(400, r"file is too big|file must be non-empty", _FINAL, _M, "The file does not fit Telegram's limits."),
    _row(400, r"query is too old", _FINAL, _M, "Too late to answer."),
    _row(413, r"", _FINAL, _M, "The request is larger than Telegram takes."),
    # -- no verdict
    _row(500, r"", Verdict.UNCERTAIN, _M, "Trouble inside Telegram; the message may have arrived."),
    _row(502, r"", Verdict.UNCERTAIN, _M, "Trouble between Telegram's servers; the message may have arrived."),
    _row(503, r"", Verdict.UNCERTAIN, _M, "Telegram is overloaded; the message may have arrived."),
    _row(504, r"", Verdict.UNCERTAIN, _M, "Telegram did not answer in time; the message may have arrived."),
    # -- anything else that Telegram says with a 4xx is a definite no (it makes 400 of codes that it does not know)
    _row(400, r"", _FINAL, _M, "Telegram refused it."),
)  # fmt: skip

_COMPILED = tuple((entry, re.compile(entry.words), re.compile(entry.methods, re.IGNORECASE)) for entry in CATALOGUE)

_UNKNOWN_SERVER_ERROR = CatalogueEntry(
    code=0, words="", verdict=Verdict.UNCERTAIN, advice="An error that Peik does not know yet; it may have arrived."
)
_UNKNOWN_REFUSAL = CatalogueEntry(code=0, words="", verdict=Verdict.FINAL, advice="Telegram refused it.")


def look_up(*, code: int, words: str, method: str) -> CatalogueEntry:
    """The row that fits. There is always one: an unknown 5xx is uncertain, any other unknown code is final."""
    lowered = words.lower()
    for entry, words_form, method_form in _COMPILED:
        if entry.code == code and words_form.search(lowered) and method_form.search(method):
            return entry
    return _UNKNOWN_SERVER_ERROR if code >= 500 else _UNKNOWN_REFUSAL
