"""Chats and who is in them: members, rights, bans, invite links, join requests, titles and photos, pins, forum topics.

Rights are enforced: what a bot may not do is refused in Telegram's words. What others see changed is told in a service message.
"""

from peik.errors import BadInput
from peik.testing.answer import Json, Params, bad, flag, forbidden, integer, mapping, text_of
from peik.testing.media import squares, taken
from peik.testing.posting import check_connection, known_chat, tell, thread, writable_chat
from peik.testing.sends import Handler
from peik.testing.updates import DAY_S
from peik.testing.world import (
    PERMISSIONS,
    RIGHTS,
    SimBot,
    SimCall,
    SimChat,
    SimMember,
    SimQuery,
    SimUser,
    Status,
    Topic,
    World,
)

TITLE_MAX = 128
DESCRIPTION_MAX = 255
CUSTOM_TITLE_MAX = 16
TOPIC_NAME_MAX = 128
SUBSCRIPTION_S = 2_592_000  # a month: no other period is sold
TOPIC_COLORS = (0x6FB9F0, 0xFFD67E, 0xCB86DB, 0x8EEE98, 0xFF93B2, 0xFB6F5F)

# What is told of a chat


def get_chat(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels")
    face = chat.as_json() | {"accent_color_id": 0, "max_reaction_count": 11}
    face["accepted_gift_types"] = dict.fromkeys(gifts, True)
    if chat.user is not None:
        face |= _profile(world, chat.user, gifts)
    if chat.type in {"group", "supergroup"}:
        face["permissions"] = dict.fromkeys(PERMISSIONS, True)
    if chat.guard in world.bots:
        face["guard_bot"] = world.bots[chat.guard].user.as_json()
    if chat.parent in world.chats:
        face["parent_chat"] = world.chats[chat.parent].as_json()
    face |= chat.more
    primary = [link["invite_link"] for link in chat.links.values() if link["is_primary"] and not link["is_revoked"]]
    if primary:
        face["invite_link"] = primary[-1]
    pinned = [message_id for message_id in chat.pinned if message_id in chat.messages]
    if pinned:
        face["pinned_message"] = chat.messages[pinned[-1]]
    return face


def _profile(world: World, user: SimUser, gifts: tuple[str, ...]) -> Json:
    """What a person's page tells."""
    found: Json = {"accepted_gift_types": {name: user.gift_types.get(name, True) for name in gifts}}
    if user.personal_chat in world.chats:
        found["personal_chat"] = world.chats[user.personal_chat].as_json()
    if user.bio:
        found["bio"] = user.bio
    if user.emoji_status:
        found["emoji_status_custom_emoji_id"] = user.emoji_status
    if user.emoji_status_until:
        found["emoji_status_expiration_date"] = user.emoji_status_until
    return found


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
    if not flag(call.params, "return_bots"):  # other bots are left out unless they are asked for
        high = {user_id: one for user_id, one in high.items() if user_id == call.bot.id or user_id not in world.bots}
    return [one.as_json(world.users[user_id]) for user_id, one in high.items()]


# Rights


def ruled_chat(world: World, call: SimCall, right: str, said: str) -> SimChat:
    """The group or channel, if this bot has the right there."""
    chat = known_chat(world, call.bot, call.params)
    if chat.is_private:
        raise bad("method is available only for groups, supergroups and channels" if right else "chat not found")
    member = world.member(chat, call.bot)
    if member.status in {"left", "kicked"}:
        raise forbidden(f"bot is not a member of the {chat.type} chat")
    if not world.may(chat, call.bot, right):
        raise bad(said)
    return chat


def _person(world: World, call: SimCall, chat: SimChat) -> tuple[SimUser, SimMember]:
    """Whom a request is about, and that person's standing in the chat."""
    user_id = integer(call.params, "user_id")
    if user_id <= 0:
        raise bad("invalid user_id specified")
    user = world.users.get(user_id)
    if user is None:
        if not world.options.accept_any_chat:
            raise bad("PARTICIPANT_ID_INVALID")
        user = world.users[user_id] = SimUser(id=user_id, first_name=f"User {user_id}")
    return user, chat.members.get(user_id) or SimMember(status="member" if chat.is_lenient else "left")


def change_member(
    world: World, chat: SimChat, user: SimUser, after: SimMember, *, by: SimUser, link: Json | None = None
) -> None:
    """Somebody's standing becomes another, and the bots that are told of it are told."""
    before = chat.members.get(user.id) or SimMember(status="left")
    chat.members[user.id] = after
    if before == after:
        return
    change: Json = {
        "chat": chat.as_json(),
        "from": by.as_json(),
        "date": int(world.now()),
        "old_chat_member": before.as_json(user),
        "new_chat_member": after.as_json(user),
    }
    if link is not None:
        change["invite_link"] = link
    for user_id, member in list(chat.members.items()):
        bot = world.bots.get(user_id)
        if bot is None:
            continue
        if user_id == user.id:
            world.push(bot, "my_chat_member", change, date=world.now())
        elif member.may("can_manage_chat"):
            world.push(bot, "chat_member", change, date=world.now())


def _set_member(status: Status, right: str, said: str) -> Handler:
    """banChatMember and its kin."""

    def change(world: World, call: SimCall) -> object:
        chat = ruled_chat(world, call, right, said)
        user, member = _person(world, call, chat)
        if user.id == call.bot.id:
            raise bad("can't restrict self")
        if status == "left" and flag(call.params, "only_if_banned") and member.status != "kicked":
            return _applied(world, call, chat, user)
        if member.status == "creator":
            raise bad("can't remove chat owner")
        if member.status == "administrator" and not member.can_be_edited:
            raise bad("user is an administrator of the chat")
        until = integer(call.params, "until_date")
        if not call.now + 30 <= until <= call.now + 366 * DAY_S:
            until = 0  # for ever
        permissions = _permissions(call) if status == "restricted" else {}
        after = SimMember(status=status, until=until, permissions=permissions)
        if status == "restricted" and permissions and all(permissions.get(name) for name in PERMISSIONS[:10]):
            after = SimMember()
        was_inside = member.is_inside
        change_member(world, chat, user, after, by=call.bot.user)
        if after.until:
            world.schedule(after.until, lambda: _let_lapse(chat, user, after))
        if was_inside and not after.is_inside and chat.type != "channel":
            tell(world, call.bot, chat, {"left_chat_member": user.as_json()})
        return _applied(world, call, chat, user)

    return change


def _let_lapse(chat: SimChat, user: SimUser, was: SimMember) -> None:
    """A ban or restriction is over; nobody is told of that."""
    if chat.members.get(user.id) is was:
        chat.members[user.id] = SimMember(status="left" if was.status == "kicked" else "member")


def _permissions(call: SimCall) -> dict[str, bool]:
    given = mapping(call.params, "permissions", what="ChatPermissions")
    if given is None:
        given = {name: call.params[name] for name in PERMISSIONS if name in call.params}
    found = {name: flag(given, name) for name in PERMISSIONS}
    if not flag(call.params, "use_independent_chat_permissions"):
        media = PERMISSIONS[1:7]
        if (
            flag(given, "can_send_media_messages")
            or found["can_send_other_messages"]
            or found["can_add_web_page_previews"]
        ):
            found |= dict.fromkeys(media, True) | {"can_send_messages": True}
        if any(found[name] for name in media) or found["can_send_polls"]:
            found["can_send_messages"] = True
    return found


def promote(world: World, call: SimCall) -> object:
    chat = ruled_chat(world, call, "can_promote_members", "not enough rights")
    user, member = _person(world, call, chat)
    if member.status == "creator":
        raise bad("can't remove chat owner")
    names = (*RIGHTS, "can_post_messages", "can_edit_messages", "can_pin_messages", "can_manage_topics", "can_manage_tags",
             "can_manage_direct_messages")  # fmt: skip
    rights = {name: flag(call.params, name) for name in names}
    own = world.member(chat, call.bot)
    if any(given and not own.may(name) for name, given in rights.items()):
        raise bad("RIGHT_FORBIDDEN")
    is_high = any(rights.values())
    after = SimMember(
        status="administrator" if is_high else "member", rights=rights, can_be_edited=True, title=member.title
    )
    change_member(world, chat, user, after if is_high else SimMember(), by=call.bot.user)
    return _applied(world, call, chat, user)


def set_custom_title(world: World, call: SimCall) -> object:
    chat = ruled_chat(world, call, "can_promote_members", "not enough rights")
    user, member = _person(world, call, chat)
    title = text_of(call.params, "custom_title")
    if member.status == "creator":
        raise bad("only creator can edit their custom title")
    if member.status != "administrator" and not chat.is_lenient:
        raise bad("user is not an administrator")
    if len(title) > CUSTOM_TITLE_MAX:
        raise bad("ADMIN_RANK_INVALID")
    member.title = title
    chat.members[user.id] = member
    return _applied(world, call, chat, user)


TAG_MAX = 16


def set_tag(world: World, call: SimCall) -> object:
    """A word that stands beside a member's messages."""
    chat = ruled_chat(world, call, "can_manage_tags", "not enough rights to change member tags")
    user, member = _person(world, call, chat)
    tag = text_of(call.params, "tag")
    if len(tag) > TAG_MAX:
        raise bad("TAG_INVALID")
    if member.status not in {"member", "restricted"}:
        if not tag or (
            not member.is_inside and world.options.accept_any_chat
        ):  # none to take away, or a made-up member
            return _applied(world, call, chat, user, tag)
        raise bad("user is an administrator of the chat" if member.is_inside else "USER_NOT_PARTICIPANT")
    member.tag = tag
    chat.members[user.id] = member
    return _applied(world, call, chat, user)


def ban_sender(world: World, call: SimCall) -> object:
    """banChatSenderChat and its opposite: whether people may write in the name of that channel. A person is taken as one."""
    is_ban = call.method.startswith("ban")
    if integer(call.params, "sender_chat_id") > 0:
        call.params = {**call.params, "user_id": call.params["sender_chat_id"]}
        return _set_member("kicked" if is_ban else "left", "can_restrict_members", _RESTRICT)(world, call)
    chat = ruled_chat(world, call, "can_restrict_members", _RESTRICT)
    if chat.type == "group":
        raise bad("can't ban chats in basic groups")
    sender = world.find_chat(call.bot, call.params.get("sender_chat_id") or 0)
    if sender is None or sender is chat:
        raise bad("PARTICIPANT_ID_INVALID")
    if is_ban:
        chat.banned.add(sender.id)
    else:
        chat.banned.discard(sender.id)
    return _applied(world, call, chat, text=str(sender.id))


def set_permissions(world: World, call: SimCall) -> object:
    chat = ruled_chat(world, call, "can_restrict_members", "not enough rights to change chat permissions")
    if chat.type == "channel":
        raise bad("method is available only for groups and supergroups")
    chat.more["permissions"] = _permissions(call)
    return _applied(world, call, chat)


def leave(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    if chat.is_private:
        raise bad("can't leave private chats")
    world.member(chat, call.bot)
    if chat.type != "channel":
        tell(world, call.bot, chat, {"left_chat_member": call.bot.user.as_json()})
    chat.members[call.bot.id] = SimMember(status="left")
    return _applied(world, call, chat)


def _applied(world: World, call: SimCall, chat: SimChat, user: SimUser | None = None, text: str = "") -> bool:
    world.note_applied(call, chat_id=chat.id, text=text or (str(user.id) if user is not None else ""))
    return True


# Title, description, photo


def set_title(world: World, call: SimCall) -> object:
    chat = ruled_chat(world, call, "can_change_info", "not enough rights to change chat title")
    title = text_of(call.params, "title").strip()
    if not title:
        raise bad("title must be non-empty")
    if title[:TITLE_MAX] == chat.title:
        raise bad("chat title is not modified")
    chat.title = title[:TITLE_MAX]
    chat.refresh()
    tell(world, call.bot, chat, {"new_chat_title": chat.title})
    return _applied(world, call, chat, text=chat.title)


def set_description(world: World, call: SimCall) -> object:
    chat = ruled_chat(world, call, "can_change_info", "not enough rights to set chat description")
    text = text_of(call.params, "description")[:DESCRIPTION_MAX]
    if text == chat.more.get("description", ""):
        raise bad("chat description is not modified")
    chat.more["description"] = text
    if not text:
        del chat.more["description"]
    return _applied(world, call, chat, text=text)


def set_photo(world: World, call: SimCall) -> object:
    chat = ruled_chat(world, call, "can_change_info", "not enough rights to change chat photo")
    if "photo" not in call.files and not text_of(call.params, "photo").startswith("attach://"):
        raise bad(
            "photo must be uploaded as an InputFile" if call.params.get("photo") else "there is no photo in the request"
        )
    sizes = squares(call.bot, taken(world, call, "photo", "photo"))
    small, big = sizes[0], sizes[-1]
    chat.more["photo"] = {f"{name}_{field}": size[field] for name, size in (("small", small), ("big", big))
                          for field in ("file_id", "file_unique_id")}  # fmt: skip
    tell(world, call.bot, chat, {"new_chat_photo": sizes})
    return _applied(world, call, chat)


def delete_photo(world: World, call: SimCall) -> object:
    chat = ruled_chat(world, call, "can_change_info", "not enough rights to delete chat photo")
    chat.more.pop("photo", None)
    tell(world, call.bot, chat, {"delete_chat_photo": True})
    return _applied(world, call, chat)


def set_sticker_set(world: World, call: SimCall) -> object:
    chat = ruled_chat(world, call, "can_change_info", "can't set chat sticker set")
    chat.more["sticker_set_name"] = text_of(call.params, "sticker_set_name")
    return _applied(world, call, chat)


def delete_sticker_set(world: World, call: SimCall) -> object:
    chat = ruled_chat(world, call, "can_change_info", "can't set chat sticker set")
    chat.more.pop("sticker_set_name", None)
    return _applied(world, call, chat)


# Pins


def pin(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    message_id = integer(call.params, "message_id")
    if message_id not in chat.messages:
        raise bad("message to pin not found")
    _may_pin(world, call, chat)
    if message_id in chat.pinned:
        chat.pinned.remove(message_id)
    chat.pinned.append(message_id)
    world.note_applied(call, chat_id=chat.id, message_id=message_id)
    message = chat.messages[message_id]
    shown = {key: held for key, held in message.items() if key not in {"reply_to_message", "pinned_message"}}
    thread: Json = {str(key): message[key] for key in ("message_thread_id", "is_topic_message") if key in message}
    tell(world, call.bot, chat, {**thread, "pinned_message": shown})
    return True


def unpin(world: World, call: SimCall) -> object:
    chat = known_chat(world, call.bot, call.params)
    _may_pin(world, call, chat)
    message_id = integer(call.params, "message_id") or (chat.pinned[-1] if chat.pinned else 0)
    if message_id not in chat.pinned:
        raise bad("message to unpin not found")
    chat.pinned.remove(message_id)
    world.note_applied(call, chat_id=chat.id, message_id=message_id)
    return True


def unpin_all(world: World, call: SimCall) -> object:
    """All pins of a chat, or of one topic of it."""
    chat = known_chat(world, call.bot, call.params)
    _may_pin(world, call, chat)
    if call.method == "unpinAllForumTopicMessages":
        thread_id = _topic(world, call)[1].id
        chat.pinned = [one for one in chat.pinned if chat.messages.get(one, {}).get("message_thread_id") != thread_id]
    elif call.method == "unpinAllGeneralForumTopicMessages":
        chat.pinned = [one for one in chat.pinned if "message_thread_id" in chat.messages.get(one, {})]
    else:
        chat.pinned.clear()
    world.note_applied(call, chat_id=chat.id)
    return True


def _may_pin(world: World, call: SimCall, chat: SimChat) -> None:
    if "business_connection_id" in call.params:
        check_connection(world, call.bot, text_of(call.params, "business_connection_id"))
    right = "can_edit_messages" if chat.type == "channel" else "can_pin_messages"
    if not chat.is_private and not world.may(chat, call.bot, right):
        raise bad("not enough rights to manage pinned messages in the chat")


# Invite links and join requests


def _link(world: World, call: SimCall, chat: SimChat, *, is_primary: bool = False) -> Json:
    link = f"https://t.me/+{world.chance.getrandbits(64):016x}"
    face: Json = {"invite_link": link, "creator": call.bot.user.as_json(), "creates_join_request": False}
    chat.links[link] = face | {"is_primary": is_primary, "is_revoked": False}
    return chat.links[link]


def _linked_chat(world: World, call: SimCall) -> SimChat:
    return ruled_chat(world, call, "can_invite_users", "not enough rights to manage chat invite link")


def export_link(world: World, call: SimCall) -> object:
    """A new primary link; the old one is revoked by it."""
    chat = _linked_chat(world, call)
    for link in chat.links.values():
        if link["is_primary"]:
            link["is_revoked"] = True
    fresh = _link(world, call, chat, is_primary=True)["invite_link"]
    world.note_applied(call, chat_id=chat.id, text=str(fresh))
    return fresh


def create_link(world: World, call: SimCall) -> object:
    chat = _linked_chat(world, call)
    terms = _terms(call)
    face = _link(world, call, chat)
    face.update(terms)
    world.note_applied(call, chat_id=chat.id, text=str(face["invite_link"]))
    return face


def _terms(call: SimCall) -> Json:
    params = call.params
    found: Json = {}
    if params.get("name"):
        if len(text_of(params, "name")) > 32:
            raise bad("invite link name is too long")
        found["name"] = text_of(params, "name")
    if "Subscription" in call.method:
        return found | (_subscription(params) if call.method.startswith("create") else {})
    limit = integer(params, "member_limit")
    if not 0 <= limit <= 99_999:
        raise bad("USAGE_LIMIT_INVALID")
    if limit and flag(params, "creates_join_request"):
        raise bad("member limit can't be specified for links requiring administrator approval")
    expires = integer(params, "expire_date")
    if expires and expires < call.now:
        raise bad("EXPIRE_DATE_INVALID")
    if expires:
        found["expire_date"] = expires
    if limit:
        found["member_limit"] = limit
    if flag(params, "creates_join_request"):
        found["creates_join_request"] = True
    return found


def _subscription(params: Params) -> Json:
    period, price = integer(params, "subscription_period"), integer(params, "subscription_price")
    if period != SUBSCRIPTION_S:
        raise bad("SUBSCRIPTION_PERIOD_INVALID")
    if not 1 <= price <= 10_000:
        raise bad("STARS_AMOUNT_INVALID")
    return {"subscription_period": period, "subscription_price": price}


def edit_link(world: World, call: SimCall) -> object:
    chat, face = _named_link(world, call)
    if face["is_primary"] or face["is_revoked"]:
        raise bad("INVITE_HASH_EXPIRED")
    kept = ("subscription_period", "subscription_price") if "Subscription" in call.method else ()
    terms = {name: face[name] for name in kept if name in face} | _terms(call)
    for name in ("name", "expire_date", "member_limit", "subscription_period", "subscription_price"):
        face.pop(name, None)
    face.update({"creates_join_request": False, **terms})
    world.note_applied(call, chat_id=chat.id, text=str(face["invite_link"]))
    return face


def revoke_link(world: World, call: SimCall) -> object:
    chat, face = _named_link(world, call)
    face["is_revoked"] = True
    world.note_applied(call, chat_id=chat.id, text=str(face["invite_link"]))
    return face


def _named_link(world: World, call: SimCall) -> tuple[SimChat, Json]:
    chat = _linked_chat(world, call)
    given = call.params.get("invite_link")
    # Some libraries send the whole object.
    link = str(given.get("invite_link", "")) if isinstance(given, dict) else text_of(call.params, "invite_link")
    face = chat.links.get(link)
    if face is None:
        if not chat.is_lenient or not link:
            raise bad("INVITE_HASH_EXPIRED")
        face = _link(world, call, chat)
        chat.links.pop(str(face["invite_link"]))
        face["invite_link"] = link
        chat.links[link] = face
    return chat, face


def join(world: World, bot: SimBot, chat: SimChat, user: SimUser, *, link: Json | None, asks: bool) -> None:
    """A person comes in, or asks to be let in. Raises BadInput if the link, or a ban, does not let them."""
    now_s = world.now()
    if chat.members.get(user.id, SimMember()).status == "kicked":
        raise BadInput(code="banned", detail=f"User {user.id} is banned in chat {chat.id}.")
    if link is not None:
        comers = chat.comers.setdefault(str(link["invite_link"]), set())
        if link["is_revoked"] or now_s > integer(link, "expire_date", 1 << 40):
            raise BadInput(code="link_over", detail=f"The link {link['invite_link']} was revoked or has expired.")
        if not link["creates_join_request"]:
            if len(comers) >= integer(link, "member_limit", 1 << 40):
                raise BadInput(code="link_used_up", detail=f"The link {link['invite_link']} has let in all it may.")
            comers.add(user.id)
    if asks or (link is not None and link["creates_join_request"]):
        now = int(now_s)
        request: Json = {"chat": chat.as_json(), "from": user.as_json(), "user_chat_id": user.id, "date": now}
        chat.requests[user.id] = request | ({"invite_link": link} if link is not None else {})
        _count_requests(chat, link)
        for user_id, member in chat.members.items():
            if user_id in world.bots and member.may("can_invite_users"):
                more = _guarded(world, chat, user, user_id)
                world.push(world.bots[user_id], "chat_join_request", chat.requests[user.id] | more, date=now)
        return
    change_member(world, chat, user, SimMember(), by=user, link=link)
    if chat.type != "channel":
        tell(world, bot, chat, {"new_chat_members": [user.as_json()]}, sender=user)


def _guarded(world: World, chat: SimChat, user: SimUser, bot_id: int) -> Json:
    """The bot that guards a chat is asked about each who wants to come in: by a query, which it answers once."""
    if chat.guard != bot_id:
        return {}
    query_id = str(world.chance.getrandbits(62))
    query = SimQuery(kind="join", asked_at=world.now(), chat_id=chat.id, user_id=user.id)
    world.bots[bot_id].queries["join", query_id] = query
    return {"query_id": query_id}


def answer_join(world: World, call: SimCall) -> object:
    """What the guard says of a join request; "queue" leaves it to the other administrators."""
    result = text_of(call.params, "result")
    if result not in {"approve", "decline", "queue"}:
        raise bad("wrong result specified")
    query, chat = _join_query(world, call)
    if query is not None and chat is not None:
        del call.bot.queries["join", text_of(call.params, "chat_join_request_query_id")]
        user = world.users[query.user_id]
        if result != "queue" and user.id in chat.requests:
            _settle_request(world, call, chat, user, is_let_in=result == "approve")
    world.note_applied(call, chat_id=chat.id if chat is not None else 0, text=result)
    return True


def show_join_app(world: World, call: SimCall) -> object:
    """A Mini App for whoever asks to be let in; the query stays open."""
    url = text_of(call.params, "web_app_url")
    if not url.lower().startswith("https://"):
        raise bad(f"Web App URL '{url}' is invalid: only HTTPS links are allowed")
    _, chat = _join_query(world, call)
    world.note_applied(call, chat_id=chat.id if chat is not None else 0, text=url)
    return True


def _join_query(world: World, call: SimCall) -> tuple[SimQuery | None, SimChat | None]:
    query = call.bot.queries.get(("join", text_of(call.params, "chat_join_request_query_id")))
    if query is None:
        if not world.options.accept_any_chat:
            raise bad("query is too old and response timeout expired or query ID is invalid")
        return None, None
    return query, world.chats.get(query.chat_id or 0)


def _count_requests(chat: SimChat, link: object) -> None:
    if isinstance(link, dict):
        count = sum(request.get("invite_link") is link for request in chat.requests.values())
        link.pop("pending_join_request_count", None)
        if count:
            link["pending_join_request_count"] = count


def decide_request(world: World, call: SimCall) -> object:
    """approveChatJoinRequest and declineChatJoinRequest."""
    chat = _linked_chat(world, call)
    user, member = _person(world, call, chat)
    if user.id not in chat.requests:
        if chat.is_lenient and user.id not in chat.members:
            return _applied(world, call, chat, user)
        raise bad("USER_ALREADY_PARTICIPANT" if member.is_inside else "HIDE_REQUESTER_MISSING")
    _settle_request(world, call, chat, user, is_let_in=call.method == "approveChatJoinRequest")
    return _applied(world, call, chat, user)


def _settle_request(world: World, call: SimCall, chat: SimChat, user: SimUser, *, is_let_in: bool) -> None:
    link = chat.requests.pop(user.id).get("invite_link")
    _count_requests(chat, link)
    if not is_let_in:
        return
    change_member(world, chat, user, SimMember(), by=call.bot.user, link=link if isinstance(link, dict) else None)
    if chat.type != "channel":
        tell(world, call.bot, chat, {"new_chat_members": [user.as_json()]}, sender=user)


# Forum topics


def create_topic(world: World, call: SimCall) -> object:
    chat = writable_chat(world, call.bot, call.params)
    name = text_of(call.params, "name")
    if not name:
        raise bad("topic name must be non-empty")
    if not (chat.is_forum or chat.is_lenient or chat.is_private):
        raise bad("the chat is not a forum")
    _may_rule_topics(world, call, chat)
    color = integer(call.params, "icon_color", TOPIC_COLORS[0])
    if color not in TOPIC_COLORS:
        raise bad("TOPIC_ICON_COLOR_INVALID" if color else "wrong icon color specified")
    topic = add_topic(world, chat, name[:TOPIC_NAME_MAX], bot=call.bot, color=color)
    topic.icon_custom_emoji_id = text_of(call.params, "icon_custom_emoji_id")
    world.note_applied(call, chat_id=chat.id, message_id=topic.id, text=name)
    return {"message_thread_id": topic.id, **topic.as_json()}


def add_topic(
    world: World, chat: SimChat, name: str, *, bot: SimBot | None = None, color: int = TOPIC_COLORS[0]
) -> Topic:
    """A new topic; its id is that of the service message that opens it."""
    topic = Topic(id=chat.last_message_id + 1, name=name, icon_color=color)
    if bot is None:
        chat.next_message_id()
    else:
        around = {"message_thread_id": topic.id, "is_topic_message": True}
        tell(world, bot, chat, {**around, "forum_topic_created": topic.as_json()})
    chat.topics[topic.id] = topic
    return topic


def edit_topic(world: World, call: SimCall) -> object:
    chat, topic = _topic(world, call)
    name = text_of(call.params, "name") or topic.name
    emoji_id = text_of(call.params, "icon_custom_emoji_id") if "icon_custom_emoji_id" in call.params else None
    if name == topic.name and (emoji_id is None or emoji_id == topic.icon_custom_emoji_id):
        raise bad("TOPIC_NOT_MODIFIED")
    topic.name = name[:TOPIC_NAME_MAX]
    changes: Json = {"name": topic.name}
    if emoji_id is not None:
        topic.icon_custom_emoji_id = changes["icon_custom_emoji_id"] = emoji_id
    return _told(world, call, chat, topic, {"forum_topic_edited": changes})


def close_topic(world: World, call: SimCall) -> object:
    return _set_closed(world, call, is_closed=True)


def reopen_topic(world: World, call: SimCall) -> object:
    return _set_closed(world, call, is_closed=False)


def _set_closed(world: World, call: SimCall, *, is_closed: bool) -> object:
    chat, topic = _topic(world, call)
    if topic.is_closed == is_closed:
        raise bad("TOPIC_NOT_MODIFIED")
    topic.is_closed = is_closed
    topic.is_hidden = topic.is_hidden and is_closed
    return _told(world, call, chat, topic, {"forum_topic_closed" if is_closed else "forum_topic_reopened": {}})


def hide_topic(world: World, call: SimCall) -> object:
    return _set_hidden(world, call, is_hidden=True)


def unhide_topic(world: World, call: SimCall) -> object:
    return _set_hidden(world, call, is_hidden=False)


def _set_hidden(world: World, call: SimCall, *, is_hidden: bool) -> object:
    chat, topic = _topic(world, call)
    if topic.is_hidden == is_hidden:
        raise bad("TOPIC_NOT_MODIFIED")
    topic.is_hidden = is_hidden
    topic.is_closed = topic.is_closed or is_hidden
    field = "general_forum_topic_hidden" if is_hidden else "general_forum_topic_unhidden"
    return _told(world, call, chat, topic, {field: {}})


def delete_topic(world: World, call: SimCall) -> object:
    chat, topic = _topic(world, call)
    del chat.topics[topic.id]
    gone = [key for key, message in chat.messages.items() if message.get("message_thread_id") == topic.id]
    for message_id in gone:
        del chat.messages[message_id]
    world.note_applied(call, chat_id=chat.id, message_id=topic.id, text=topic.name)
    return True


GENERAL = 1  # the topic that every forum has


def _topic(world: World, call: SimCall) -> tuple[SimChat, Topic]:
    chat = writable_chat(world, call.bot, call.params)
    _may_rule_topics(world, call, chat)
    is_general = "General" in call.method
    if is_general and not (chat.is_forum or chat.is_lenient):
        raise bad("the chat is not a forum")
    thread_id = GENERAL if is_general else integer(call.params, "message_thread_id")
    topic = chat.topics.get(thread_id)
    if topic is None and (is_general or (chat.is_forum and thread_id == GENERAL)):
        topic = chat.topics[GENERAL] = Topic(id=GENERAL, name="General")
    if topic is None:
        raise bad("message thread not found")
    return chat, topic


def _may_rule_topics(world: World, call: SimCall, chat: SimChat) -> None:
    if not chat.is_private and not world.may(chat, call.bot, "can_manage_topics"):
        raise bad("not enough rights to manage topics")


def _told(world: World, call: SimCall, chat: SimChat, topic: Topic, content: Json) -> object:
    around = {"message_thread_id": topic.id, "is_topic_message": True} if topic.id != GENERAL else {}
    tell(world, call.bot, chat, {**around, **content})
    world.note_applied(call, chat_id=chat.id, message_id=topic.id, text=topic.name)
    return True


# Small signals


_ACTIONS = frozenset({
    "cancel", "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "record_audio",
    "upload_audio", "upload_document", "choose_sticker", "pick_up_location", "find_location", "record_video_note",
    "upload_video_note", "choose_contact",
})  # fmt: skip


def chat_action(world: World, call: SimCall) -> object:
    if text_of(call.params, "action").lower() not in _ACTIONS:
        raise bad("wrong parameter action in request")
    chat = writable_chat(world, call.bot, call.params)
    thread(call.params, chat)
    if "business_connection_id" in call.params:
        check_connection(world, call.bot, text_of(call.params, "business_connection_id"))
    return True


_RESTRICT = "not enough rights to restrict/unrestrict chat member"

CHATS: dict[str, Handler] = {
    "getChat": get_chat,
    "getChatMember": get_member,
    "getChatMemberCount": get_member_count,
    "getChatAdministrators": get_administrators,
    "banChatMember": _set_member("kicked", "can_restrict_members", _RESTRICT),
    "unbanChatMember": _set_member("left", "can_restrict_members", _RESTRICT),
    "restrictChatMember": _set_member("restricted", "can_restrict_members", _RESTRICT),
    "banChatSenderChat": ban_sender,
    "unbanChatSenderChat": ban_sender,
    "promoteChatMember": promote,
    "setChatAdministratorCustomTitle": set_custom_title,
    "setChatMemberTag": set_tag,
    "setChatPermissions": set_permissions,
    "leaveChat": leave,
    "setChatTitle": set_title,
    "setChatDescription": set_description,
    "setChatPhoto": set_photo,
    "deleteChatPhoto": delete_photo,
    "setChatStickerSet": set_sticker_set,
    "deleteChatStickerSet": delete_sticker_set,
    "pinChatMessage": pin,
    "unpinChatMessage": unpin,
    "unpinAllChatMessages": unpin_all,
    "unpinAllForumTopicMessages": unpin_all,
    "unpinAllGeneralForumTopicMessages": unpin_all,
    "exportChatInviteLink": export_link,
    "createChatInviteLink": create_link,
    "createChatSubscriptionInviteLink": create_link,
    "editChatInviteLink": edit_link,
    "editChatSubscriptionInviteLink": edit_link,
    "revokeChatInviteLink": revoke_link,
    "approveChatJoinRequest": decide_request,
    "declineChatJoinRequest": decide_request,
    "answerChatJoinRequestQuery": answer_join,
    "sendChatJoinRequestWebApp": show_join_app,
    "createForumTopic": create_topic,
    "editForumTopic": edit_topic,
    "closeForumTopic": close_topic,
    "reopenForumTopic": reopen_topic,
    "deleteForumTopic": delete_topic,
    "editGeneralForumTopic": edit_topic,
    "closeGeneralForumTopic": close_topic,
    "reopenGeneralForumTopic": reopen_topic,
    "hideGeneralForumTopic": hide_topic,
    "unhideGeneralForumTopic": unhide_topic,
    "sendChatAction": chat_action,
}
