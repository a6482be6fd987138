"""The table of all methods: one row each for those with rules of their own, and a general truth for the rest.

See docs/telegram.md, Method classes.
"""

from peik.testing.answer import Described, Json, Refusal, bad, integer, text_of, too_many
from peik.testing.edits import EDITS, TOPICS
from peik.testing.posting import known_chat, writable_chat
from peik.testing.sends import SENDS, Handler, send_anything, store, taken
from peik.testing.webhooks import POLLING, WEBHOOKS
from peik.testing.world import RIGHTS, SimCall, SimMember, World

LOGIN_WAIT_S = 600.0
CLOSE_WAIT_S = 600.0


def find(name: str) -> tuple[str, Handler]:
    """A method's true spelling and what carries it out. Names are case-insensitive. Raises the 404."""
    row = _BY_LOWER.get(name.lower())
    if row is not None:
        return row
    lower = name.lower()
    if lower.startswith("send") and len(lower) > 4:
        return name, send_anything
    if lower.startswith(("set", "delete")) and len(lower) > 6:
        return name, truth
    raise Refusal(404, "Not Found: method not found")


def get_me(world: World, call: SimCall) -> object:
    return call.bot.user.as_json() | {
        "can_join_groups": True,
        "can_read_all_group_messages": True,
        "supports_inline_queries": True,
        "can_connect_to_business": False,
        "has_main_web_app": False,
    }


def log_out(world: World, call: SimCall) -> object:
    """The bot leaves this server: its queue and webhook are wiped, and it cannot come back for ten minutes.

    See docs/telegram.md, Logging out and closing.
    """
    bot = call.bot
    bot.queue.clear()
    bot.webhook = None
    bot.logged_out_until = call.now + LOGIN_WAIT_S
    return Described(result=True, description="Logged out")


def close(world: World, call: SimCall) -> object:
    """Free the instance and keep the queue; refused in its first ten minutes."""
    remaining_s = call.bot.started_at + CLOSE_WAIT_S - call.now
    if remaining_s > 0:
        raise too_many(int(remaining_s) + 1)
    call.bot.started_at = call.now
    return True


def answer_query(kind: str, seconds_option: str) -> Handler:
    def answer(world: World, call: SimCall) -> object:
        field = f"{kind}_query_id"
        query = call.bot.queries.get(text_of(call.params, field))
        patience_s = float(getattr(world.options, seconds_option))
        if query is None or query.kind != kind or call.now - query.asked_at > patience_s:
            raise bad("query is too old and response timeout expired or query ID is invalid")
        world.note_applied(call, chat_id=query.chat_id or 0, text=text_of(call.params, "text"))
        return True

    return answer


def chat_action(world: World, call: SimCall) -> object:
    if not text_of(call.params, "action"):
        raise bad("wrong parameter action in request")
    writable_chat(world, call.bot, call.params)
    return True


def get_chat(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels")
    face = chat.as_json() | {"accent_color_id": 0, "max_reaction_count": 11}
    face["accepted_gift_types"] = dict.fromkeys(gifts, True)
    if chat.pinned and chat.pinned[-1] in chat.messages:
        face["pinned_message"] = chat.messages[chat.pinned[-1]]
    return face


def get_member(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    user = world.users.get(integer(call.params, "user_id"))
    if user is None:
        raise bad("user not found")
    if chat.is_private:
        return SimMember().as_json(user)
    member = world.member(chat, call.bot) if user.id == call.bot.id else chat.members.get(user.id)
    return (member or SimMember(status="left")).as_json(user)


def get_member_count(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    return 2 if chat.is_private else sum(member.is_inside for member in chat.members.values())


def get_administrators(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    if chat.is_private:
        raise bad("there are no administrators in the private chat")
    high = {user_id: one for user_id, one in chat.members.items() if one.status in {"creator", "administrator"}}
    return [one.as_json(world.users[user_id]) for user_id, one in high.items()]


def get_file(world: World, call: SimCall) -> object:
    stored = call.bot.files.by_id.get(text_of(call.params, "file_id"))
    if stored is None:
        raise bad("invalid file_id")
    most = world.options.download_bytes_max
    if most is not None and stored.size_bytes > most:
        raise bad("file is too big")
    return stored.as_json() | {"file_path": stored.path}


def upload_sticker(world: World, call: SimCall) -> object:
    upload = call.files.get("sticker")
    stored = store(world, call, upload, "sticker") if upload else taken(world, call, "sticker", "sticker")
    return stored.as_json()


def invite_link(world: World, call: SimCall) -> object:
    """A new link, or the one that is named, changed or revoked."""
    chat = known_chat(world, call.bot, call.params)
    link = text_of(call.params, "invite_link") or f"https://t.me/+{world.chance.getrandbits(64):016x}"
    world.note_applied(call, chat_id=chat.id, text=link)
    if call.method == "exportChatInviteLink":
        return link
    face: Json = {"invite_link": link, "creator": call.bot.user.as_json(), "creates_join_request": False}
    is_revoked = call.method == "revokeChatInviteLink"
    return face | {"is_primary": False, "is_revoked": is_revoked, "name": text_of(call.params, "name")}


def invoice_link(world: World, call: SimCall) -> object:
    link = f"https://t.me/$peik{world.chance.getrandbits(48):x}"
    world.note_applied(call, text=link)
    return link


def refund(world: World, call: SimCall) -> object:
    """A second refund of one payment is refused, which proves the first."""
    done = call.bot.settings.setdefault("refunds", [])
    charge_id = text_of(call.params, "telegram_payment_charge_id")
    assert isinstance(done, list)
    if charge_id in done:
        raise bad("CHARGE_ALREADY_REFUNDED")
    done.append(charge_id)
    world.note_applied(call, text=charge_id)
    return True


def prepared(world: World, call: SimCall) -> object:
    world.note_applied(call)
    return {"id": f"{world.chance.getrandbits(48):x}", "expiration_date": int(call.now) + 86_400}


def inline_message(world: World, call: SimCall) -> object:
    world.note_applied(call)
    return {"inline_message_id": f"{world.chance.getrandbits(128):032x}"}


def story(world: World, call: SimCall) -> object:
    world.note_applied(call)
    number = integer(call.params, "story_id") or world.chance.randint(1, 1_000_000)
    return {"chat": {"id": call.bot.id, "type": "private"}, "id": number}


def managed_token(world: World, call: SimCall) -> object:
    """The token of a bot that this one manages: any, since nobody keeps it."""
    return f"{integer(call.params, 'user_id')}:{world.chance.getrandbits(140):035x}"


def business_connection(world: World, call: SimCall) -> object:
    raise bad("BUSINESS_CONNECTION_INVALID")


def sticker_set(world: World, call: SimCall) -> object:
    raise bad("STICKERSET_INVALID")


def truth(world: World, call: SimCall) -> object:
    """A write that always works: `true`, once its chat is known. What set… says, get… gives back."""
    chat_id = known_chat(world, call.bot, call.params).id if "chat_id" in call.params else 0
    if call.method.startswith("set"):
        call.bot.settings[call.method[3:]] = call.params
    elif call.method.startswith("delete"):
        call.bot.settings.pop(call.method[6:], None)
    world.note_applied(call, chat_id=chat_id)
    return True


def remembered(default: object, field: str = "") -> Handler:
    """A read of what the matching set… has said."""

    def read(world: World, call: SimCall) -> object:
        params = call.bot.settings.get(call.method[3:])
        if not isinstance(params, dict) or field not in params:
            return default
        return params[field] if isinstance(default, list) else {field: params[field]}

    return read


# Money, writes, answers and signals with nothing more to say than yes.
_TRUTHS = (
    "addStickerToSet", "answerChatJoinRequestQuery", "approveChatJoinRequest", "approveSuggestedPost", "banChatMember",
    "banChatSenderChat", "closeGeneralForumTopic", "convertGiftToStars", "createNewStickerSet",
    "declineChatJoinRequest", "declineSuggestedPost", "deleteAllMessageReactions", "deleteBusinessMessages",
    "deleteChatPhoto", "deleteChatStickerSet", "deleteEphemeralMessage", "deleteMessageReaction", "deleteMyCommands",
    "deleteStickerFromSet", "deleteStickerSet", "deleteStory", "editEphemeralMessageCaption",
    "editEphemeralMessageMedia", "editEphemeralMessageReplyMarkup", "editEphemeralMessageText", "editGeneralForumTopic",
    "editUserStarSubscription", "giftPremiumSubscription", "hideGeneralForumTopic", "leaveChat", "promoteChatMember",
    "readBusinessMessage", "removeBusinessAccountProfilePhoto", "removeChatVerification", "removeMyProfilePhoto",
    "removeUserVerification", "reopenGeneralForumTopic", "replaceStickerInSet", "restrictChatMember",
    "sendChatJoinRequestWebApp", "sendGift", "sendMessageDraft", "sendRichMessageDraft",
    "setChatAdministratorCustomTitle", "setChatDescription", "setChatMenuButton", "setChatPermissions", "setChatPhoto",
    "setChatStickerSet", "setChatTitle", "setGameScore", "setMyCommands", "setMyDefaultAdministratorRights",
    "setMyDescription", "setMyName", "setMyShortDescription", "setPassportDataErrors", "setStickerEmojiList",
    "setStickerKeywords", "setStickerMaskPosition", "setStickerPositionInSet", "setStickerSetThumbnail",
    "setStickerSetTitle", "setUserEmojiStatus", "transferBusinessAccountStars", "transferGift", "unbanChatMember",
    "unbanChatSenderChat", "unhideGeneralForumTopic", "unpinAllForumTopicMessages", "unpinAllGeneralForumTopicMessages",
    "upgradeGift", "verifyChat", "verifyUser",
)  # fmt: skip

METHODS: dict[str, Handler] = {
    **dict.fromkeys(_TRUTHS, truth),
    **SENDS,
    **EDITS,
    **POLLING,
    **WEBHOOKS,
    **TOPICS,
    "getMe": get_me,
    "logOut": log_out,
    "close": close,
    "answerCallbackQuery": answer_query("callback", "callback_s"),
    "answerInlineQuery": answer_query("inline", "inline_s"),
    "answerPreCheckoutQuery": answer_query("pre_checkout", "checkout_s"),
    "answerShippingQuery": answer_query("shipping", "checkout_s"),
    "sendChatAction": chat_action,
    "getChat": get_chat,
    "getChatMember": get_member,
    "getChatMemberCount": get_member_count,
    "getChatAdministrators": get_administrators,
    "getFile": get_file,
    "uploadStickerFile": upload_sticker,
    "createChatInviteLink": invite_link,
    "createChatSubscriptionInviteLink": invite_link,
    "exportChatInviteLink": invite_link,
    "editChatInviteLink": invite_link,
    "editChatSubscriptionInviteLink": invite_link,
    "revokeChatInviteLink": invite_link,
    "createInvoiceLink": invoice_link,
    "refundStarPayment": refund,
    "savePreparedInlineMessage": prepared,
    "savePreparedKeyboardButton": prepared,
    "answerGuestQuery": inline_message,
    "answerWebAppQuery": inline_message,
    "postStory": story,
    "repostStory": story,
    "editStory": story,
    "getManagedBotToken": managed_token,
    "replaceManagedBotToken": managed_token,
    "getBusinessConnection": business_connection,
    "getStickerSet": sticker_set,
    "getMyCommands": remembered([], "commands"),
    "getMyName": remembered({"name": ""}, "name"),
    "getMyDescription": remembered({"description": ""}, "description"),
    "getMyShortDescription": remembered({"short_description": ""}, "short_description"),
    "getMyDefaultAdministratorRights": remembered(dict.fromkeys(RIGHTS, False)),
    "getChatMenuButton": remembered({"type": "commands"}),
    "getUserProfilePhotos": remembered({"total_count": 0, "photos": []}),
    "getUserProfileAudios": remembered({"total_count": 0, "audios": []}),
    "getUserPersonalChatMessages": remembered([]),
    "getUserGifts": remembered({"total_count": 0, "gifts": []}),
    "getChatGifts": remembered({"total_count": 0, "gifts": []}),
    "getBusinessAccountGifts": remembered({"total_count": 0, "gifts": []}),
    "getBusinessAccountStarBalance": remembered({"amount": 0}),
    "getManagedBotAccessSettings": remembered({"is_access_restricted": False}),
    "getUserChatBoosts": remembered({"boosts": []}),
    "getMyStarBalance": remembered({"amount": 0}),
    "getStarTransactions": remembered({"transactions": []}),
    "getAvailableGifts": remembered({"gifts": []}),
    "getForumTopicIconStickers": remembered([]),
    "getCustomEmojiStickers": remembered([]),
    "getGameHighScores": remembered([]),
}

_BY_LOWER: dict[str, tuple[str, Handler]] = {name.lower(): (name, handler) for name, handler in METHODS.items()}
