"""What is bought, given and posted for others: Stars, gifts, boosts, stories, and what a bot does for a business account.

Where any chat may be made up, so may a connection, a gift and a story, and nobody runs out of Stars.
"""

from peik.errors import BadInput
from peik.testing.answer import (
    Json,
    Params,
    UploadedFile,
    bad,
    flag,
    forbidden,
    integer,
    integers,
    mapping,
    sequence,
    text_of,
)
from peik.testing.media import kept, take, taken
from peik.testing.posting import (
    ADDRESS,
    appear,
    ask,
    caption,
    check_connection,
    known_chat,
    tell,
    told_by,
    visible,
    words,
)
from peik.testing.sends import Handler, content_of
from peik.testing.updates import DAY_S
from peik.testing.world import SimBot, SimCall, SimChat, SimStory, SimUser, World

PREMIUM = {3: 1000, 6: 1500, 12: 2500}  # months and their price in Stars
GIFT_TEXT_MAX = 128
PAGE_MAX = 100
STORY_HOURS = (6, 12, 24, 48)
STORY_CAPTION_MAX = 2048
BIO_MAX = 140
NAME_MAX = 64
# The gifts that anybody can buy: emoji, price, price of the upgrade, how many there are (0: no end), how many are left.
SHOP: dict[str, tuple[str, int, int, int]] = {
    "5170145012310081615": ("💝", 15, 0, 0),
    "5170250947678437525": ("🎁", 25, 0, 0),
    "5170144170496491616": ("🎂", 50, 0, 0),
    "5168043875654172773": ("🏆", 100, 25, 0),
    "5170521118301225164": ("💎", 100, 25, 1_000),
}


def account(world: World, call: SimCall, right: str) -> SimUser:
    """Whose business account a request is for, if the connection lets the bot do that."""
    connection = check_connection(world, call.bot, text_of(call.params, "business_connection_id"))
    if connection is None:  # made up
        return world.users.setdefault(1, SimUser(id=1, first_name="Business"))
    rights = connection["rights"]
    assert isinstance(rights, dict)
    if not rights.get(right):
        raise forbidden("BOT_ACCESS_FORBIDDEN")
    return world.users[integer(connection, "user_chat_id")]


def _pays(world: World, bot: SimBot, stars: int, **partner: object) -> None:
    """The bot gives Stars away; what for, its list of transactions says."""
    if stars > balance(bot) and not world.options.accept_any_chat:
        raise bad("BALANCE_TOO_LOW")
    number = f"{world.chance.getrandbits(100):025x}"
    bot.transactions.append({"id": number, "amount": stars, "date": int(world.now()), "receiver": partner})


def balance(bot: SimBot) -> int:
    """The Stars of a bot."""
    return sum(integer(one, "amount") if "source" in one else -integer(one, "amount") for one in bot.transactions)


def receive(world: World, bot: SimBot, stars: int, **partner: object) -> str:
    """Stars come in; the number of the transaction."""
    number = f"{world.chance.getrandbits(100):025x}"
    bot.transactions.append({"id": number, "amount": stars, "date": int(world.now()), "source": partner})
    return number


def _spend(world: World, user: SimUser, stars: int) -> None:
    if stars > user.stars and not world.options.accept_any_chat:
        raise bad("BALANCE_TOO_LOW")
    user.stars = max(0, user.stars - stars)


# Gifts


def _gift(world: World, bot: SimBot, gift_id: str) -> Json:
    """A Gift with the sticker that stands for it, by an id of this bot's."""
    emoji, price, upgrade, total = SHOP.get(gift_id, ("🎁", 1, 0, 0))
    held = bot.settings.setdefault("gifts", {})
    assert isinstance(held, dict)
    if gift_id not in held:
        stored = kept(bot, UploadedFile(filename="gift.tgs", content=gift_id.encode()), "sticker", {})
        held[gift_id] = {**stored.as_json(), **stored.face, "is_animated": True, "emoji": emoji}
    face: Json = {"id": gift_id, "sticker": held[gift_id], "star_count": price}
    if upgrade:
        face["upgrade_star_count"] = upgrade
    if total:
        face |= {"total_count": total, "remaining_count": total - world.gifts_sold.get(gift_id, 0)}
    return face


def available_gifts(world: World, call: SimCall) -> object:
    every = [_gift(world, call.bot, gift_id) for gift_id in SHOP]
    return {"gifts": [one for one in every if one.get("remaining_count", 1)]}


def _gift_words(world: World, call: SimCall) -> Json:
    text, entities = words(world, call.params, "text", mode_field="text_parse_mode", entities_field="text_entities")
    if len(text) > GIFT_TEXT_MAX:
        raise bad("MESSAGE_TOO_LONG")
    return ({"text": text} if text else {}) | ({"entities": entities} if entities else {})


def send_gift(world: World, call: SimCall) -> object:
    gift_id = text_of(call.params, "gift_id")
    if gift_id not in SHOP and not (gift_id and world.options.accept_any_chat):
        raise bad("STARGIFT_INVALID")
    gift, said = _gift(world, call.bot, gift_id), _gift_words(world, call)
    if gift.get("remaining_count", 1) == 0:
        raise bad("STARGIFT_USAGE_LIMITED")
    chat = known_chat(world, call.bot, call.params, "user_id" if call.params.get("user_id") else "chat_id")
    if not chat.is_private and chat.type != "channel":
        raise bad("STARGIFT_PEER_INVALID")
    price, upgrade = integer(gift, "star_count"), integer(gift, "upgrade_star_count")
    prepaid = upgrade if flag(call.params, "pay_for_upgrade") else 0
    if flag(call.params, "pay_for_upgrade") and not upgrade:
        raise bad("STARGIFT_UPGRADE_UNAVAILABLE")
    if chat.user is not None:
        partner: Json = {"type": "user", "transaction_type": "gift_purchase", "user": chat.user.as_json()}
    else:
        partner = {"type": "chat", "chat": chat.as_json()}
    _pays(world, call.bot, price + prepaid, **partner, gift=gift)
    world.gifts_sold[gift_id] = world.gifts_sold.get(gift_id, 0) + 1
    more: Json = {"convert_star_count": price * 85 // 100}
    if upgrade:
        more |= {"can_be_upgraded": True, **({"prepaid_upgrade_star_count": prepaid} if prepaid else {})}
    owned_id = f"{chat.id}_{call.now:.0f}_{world.chance.getrandbits(32)}"
    held: Json = {"type": "regular", "gift": gift, "owned_gift_id": owned_id, "sender_user": call.bot.user.as_json()}
    held |= {"send_date": int(call.now), "is_saved": True, **said, **more}
    world.gifts.setdefault(chat.id, {})[owned_id] = held
    tell(world, call.bot, chat, {"gift": {"gift": gift, **said, **more}})
    world.note_applied(call, chat_id=chat.id, text=str(said.get("text", "")))
    return True


def _excluded(params: Params, gift: Json) -> bool:
    """Is it one of those that the request does not want?"""
    face = gift["gift"]
    assert isinstance(face, dict)
    is_unique, is_limited = gift["type"] == "unique", "total_count" in face
    is_regular, can_rise = not is_unique, bool(gift.get("can_be_upgraded"))
    return (
        (flag(params, "exclude_unique") and is_unique)
        or (flag(params, "exclude_from_blockchain") and bool(face.get("is_from_blockchain")))
        or (flag(params, "exclude_unlimited") and is_regular and not is_limited)
        or (flag(params, "exclude_limited") and is_regular and is_limited)
        or (flag(params, "exclude_limited_upgradable") and is_regular and is_limited and can_rise)
        or (flag(params, "exclude_limited_non_upgradable") and is_regular and is_limited and not can_rise)
        or (flag(params, "exclude_saved") and bool(gift.get("is_saved")))
        or (flag(params, "exclude_unsaved") and not gift.get("is_saved"))
    )


def _worth(gift: Json) -> int:
    face = gift["gift"]
    assert isinstance(face, dict)
    return integer(face, "star_count", 1 << 30)  # unique ones come first


def owned_gifts(world: World, call: SimCall) -> object:
    """getUserGifts, getChatGifts and getBusinessAccountGifts; ids for further requests has the last alone."""
    is_account = "Business" in call.method
    if is_account:
        owner_id = account(world, call, "can_view_gifts_and_stars").id
    else:
        owner_id = known_chat(world, call.bot, call.params, "user_id" if "User" in call.method else "chat_id").id
    found = [one for one in world.gifts.get(owner_id, {}).values() if not _excluded(call.params, one)]
    found.reverse()  # newest first
    if flag(call.params, "sort_by_price"):
        found.sort(key=_worth, reverse=True)
    offset, limit = integer(call.params, "offset"), min(max(integer(call.params, "limit", PAGE_MAX), 1), PAGE_MAX)
    page = found[offset : offset + limit]
    shown = [one if is_account else {name: one[name] for name in one if name != "owned_gift_id"} for one in page]
    more: Json = {"next_offset": str(offset + limit)} if offset + limit < len(found) else {}
    return {"total_count": len(found), "gifts": shown, **more}


def _owned(world: World, call: SimCall, right: str) -> tuple[SimUser, Json | None]:
    """A gift of a business account; None for one that is made up."""
    user = account(world, call, right)
    gift = world.gifts.get(user.id, {}).get(text_of(call.params, "owned_gift_id"))
    if gift is None and not world.options.accept_any_chat:
        raise bad("STARGIFT_NOT_FOUND")
    return user, gift


def convert_gift(world: World, call: SimCall) -> object:
    user, gift = _owned(world, call, "can_convert_gifts_to_stars")
    if gift is not None:
        if gift["type"] == "unique":
            raise bad("STARGIFT_CONVERT_UNAVAILABLE")
        del world.gifts[user.id][text_of(gift, "owned_gift_id")]
        user.stars += integer(gift, "convert_star_count")
    world.note_applied(call, chat_id=user.id)
    return True


def upgrade_gift(world: World, call: SimCall) -> object:
    """A regular gift becomes one of its kind."""
    user, gift = _owned(world, call, "can_transfer_and_upgrade_gifts")
    if gift is not None:
        regular = gift["gift"]
        assert isinstance(regular, dict)
        if gift["type"] == "unique":
            raise bad("STARGIFT_ALREADY_UPGRADED")
        if not gift.get("can_be_upgraded"):
            raise bad("STARGIFT_UPGRADE_UNAVAILABLE")
        if not gift.get("prepaid_upgrade_star_count"):
            _spend(world, user, integer(regular, "upgrade_star_count"))
        sent = {} if not flag(call.params, "keep_original_details") else {"sender_user": gift["sender_user"]}
        unique = _unique(world, regular)
        owned_id = text_of(gift, "owned_gift_id")
        world.gifts[user.id][owned_id] = {
            "type": "unique", "gift": unique, "owned_gift_id": owned_id, "send_date": gift["send_date"],
            "is_saved": True, "can_be_transferred": True, "transfer_star_count": 25, **sent,
        }  # fmt: skip
        info = {"gift": unique, "origin": "upgrade", "owned_gift_id": owned_id, "transfer_star_count": 25}
        tell(world, call.bot, world.dialog(call.bot, user), {"unique_gift": info})
    world.note_applied(call, chat_id=user.id)
    return True


def _unique(world: World, regular: Json) -> Json:
    number = world.chance.randint(1, 100_000)
    looks = {"sticker": regular["sticker"], "rarity_per_mille": 15}
    colors = {"center_color": 0x36648B, "edge_color": 0x1B3A57, "symbol_color": 0x0E1E2E, "text_color": 0xB2D1EC}
    return {
        "gift_id": regular["id"], "base_name": "Courier", "name": f"Courier-{number}", "number": number,
        "model": {"name": "Plain", **looks}, "symbol": {"name": "Letter", **looks},
        "backdrop": {"name": "Steel", "colors": colors, "rarity_per_mille": 15},
    }  # fmt: skip


def transfer_gift(world: World, call: SimCall) -> object:
    user, gift = _owned(world, call, "can_transfer_and_upgrade_gifts")
    to = known_chat(world, call.bot, call.params, "new_owner_chat_id")
    if gift is not None:
        if gift["type"] != "unique":
            raise bad("STARGIFT_INVALID")
        if integer(call.params, "star_count"):
            _spend(world, user, integer(gift, "transfer_star_count"))
        owned_id = text_of(gift, "owned_gift_id")
        world.gifts.setdefault(to.id, {})[owned_id] = world.gifts[user.id].pop(owned_id)
        if to.type != "channel":
            tell(world, call.bot, to, {"unique_gift": {"gift": gift["gift"], "origin": "transfer"}})
    world.note_applied(call, chat_id=to.id)
    return True


def gift_premium(world: World, call: SimCall) -> object:
    months = integer(call.params, "month_count")
    if months not in PREMIUM or (
        integer(call.params, "star_count") != PREMIUM[months] and not world.options.accept_any_chat
    ):
        raise bad("wrong Telegram Star count specified" if months in PREMIUM else "wrong month count specified")
    said = _gift_words(world, call)
    chat = known_chat(world, call.bot, call.params, "user_id")
    if chat.user is None:
        raise bad("user not found")
    partner = {"type": "user", "transaction_type": "premium_purchase", "user": chat.user.as_json()}
    _pays(world, call.bot, PREMIUM[months], **partner, premium_subscription_duration=months)
    chat.user.is_premium = True
    world.note_applied(call, chat_id=chat.id, text=str(said.get("text", "")))
    return True


# Stars of a business account


def account_balance(world: World, call: SimCall) -> object:
    return {"amount": account(world, call, "can_view_gifts_and_stars").stars}


def transfer_stars(world: World, call: SimCall) -> object:
    user = account(world, call, "can_transfer_stars")
    stars = integer(call.params, "star_count")
    if not 1 <= stars <= 10_000:
        raise bad("STARS_AMOUNT_INVALID")
    _spend(world, user, stars)
    receive(world, call.bot, stars, type="user", transaction_type="business_account_transfer", user=user.as_json())
    world.note_applied(call, chat_id=user.id)
    return True


# Boosts


def user_boosts(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    if chat.is_private or chat.type == "group":
        raise bad("method is available only for supergroups and channels")
    if world.member(chat, call.bot).status not in {"administrator", "creator"}:
        raise bad("CHAT_ADMIN_REQUIRED")
    held = chat.boosts.get(integer(call.params, "user_id"), [])
    return {"boosts": [one for one in held if integer(one, "expiration_date") > call.now]}


BOOST_S = 30 * DAY_S


def boost(world: World, chat: SimChat, user: SimUser) -> Json:
    """Somebody with Premium boosts a chat for a month; bots that are administrators are told."""
    if chat.type not in {"supergroup", "channel"}:
        raise BadInput(code="no_boosts", detail=f"A {chat.type} chat cannot be boosted.")
    now = world.now()
    made: Json = {"boost_id": f"{world.chance.getrandbits(64):016x}", "add_date": int(now)}
    made |= {"expiration_date": int(now + BOOST_S), "source": {"source": "premium", "user": user.as_json()}}
    chat.boosts.setdefault(user.id, []).append(made)
    _tell_rulers(world, chat, "chat_boost", {"chat": chat.as_json(), "boost": made})
    return made


def unboost(world: World, chat: SimChat, user: SimUser) -> None:
    """All boosts of somebody's end."""
    for one in chat.boosts.pop(user.id, []):
        gone = {"boost_id": one["boost_id"], "remove_date": int(world.now()), "source": one["source"]}
        _tell_rulers(world, chat, "removed_chat_boost", {"chat": chat.as_json(), **gone})


def _tell_rulers(world: World, chat: SimChat, kind: str, told: Json) -> None:
    for user_id, member in list(chat.members.items()):
        if user_id in world.bots and member.may("can_manage_chat"):
            world.push(world.bots[user_id], kind, told, date=world.now())


# Stories


def _story_content(world: World, call: SimCall) -> Json:
    given = mapping(call.params, "content", what="InputStoryContent") or {}
    kind = str(given.get("type"))
    if kind not in {"photo", "video"}:
        raise bad("invalid story content type specified" if given else "story content isn't specified")
    if not text_of(given, kind).startswith("attach://"):
        raise bad(f"story {kind} must be uploaded as a file")
    stored = take(world, call, given.get(kind), None, field=kind, kind=kind, params=given)
    said = caption(world, call.params, STORY_CAPTION_MAX)
    areas = sequence(call.params, "areas", what="StoryArea") or []
    if not all(isinstance(one, dict) and "position" in one and "type" in one for one in areas):
        raise bad("can't parse StoryArea: it needs a position and a type")
    return {"type": kind, "file_id": stored.file_id, **said, **({"areas": areas} if areas else {})}


def post_story(world: World, call: SimCall) -> object:
    user = account(world, call, "can_manage_stories")
    return _post_story(world, call, user, _story_content(world, call))


def _post_story(world: World, call: SimCall, user: SimUser, content: Json) -> object:
    period_s = integer(call.params, "active_period")
    if period_s not in {hours * 3600 for hours in STORY_HOURS}:
        raise bad("STORY_PERIOD_INVALID")
    story = SimStory(id=user.last_story_id + 1, by=call.bot.id, content=content)
    story.is_protected = flag(call.params, "protect_content")
    user.last_story_id = story.id
    user.stories[story.id] = story
    if not flag(call.params, "post_to_chat_page"):
        world.schedule(call.now + period_s, lambda: _let_end(user, story))
    world.note_applied(call, chat_id=user.id, message_id=story.id, text=str(content.get("caption", "")))
    return {"chat": world.dialog(call.bot, user).as_json(), "id": story.id}


def _let_end(user: SimUser, story: SimStory) -> None:
    user.stories.pop(story.id, None)


def repost_story(world: World, call: SimCall) -> object:
    user = account(world, call, "can_manage_stories")
    author = world.users.get(integer(call.params, "from_chat_id"))
    story = author.stories.get(integer(call.params, "from_story_id")) if author is not None else None
    if story is None and not world.options.accept_any_chat:
        raise bad("STORY_ID_INVALID")
    if story is not None and story.is_protected:
        raise forbidden("CHAT_FORWARDS_RESTRICTED")
    return _post_story(world, call, user, story.content if story is not None else {})


def _own_story(world: World, call: SimCall) -> tuple[SimUser, SimStory | None]:
    user = account(world, call, "can_manage_stories")
    story = user.stories.get(integer(call.params, "story_id"))
    if (story is None and not world.options.accept_any_chat) or (story is not None and story.by != call.bot.id):
        raise bad("STORY_ID_INVALID")
    return user, story


def edit_story(world: World, call: SimCall) -> object:
    user, story = _own_story(world, call)
    content = _story_content(world, call)
    if story is not None:
        story.content = content
    number = integer(call.params, "story_id")
    world.note_applied(call, chat_id=user.id, message_id=number, text=str(content.get("caption", "")))
    return {"chat": world.dialog(call.bot, user).as_json(), "id": number}


def delete_story(world: World, call: SimCall) -> object:
    user, story = _own_story(world, call)
    if story is not None:
        del user.stories[story.id]
    world.note_applied(call, chat_id=user.id, message_id=integer(call.params, "story_id"))
    return True


# What an account says of itself


def set_name(world: World, call: SimCall) -> object:
    user = account(world, call, "can_edit_name")
    first, last = text_of(call.params, "first_name").strip(), text_of(call.params, "last_name").strip()
    if not 1 <= len(first) <= NAME_MAX or len(last) > NAME_MAX:
        raise bad("FIRSTNAME_INVALID" if not 1 <= len(first) <= NAME_MAX else "LASTNAME_INVALID")
    user.first_name, user.last_name = first, last or None
    return _changed(world, call, user)


def set_username(world: World, call: SimCall) -> object:
    user = account(world, call, "can_edit_username")
    name = text_of(call.params, "username").removeprefix("@")
    if name and (len(name) > 32 or not name.replace("_", "").isalnum() or not name.isascii()):
        raise bad("USERNAME_INVALID")
    if name and world.by_username.get(name.lower(), user) is not user:
        raise bad("USERNAME_OCCUPIED")
    world.by_username.pop((user.username or "").lower(), None)
    user.username = name or None
    if name:
        world.by_username[name.lower()] = user
    return _changed(world, call, user)


def set_bio(world: World, call: SimCall) -> object:
    user = account(world, call, "can_edit_bio")
    user.bio = text_of(call.params, "bio")
    if len(user.bio) > BIO_MAX:
        raise bad("ABOUT_TOO_LONG")
    return _changed(world, call, user)


def set_photo(world: World, call: SimCall) -> object:
    user = account(world, call, "can_edit_profile_photo")
    given = mapping(call.params, "photo", what="InputProfilePhoto") or {}
    field = "animation" if given.get("type") == "animated" else "photo"
    if not text_of(given, field).startswith("attach://"):
        raise bad("photo must be uploaded as a file")
    user.photos.insert(0, taken(world, call, field, "photo", given).sizes)
    return _changed(world, call, user)


def remove_photo(world: World, call: SimCall) -> object:
    user = account(world, call, "can_edit_profile_photo")
    del user.photos[:1]
    return _changed(world, call, user)


def set_gift_settings(world: World, call: SimCall) -> object:
    user = account(world, call, "can_change_gift_settings")
    given = mapping(call.params, "accepted_gift_types", what="AcceptedGiftTypes")
    if given is None:
        raise bad("accepted gift types must be specified")
    user.gift_types = {name: flag(given, name) for name in given}
    return _changed(world, call, user)


def _changed(world: World, call: SimCall, user: SimUser) -> bool:
    """The chats with them show it."""
    for bot in world.bots.values():
        if user.id in bot.dialogs:
            bot.dialogs[user.id].refresh()
    world.note_applied(call, chat_id=user.id)
    return True


def read_message(world: World, call: SimCall) -> object:
    account(world, call, "can_read_messages")
    chat = known_chat(world, call.bot, call.params)
    if integer(call.params, "message_id") not in chat.messages and not world.options.accept_any_chat:
        raise bad("MESSAGE_ID_INVALID")
    world.note_applied(call, chat_id=chat.id, message_id=integer(call.params, "message_id"))
    return True


def delete_messages(world: World, call: SimCall) -> object:
    """Messages of the account, whichever chats they are in; the bot's own need the lesser right."""
    ids = integers(call.params, "message_ids", what="message identifiers")
    if not ids:
        raise bad("message identifiers are not specified")
    connection_id = text_of(call.params, "business_connection_id")
    account(world, call, "can_delete_sent_messages")
    for chat in call.bot.dialogs.values():
        for message_id in ids:
            message = chat.messages.get(message_id)
            if message is None or message.get("business_connection_id") != connection_id:
                continue
            if message.get("from") is not call.bot.face:
                account(world, call, "can_delete_all_messages")
            del chat.messages[message_id]
    world.note_applied(call)
    return True


# Suggested posts: what somebody asks a channel to post, in its direct messages

PAID_AFTER_S = 86_400.0  # a post that stays so long is paid for


def _suggested(world: World, call: SimCall, right: str) -> tuple[SimChat, SimChat, Json] | None:
    """The channel's direct messages, the channel, and the post that waits there for an answer; None for a made-up one."""
    chat = known_chat(world, call.bot, call.params)
    channel = world.chats.get(chat.parent)
    if channel is None and world.options.accept_any_chat:
        world.note_applied(call, chat_id=chat.id, message_id=integer(call.params, "message_id"))
        return None
    if channel is None:
        raise bad("the chat is not a channel direct messages chat")
    if not world.may(channel, call.bot, right):
        raise bad("not enough rights to process suggested posts")
    message = chat.messages.get(integer(call.params, "message_id"))
    info = message.get("suggested_post_info") if message is not None else None
    if message is None or not isinstance(info, dict):
        raise bad("message not found" if message is None else "message isn't a suggested post")
    if info["state"] != "pending":
        raise bad("SUGGESTED_POST_ALREADY_PROCESSED")
    return chat, channel, message


def _end_suggestion(world: World, call: SimCall, chat: SimChat, message: Json, state: str, more: Json) -> object:
    """The post shows what became of it, and a service message tells it."""
    info = message["suggested_post_info"]
    assert isinstance(info, dict)
    shown = {name: held for name, held in message.items() if name != "reply_to_message"}
    message["suggested_post_info"] = {**info, "state": state if state in {"approved", "declined"} else "pending"}
    topic: Json = {name: message[name] for name in ("direct_messages_topic",) if name in message}
    tell(world, call.bot, chat, {**topic, f"suggested_post_{state}": {"suggested_post_message": shown, **more}})
    world.note_applied(call, chat_id=chat.id, message_id=integer(message, "message_id"))
    return True


def approve_post(world: World, call: SimCall) -> object:
    """It appears in the channel at its time, and a day later it is paid."""
    found = _suggested(world, call, "can_post_messages")
    if found is None:
        return True
    chat, channel, message = found
    info = message["suggested_post_info"]
    assert isinstance(info, dict)
    price = mapping(info, "price", what="SuggestedPostPrice")
    author = _author(world, message)
    stars = integer(price, "amount") if price is not None and price.get("currency") == "XTR" else 0
    if author is not None and stars > author.stars and not world.options.accept_any_chat:
        return _end_suggestion(world, call, chat, message, "approval_failed", {"price": price})
    if author is not None:
        author.stars = max(0, author.stars - stars)
    send_at = max(integer(call.params, "send_date") or integer(info, "send_date"), int(call.now))
    terms: Json = {"send_date": send_at} | ({"price": price} if price is not None else {})
    message["suggested_post_info"] = {**info, **terms}
    done = _end_suggestion(world, call, chat, message, "approved", terms)

    def publish() -> None:
        post = {**content_of(message), **({"is_paid_post": True} if price is not None else {})}
        appear(world, channel, post)
        if price is not None:
            world.schedule(world.now() + PAID_AFTER_S, reward)

    def reward() -> None:
        assert price is not None
        sum_ = {"star_amount": {"amount": stars}} if stars else {"amount": price["amount"]}
        paid = {"suggested_post_message": message, "currency": price["currency"], **sum_}
        tell(world, call.bot, chat, {"suggested_post_paid": paid})

    if send_at > call.now:
        world.schedule(send_at, publish)
    else:
        publish()
    return done


def _author(world: World, message: Json) -> SimUser | None:
    sender = message.get("from")
    return world.users.get(integer(sender, "id")) if isinstance(sender, dict) else None


def decline_post(world: World, call: SimCall) -> object:
    found = _suggested(world, call, "can_manage_direct_messages")
    if found is None:
        return True
    chat, _, message = found
    comment = text_of(call.params, "comment")
    if len(comment) > 128:
        raise bad("SUGGESTED_POST_COMMENT_TOO_LONG")
    return _end_suggestion(world, call, chat, message, "declined", {"comment": comment} if comment else {})


BUSINESS_RIGHTS = (
    "can_reply", "can_read_messages", "can_delete_sent_messages", "can_delete_all_messages", "can_edit_name", "can_edit_bio",
    "can_edit_profile_photo", "can_edit_username", "can_change_gift_settings", "can_view_gifts_and_stars",
    "can_convert_gifts_to_stars", "can_transfer_and_upgrade_gifts", "can_transfer_stars", "can_manage_stories",
)  # fmt: skip


def connect(
    world: World, bot: SimBot, user: SimUser, connection_id: str, *, is_enabled: bool, rights: dict[str, bool]
) -> Json:
    connection: Json = {
        "id": connection_id,
        "user": user.as_json(),
        "user_chat_id": user.id,
        "date": int(world.now()),
        "is_enabled": is_enabled,
        "rights": {right: rights.get(right, True) for right in BUSINESS_RIGHTS},
    }
    if is_enabled:
        bot.connections[connection_id] = connection
    else:
        bot.connections.pop(connection_id, None)
    world.push(bot, "business_connection", connection)
    return connection


# What people do with Stars, bills and lists


def pay(world: World, bot: SimBot, user: SimUser, invoiced: Json | str) -> str:
    """By the message, or by a link; the id of the query."""
    chat = world.dialog(bot, user)
    behind = bot.invoices.get(invoiced, {}) if isinstance(invoiced, str) else {}
    invoice = behind.get("invoice") if isinstance(invoiced, str) else invoiced.get("invoice")
    if not isinstance(invoice, dict):
        raise BadInput(code="no_invoice", detail="That message is no invoice, or there is no such link.")
    bill = behind.get("bill") if isinstance(invoiced, str) else chat.bills.get(integer(invoiced, "message_id"))
    assert bill is None or isinstance(bill, dict)
    bill = bill or {}
    asked: Json = {"currency": invoice["currency"], "total_amount": invoice["total_amount"]}
    asked["invoice_payload"] = text_of(bill, "payload")
    address = {**dict.fromkeys(ADDRESS, ""), "country_code": "UZ", "city": "Tashkent"}
    known: Json = {
        "name": user.first_name, "phone_number": "998900000000", "email": f"user{user.id}@example.org",
        "shipping_address": address,
    }  # fmt: skip
    needs = bill.get("needs")
    order = {name: known[name] for name in needs} if isinstance(needs, list) else {}
    if order:
        asked["order_info"] = order
    if not bill.get("is_flexible"):
        query_id = ask(world, bot, user, "pre_checkout", asked, chat_id=chat.id)
        bot.checkouts[query_id]["period_s"] = integer(behind, "period_s")
        return query_id
    shipping: Json = {"invoice_payload": asked["invoice_payload"], "shipping_address": address}
    query_id = ask(world, bot, user, "shipping", shipping, chat_id=chat.id)
    bot.checkouts[query_id] = {**asked, "user_id": user.id}
    return query_id


def renew(world: World, bot: SimBot, charge_id: str) -> None:
    """A month of a subscription is over: it is paid again, unless it was ended or there are no Stars left."""
    held = bot.subscriptions.get(charge_id)
    user = world.users.get(integer(held, "user_id")) if held is not None else None
    if held is None or user is None or held["is_canceled"]:
        bot.subscriptions.pop(charge_id, None)
        return
    before = held["payment"]
    assert isinstance(before, dict)
    stars = integer(before, "total_amount")
    if stars > user.stars and not world.options.accept_any_chat:
        del bot.subscriptions[charge_id]
        _tell_subscription(world, bot, user, held, "failed")
        return
    user.stars = max(0, user.stars - stars)
    partner = {"type": "user", "transaction_type": "invoice_payment", "user": user.as_json()}
    fresh = receive(world, bot, stars, **partner, invoice_payload=held["invoice_payload"])
    payment: Json = {name: held for name, held in before.items() if name != "is_first_recurring"}
    payment["telegram_payment_charge_id"] = fresh
    payment["subscription_expiration_date"] = int(world.now()) + integer(held, "period_s")
    told_by(world, bot, world.dialog(bot, user), {"successful_payment": payment}, user)
    world.schedule(world.now() + integer(held, "period_s"), lambda: renew(world, bot, charge_id))


def subscribe(world: World, bot: SimBot, user: SimUser, charge_id: str, *, is_on: bool) -> None:
    """A person ends a subscription with its month, or takes it up again."""
    held = bot.subscriptions.get(charge_id)
    if held is None or held["user_id"] != user.id:
        raise BadInput(code="no_subscription", detail=f"User {user.id} has no subscription {charge_id}.")
    held["is_canceled"] = not is_on
    _tell_subscription(world, bot, user, held, "active" if is_on else "canceled")


def _tell_subscription(world: World, bot: SimBot, user: SimUser, held: Json, state: str) -> None:
    told: Json = {"user": user.as_json(), "invoice_payload": held["invoice_payload"], "state": state}
    world.push(bot, "subscription", told)


def buy(world: World, bot: SimBot, user: SimUser, message: Json) -> None:
    media = message.get("paid_media")
    if not isinstance(media, dict):
        raise BadInput(code="no_paid_media", detail="That message has no paid media.")
    payload = text_of(world.dialog(bot, user).bills.get(integer(message, "message_id"), {}), "payload")
    what: Json = {"paid_media": media["paid_media"]} | ({"paid_media_payload": payload} if payload else {})
    partner = {"type": "user", "transaction_type": "paid_media_payment", "user": user.as_json()}
    receive(world, bot, integer(media, "star_count"), **partner, **what)
    if payload:
        world.push(bot, "purchased_paid_media", {"from": user.as_json(), "paid_media_payload": payload})


def _checklist(
    world: World, chat: SimChat, message_id: int, user: SimUser, right: str
) -> tuple[Json, list[Json], Json]:
    """The message with a checklist, its tasks, and what surrounds whatever is told of it."""
    message = chat.messages.get(message_id)
    checklist = message.get("checklist") if message is not None else None
    if message is None or not isinstance(checklist, dict):
        raise BadInput(code="no_checklist", detail=f"Message {message_id} in chat {chat.id} is no checklist.")
    if not checklist.get(right):
        raise BadInput(code="not_allowed", detail=f"The checklist {message_id} does not let others do that.")
    around: Json = {name: message[name] for name in ("business_connection_id",) if name in message}
    tasks = checklist["tasks"]
    assert isinstance(tasks, list)
    return message, tasks, around


def tick(
    world: World, bot: SimBot, user: SimUser, chat: SimChat, message_id: int, numbers: tuple[int, ...], *, undo: bool
) -> Json:
    message, tasks, around = _checklist(world, chat, message_id, user, "others_can_mark_tasks_as_done")
    for task in tasks:
        if task["id"] in numbers:
            task.pop("completed_by_user", None)
            task.pop("completion_date", None)
            if not undo:
                task |= {"completed_by_user": user.as_json(), "completion_date": int(world.now())}
    ids = {"marked_as_not_done_task_ids" if undo else "marked_as_done_task_ids": list(numbers)}
    told = {"checklist_tasks_done": {"checklist_message": visible(message), **ids}}
    return told_by(world, bot, chat, {**around, **told}, user)


def add_tasks(world: World, bot: SimBot, user: SimUser, chat: SimChat, message_id: int, texts: tuple[str, ...]) -> Json:
    message, tasks, around = _checklist(world, chat, message_id, user, "others_can_add_tasks")
    first = max(integer(task, "id") for task in tasks) + 1
    fresh: list[Json] = [{"id": number, "text": text} for number, text in enumerate(texts, first)]
    tasks.extend(fresh)
    told = {"checklist_tasks_added": {"checklist_message": visible(message), "tasks": fresh}}
    return told_by(world, bot, chat, {**around, **told}, user)


BUSINESS: dict[str, Handler] = {
    "getUserChatBoosts": user_boosts,
    "approveSuggestedPost": approve_post,
    "declineSuggestedPost": decline_post,
    "getAvailableGifts": available_gifts,
    "sendGift": send_gift,
    "getUserGifts": owned_gifts,
    "getChatGifts": owned_gifts,
    "getBusinessAccountGifts": owned_gifts,
    "convertGiftToStars": convert_gift,
    "upgradeGift": upgrade_gift,
    "transferGift": transfer_gift,
    "giftPremiumSubscription": gift_premium,
    "getBusinessAccountStarBalance": account_balance,
    "transferBusinessAccountStars": transfer_stars,
    "postStory": post_story,
    "repostStory": repost_story,
    "editStory": edit_story,
    "deleteStory": delete_story,
    "setBusinessAccountName": set_name,
    "setBusinessAccountUsername": set_username,
    "setBusinessAccountBio": set_bio,
    "setBusinessAccountProfilePhoto": set_photo,
    "removeBusinessAccountProfilePhoto": remove_photo,
    "setBusinessAccountGiftSettings": set_gift_settings,
    "readBusinessMessage": read_message,
    "deleteBusinessMessages": delete_messages,
}
