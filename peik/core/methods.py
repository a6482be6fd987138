"""The classes of Bot API methods: one table, the same for every caller. It says what is queued and what may be repeated."""

import enum
import re


class MethodClass(enum.Enum):
    """See docs/telegram.md, Method classes. The first four are queued as letters; the others never wait in a lane."""

    SEND = "send"  # makes a message; a repeat makes a second one
    MONEY = "money"  # moves money or cannot be undone; at most once unless the caller says otherwise
    CREATION = "creation"  # a repeat makes a second object
    WRITE = "write"  # last writer wins; may be repeated freely
    ANSWER = "answer"  # must be immediate, useless when late
    SIGNAL = "signal"  # best effort, never stored
    READ = "read"  # passes through
    SESSION = "session"  # Peik's own: the inbox and the bot's login

    @property
    def is_queued(self) -> bool:
        return self in _QUEUED

    @property
    def is_at_most_once(self) -> bool:
        return self is MethodClass.MONEY or self is MethodClass.CREATION


_QUEUED = frozenset({MethodClass.SEND, MethodClass.MONEY, MethodClass.CREATION, MethodClass.WRITE})

# Only what the rules below would get wrong has to be named; the rest of a class is named for canonical spelling.
_TABLE: dict[MethodClass, str] = {
    MethodClass.SEND: """
        sendMessage sendRichMessage sendPhoto sendLivePhoto sendAudio sendDocument sendVideo sendAnimation sendVoice
        sendVideoNote sendPaidMedia sendMediaGroup sendLocation sendVenue sendContact sendPoll sendChecklist sendDice
        sendSticker sendInvoice sendGame forwardMessage forwardMessages copyMessage copyMessages postStory repostStory
    """,
    MethodClass.MONEY: """
        sendGift giftPremiumSubscription transferBusinessAccountStars transferGift upgradeGift convertGiftToStars
        refundStarPayment replaceManagedBotToken
    """,
    MethodClass.CREATION: """
        createForumTopic createChatInviteLink createChatSubscriptionInviteLink exportChatInviteLink createInvoiceLink
        createNewStickerSet addStickerToSet uploadStickerFile savePreparedInlineMessage savePreparedKeyboardButton
    """,
    MethodClass.WRITE: """
        editMessageText editMessageCaption editMessageMedia editMessageReplyMarkup editMessageLiveLocation
        editMessageChecklist editEphemeralMessageText editEphemeralMessageCaption editEphemeralMessageMedia
        editEphemeralMessageReplyMarkup stopMessageLiveLocation stopPoll deleteMessage deleteMessages
        deleteEphemeralMessage deleteMessageReaction deleteAllMessageReactions setMessageReaction pinChatMessage
        unpinChatMessage unpinAllChatMessages unpinAllForumTopicMessages unpinAllGeneralForumTopicMessages
        banChatMember unbanChatMember restrictChatMember promoteChatMember banChatSenderChat unbanChatSenderChat
        approveChatJoinRequest declineChatJoinRequest approveSuggestedPost declineSuggestedPost revokeChatInviteLink
        editChatInviteLink editChatSubscriptionInviteLink closeForumTopic reopenForumTopic closeGeneralForumTopic
        reopenGeneralForumTopic hideGeneralForumTopic unhideGeneralForumTopic editForumTopic editGeneralForumTopic
        deleteForumTopic leaveChat verifyUser verifyChat removeUserVerification removeChatVerification
        readBusinessMessage deleteBusinessMessages editStory deleteStory setGameScore setPassportDataErrors
        editUserStarSubscription setChatTitle setChatDescription setChatPhoto deleteChatPhoto setChatPermissions
        setChatStickerSet deleteChatStickerSet setChatAdministratorCustomTitle setChatMemberTag setMyCommands
        deleteMyCommands setMyName setMyDescription setMyShortDescription setChatMenuButton
        setMyDefaultAdministratorRights setMyProfilePhoto removeMyProfilePhoto setStickerPositionInSet
        deleteStickerFromSet replaceStickerInSet setStickerEmojiList setStickerKeywords setStickerMaskPosition
        setStickerSetTitle setStickerSetThumbnail setCustomEmojiStickerSetThumbnail deleteStickerSet
        setUserEmojiStatus setBusinessAccountName setBusinessAccountUsername setBusinessAccountBio
        setBusinessAccountProfilePhoto removeBusinessAccountProfilePhoto setBusinessAccountGiftSettings
    """,
    MethodClass.ANSWER: """
        answerCallbackQuery answerInlineQuery answerPreCheckoutQuery answerShippingQuery answerWebAppQuery
        answerGuestQuery answerChatJoinRequestQuery sendChatJoinRequestWebApp
    """,
    MethodClass.SIGNAL: "sendChatAction sendMessageDraft sendRichMessageDraft",
    MethodClass.READ: """
        getMe getFile getChat getChatAdministrators getChatMemberCount getChatMember getUserProfilePhotos getUserChatBoosts
        getBusinessConnection getMyCommands getMyName getMyDescription getMyShortDescription getChatMenuButton
        getMyDefaultAdministratorRights getStickerSet getCustomEmojiStickers getForumTopicIconStickers getGameHighScores
        getStarTransactions getMyStarBalance getAvailableGifts getBusinessAccountStarBalance getBusinessAccountGifts
        getUserGifts getChatGifts getManagedBotToken
    """,
    MethodClass.SESSION: "getUpdates setWebhook deleteWebhook getWebhookInfo logOut close",
}

_CLASS_OF: dict[str, tuple[str, MethodClass]] = {
    name.lower(): (name, kind) for kind, names in _TABLE.items() for name in names.split()
}

# A method of a Bot API newer than this table. The verb decides; a verb we do not know passes straight through, since
# repeating or delaying something unknown is worse than not helping with it.
VERBS: tuple[tuple[str, MethodClass], ...] = (
    ("get", MethodClass.READ),
    ("answer", MethodClass.ANSWER),
    ("send", MethodClass.SEND),
    ("forward", MethodClass.SEND),
    ("copy", MethodClass.SEND),
    ("create", MethodClass.CREATION),
    ("gift", MethodClass.MONEY),
    ("transfer", MethodClass.MONEY),
    ("refund", MethodClass.MONEY),
    ("edit", MethodClass.WRITE),
    ("set", MethodClass.WRITE),
    ("delete", MethodClass.WRITE),
    ("remove", MethodClass.WRITE),
    ("pin", MethodClass.WRITE),
    ("unpin", MethodClass.WRITE),
)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")

# Edits that fully replace what an earlier one of the same method and target did, and the parameters that name the
# target. Only these are merged: dropping any other write could lose an effect that the later one does not repeat.
# A live period that is not given stays as it was, so that only an edit with the same one replaces it.
_MESSAGE = ("business_connection_id", "chat_id", "message_id", "inline_message_id")
_EPHEMERAL = ("chat_id", "ephemeral_message_id", "receiver_user_id", "user_id")
TARGETS: dict[str, tuple[str, ...]] = {
    "editMessageText": _MESSAGE,
    "editMessageCaption": _MESSAGE,
    "editMessageMedia": _MESSAGE,
    "editMessageReplyMarkup": _MESSAGE,
    "editMessageLiveLocation": (*_MESSAGE, "live_period"),
    "editMessageChecklist": _MESSAGE,
    "editEphemeralMessageText": _EPHEMERAL,
    "editEphemeralMessageCaption": _EPHEMERAL,
    "editEphemeralMessageMedia": _EPHEMERAL,
    "editEphemeralMessageReplyMarkup": _EPHEMERAL,
    "setMessageReaction": _MESSAGE,
    "setChatTitle": ("chat_id",),
    "setChatDescription": ("chat_id",),
}


def is_method_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def classify(method: str) -> tuple[str, MethodClass | None]:
    """The canonical spelling and class of a method, known or not. None: unknown verb, passes straight through."""
    known = _CLASS_OF.get(method.lower())
    if known is not None:
        return known
    lowered = method.lower()
    for verb, kind in VERBS:
        if lowered.startswith(verb):
            return method, kind
    return method, None


def known_methods() -> dict[str, MethodClass]:
    return dict(_CLASS_OF.values())
