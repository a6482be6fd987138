"""What people do in the simulated Telegram: write, press, block, leave. Each deed becomes the update that Telegram would send."""

from peik.errors import BadInput
from peik.testing.answer import Json, UploadedFile, integer
from peik.testing.posting import visible
from peik.testing.sends import described
from peik.testing.updates import UpdateEvent
from peik.testing.world import SUPERGROUP_BASE, ChatType, SimBot, SimChat, SimMember, SimQuery, SimUser, Status, World


def add_user(
    world: World, user_id: int, *, first_name: str, username: str | None, language_code: str | None
) -> SimUser:
    user = world.users.get(user_id)
    if user is None:
        user = world.users[user_id] = SimUser(id=user_id, first_name=first_name or f"User {user_id}")
    user.first_name = first_name or user.first_name
    user.username = username or user.username
    user.language_code = language_code or user.language_code
    if username:
        world.by_username[username.lower()] = user
    return user


def add_chat(
    world: World,
    kind: ChatType,
    *,
    chat_id: int | None,
    title: str,
    username: str | None,
    is_forum: bool,
    bots: list[SimBot],
) -> SimChat:
    if chat_id is None:
        base = SUPERGROUP_BASE if kind != "group" else 0
        chat_id = base - world.chance.randint(1_000_000, 999_999_999)
    if chat_id >= 0 or kind == "private":
        raise BadInput(
            code="wrong_chat", detail="A group or channel has a negative id; a private chat comes with its user."
        )
    chat = SimChat(id=chat_id, type=kind, title=title or f"{kind} {chat_id}", username=username, is_forum=is_forum)
    for bot in bots:
        chat.members[bot.id] = SimMember(status="administrator" if kind == "channel" else "member")
    world.chats[chat_id] = chat
    if username:
        world.by_username[username.lower()] = chat
    return chat


def write(
    world: World,
    bot: SimBot,
    user: SimUser,
    content: Json,
    *,
    chat: SimChat | None,
    thread_id: int | None,
    reply_to: int | None,
    date: float | None,
) -> Json:
    """A person's message: to the bot, or in a group to all bots in it. In a channel it is a post."""
    now = world.now()
    chat = chat or world.dialog(bot, user)
    chat.active_at = now
    if chat.is_blocked:
        # Who writes to a bot again has unblocked it, and the bot is told so first.
        set_standing(world, bot, chat, user, "member")
    message_id = chat.next_message_id()
    at = int(now if date is None else date)
    message: Json = {"message_id": message_id}
    if chat.type == "channel":
        message["sender_chat"] = chat.as_json()
    else:
        message["from"] = user.as_json()
    message |= {"chat": chat.as_json(), "date": at}
    if thread_id:
        message |= {"message_thread_id": thread_id, "is_topic_message": True}
    if reply_to in chat.messages:
        message["reply_to_message"] = visible(chat.messages[reply_to])
    message |= content
    text = content.get("text")
    if isinstance(text, str) and text.startswith("/"):
        message["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text.split()[0])}]
    world.keep(chat, message_id, message)
    kind = "channel_post" if chat.type == "channel" else "message"
    for listener in listeners(world, bot, chat):
        world.push(listener, kind, message, date=at)
    return message


def edit(world: World, bot: SimBot, chat: SimChat, message_id: int, content: Json) -> Json:
    """A person changes his own message."""
    message = chat.messages.get(message_id)
    if message is None:
        raise BadInput(code="no_message", detail=f"There is no message {message_id} in chat {chat.id}.")
    now = int(world.now())
    message |= {**content, "edit_date": now}
    kind = "edited_channel_post" if chat.type == "channel" else "edited_message"
    for listener in listeners(world, bot, chat):
        world.push(listener, kind, message, date=now)
    return message


def upload(world: World, bot: SimBot, kind: str, file: UploadedFile) -> Json:
    """The content of a message that carries a file."""
    return described(bot.files.put(kind, file), {})


def listeners(world: World, bot: SimBot, chat: SimChat) -> list[SimBot]:
    if chat.is_private:
        return [bot]
    world.member(chat, bot)
    return [
        world.bots[user_id] for user_id, member in chat.members.items() if member.is_inside and user_id in world.bots
    ]


def press(world: World, bot: SimBot, user: SimUser, chat: SimChat, message_id: int, data: str) -> str:
    """A button under a message is pressed; the query's id."""
    message = chat.messages.get(message_id)
    if message is None:
        raise BadInput(code="no_message", detail=f"There is no message {message_id} in chat {chat.id}.")
    chat.active_at = world.now()
    payload: Json = {"message": visible(message), "chat_instance": str(chat.id), "data": data}
    return ask(world, bot, user, "callback", payload, chat_id=chat.id)


# What a query says unless told otherwise. Strict libraries refuse one without these.
USUAL: dict[str, Json] = {
    "inline": {"query": "", "offset": ""},
    "pre_checkout": {"currency": "XTR", "total_amount": 1, "invoice_payload": ""},
    "shipping": {
        "invoice_payload": "",
        "shipping_address": dict.fromkeys(
            ("country_code", "state", "city", "street_line1", "street_line2", "post_code"), ""
        ),
    },
}


def ask(world: World, bot: SimBot, user: SimUser, kind: str, payload: Json, *, chat_id: int | None = None) -> str:
    """A query that wants an answer: callback, inline, pre_checkout or shipping; its id."""
    now = world.now()
    query_id = str(world.chance.getrandbits(62))
    bot.queries[query_id] = SimQuery(kind=kind, asked_at=now, chat_id=chat_id)
    while len(bot.queries) > 10_000:
        del bot.queries[next(iter(bot.queries))]
    world.push(bot, f"{kind}_query", {"id": query_id, "from": user.as_json(), **payload})
    return query_id


def set_standing(world: World, bot: SimBot, chat: SimChat, user: SimUser, status: Status) -> UpdateEvent | None:
    """The bot's standing in a chat changes, and my_chat_member tells it."""
    now = int(world.now())
    if chat.is_private:
        before: Status = "kicked" if chat.is_blocked else "member"
        chat.is_blocked = status == "kicked"
    else:
        member = world.member(chat, bot)
        before = member.status
        chat.members[bot.id] = SimMember(status=status)
    if before == status:
        return None
    change: Json = {
        "chat": chat.as_json(),
        "from": user.as_json(),
        "date": now,
        "old_chat_member": SimMember(status=before).as_json(bot.user),
        "new_chat_member": SimMember(status=status).as_json(bot.user),
    }
    return world.push(bot, "my_chat_member", change, date=now)


def migrate(world: World, chat: SimChat, user: SimUser) -> SimChat:
    """A group becomes a supergroup with another id; both tell their bots (docs/telegram.md, Chats that close or move)."""
    if chat.type != "group" or chat.migrated_to is not None:
        raise BadInput(code="not_a_group", detail=f"{chat.id} is no basic group, or was upgraded before.")
    fresh_id = SUPERGROUP_BASE - world.chance.randint(1_000_000_000, 2_147_483_647)
    fresh = SimChat(id=fresh_id, type="supergroup", title=chat.title, is_lenient=chat.is_lenient, members=chat.members)
    world.chats[fresh_id] = fresh
    for one, content in ((chat, {"migrate_to_chat_id": fresh_id}), (fresh, {"migrate_from_chat_id": chat.id})):
        message: Json = {
            "message_id": one.next_message_id(),
            "from": user.as_json(),
            "chat": one.as_json(),
            "date": int(world.now()),
            **content,
        }
        for user_id in one.members:
            if user_id in world.bots:
                world.push(world.bots[user_id], "message", message, date=integer(message, "date"))
    chat.migrated_to = fresh_id
    return fresh
