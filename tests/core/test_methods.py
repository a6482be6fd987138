"""The classes of docs/telegram.md, Method classes, method by method, and the rules for methods that no table knows yet."""

import pytest

from peik.core.methods import TARGETS, MethodClass, classify, is_method_name, known_methods

SECTION_8 = {
    MethodClass.SEND: """sendMessage sendRichMessage sendPhoto sendLivePhoto sendAudio sendDocument sendVideo
        sendAnimation sendVoice sendVideoNote sendPaidMedia sendMediaGroup sendLocation sendVenue sendContact sendPoll
        sendChecklist sendDice sendSticker sendInvoice sendGame forwardMessage forwardMessages copyMessage copyMessages
        postStory repostStory""",
    MethodClass.MONEY: """sendGift giftPremiumSubscription transferBusinessAccountStars transferGift upgradeGift
        convertGiftToStars refundStarPayment replaceManagedBotToken""",
    MethodClass.CREATION: """createForumTopic createChatInviteLink createChatSubscriptionInviteLink exportChatInviteLink
        createInvoiceLink createNewStickerSet addStickerToSet uploadStickerFile savePreparedInlineMessage
        savePreparedKeyboardButton""",
    MethodClass.WRITE: """editMessageText editMessageCaption editMessageMedia editMessageReplyMarkup
        editMessageLiveLocation editMessageChecklist editEphemeralMessageText stopMessageLiveLocation stopPoll
        deleteMessage deleteMessages deleteEphemeralMessage deleteMessageReaction deleteAllMessageReactions
        setMessageReaction pinChatMessage unpinChatMessage unpinAllChatMessages unpinAllForumTopicMessages
        setChatTitle deleteChatPhoto removeMyProfilePhoto editForumTopic setStickerSetTitle deleteStickerSet setMyName
        setMyCommands deleteMyCommands setChatMenuButton setBusinessAccountBio banChatMember unbanChatMember
        restrictChatMember promoteChatMember banChatSenderChat unbanChatSenderChat approveChatJoinRequest
        declineChatJoinRequest approveSuggestedPost declineSuggestedPost revokeChatInviteLink editChatInviteLink
        closeForumTopic reopenForumTopic hideGeneralForumTopic unhideGeneralForumTopic leaveChat verifyUser verifyChat
        removeUserVerification removeChatVerification readBusinessMessage deleteBusinessMessages editStory deleteStory
        setGameScore setPassportDataErrors editUserStarSubscription""",
    MethodClass.ANSWER: """answerCallbackQuery answerInlineQuery answerPreCheckoutQuery answerShippingQuery
        answerWebAppQuery answerGuestQuery answerChatJoinRequestQuery sendChatJoinRequestWebApp""",
    MethodClass.SIGNAL: "sendChatAction sendMessageDraft sendRichMessageDraft",
    MethodClass.READ: "getMe getChat getChatMember getFile getStarTransactions getUserProfilePhotos",
    MethodClass.SESSION: "getUpdates setWebhook deleteWebhook getWebhookInfo logOut close",
}


@pytest.mark.parametrize(
    ("method", "kind"), [(name, kind) for kind, names in SECTION_8.items() for name in names.split()]
)
def test_a_method_has_the_class_of_section_8_however_it_is_spelled(method: str, kind: MethodClass) -> None:
    for spelling in (method, method.lower(), method.upper()):
        assert classify(spelling) == (method, kind)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("getHolograms", MethodClass.READ),
        ("answerHologramQuery", MethodClass.ANSWER),
        ("sendHologram", MethodClass.SEND),
        ("forwardHologram", MethodClass.SEND),
        ("copyHologram", MethodClass.SEND),
        ("createHologram", MethodClass.CREATION),
        ("giftHologram", MethodClass.MONEY),
        ("transferHologram", MethodClass.MONEY),
        ("refundHologram", MethodClass.MONEY),
        ("editHologram", MethodClass.WRITE),
        ("setHologram", MethodClass.WRITE),
        ("deleteHologram", MethodClass.WRITE),
        ("removeHologram", MethodClass.WRITE),
        ("pinHologram", MethodClass.WRITE),
        ("unpinHologram", MethodClass.WRITE),
        ("beamHologram", None),
    ],
)
def test_the_verb_decides_about_a_method_that_is_newer_than_the_table(method: str, kind: MethodClass | None) -> None:
    assert classify(method) == (method, kind)


@pytest.mark.parametrize("kind", MethodClass)
def test_only_the_first_four_classes_are_queued_and_money_and_creations_at_most_once(kind: MethodClass) -> None:
    is_queued = kind in (MethodClass.SEND, MethodClass.MONEY, MethodClass.CREATION, MethodClass.WRITE)
    assert kind.is_queued is is_queued
    assert kind.is_at_most_once is (kind in (MethodClass.MONEY, MethodClass.CREATION))


def test_only_writes_are_ever_merged() -> None:
    known = known_methods()
    assert {known[method] for method in TARGETS} == {MethodClass.WRITE}


@pytest.mark.parametrize(
    ("text", "is_name"),
    [("sendMessage", True), ("", False), ("send/Message", False), ("7up", False), ("séance", False), ("a" * 65, False)],
)
def test_a_method_name_is_letters_and_digits_of_bounded_length(text: str, is_name: bool) -> None:
    assert is_method_name(text) is is_name
