"""The table of all methods: one row each for those with rules of their own, and a general truth for the rest.

Also what a bot is and says of itself: commands, descriptions, menu buttons, rights; queries it answers; payments in test money.
See docs/telegram.md, Method classes.
"""

import itertools

from peik.testing.answer import (
    Described,
    Json,
    Params,
    Refusal,
    bad,
    encode,
    flag,
    integer,
    integers,
    mapping,
    sequence,
    structure,
    text_of,
    too_many,
)
from peik.testing.business import BUSINESS, balance, receive, renew
from peik.testing.chats import CHATS, SUBSCRIPTION_S
from peik.testing.edits import EDITS
from peik.testing.media import described, hidden, take, taken
from peik.testing.posting import caption, check_connection, inline_keyboard, known_chat, message_text, tell, visible
from peik.testing.rich import rich_message
from peik.testing.sends import (
    SENDS,
    Handler,
    bill,
    checked_invoice,
    contact,
    game_scores,
    location,
    send_anything,
    set_game_score,
    venue,
)
from peik.testing.stickers import STICKERS
from peik.testing.webhooks import POLLING, WEBHOOKS
from peik.testing.world import RIGHTS, Game, SimBot, SimCall, SimQuery, SimUser, World

LOGIN_WAIT_S = 600.0
CLOSE_WAIT_S = 600.0
COMMANDS_MAX = 100


def find(name: str) -> tuple[str, Handler]:
    """A method's true spelling and what carries it out. Names are case-insensitive. Raises the 404."""
    row = _BY_LOWER.get(name.lower())
    if row is not None:
        return row
    lower = name.lower()
    if not name.isalpha():
        raise Refusal(404, "Not Found")  # no path of a method: it does not come as far as a bot
    if lower.startswith("send") and len(lower) > 4:
        return name, send_anything
    if lower.startswith(("set", "delete")) and len(lower) > 6:
        return name, truth
    raise Refusal(404, "Not Found: method not found")


# The bot itself


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


# What a bot says of itself, by language and by scope


_SCOPES = frozenset({"default", "all_private_chats", "all_group_chats", "all_chat_administrators", "chat",
                     "chat_administrators", "chat_member"})  # fmt: skip


def _scope(world: World, call: SimCall) -> str:
    """The key under which commands are kept: scope and language."""
    given = mapping(call.params, "scope", what="BotCommandScope") or {"type": "default"}
    kind = given.get("type")
    if kind not in _SCOPES:
        raise bad("can't parse BotCommandScope: unsupported type specified")
    key: list[object] = [kind]
    if "chat_id" in given or kind in {"chat", "chat_administrators", "chat_member"}:
        if given.get("chat_id") in (None, ""):
            raise bad("can't parse BotCommandScope: empty chat_id specified")
        key.append(known_chat(world, call.bot, given).id)
    if kind == "chat_member":
        if integer(given, "user_id") <= 0:
            raise bad("can't parse BotCommandScope: invalid user_id specified")
        key.append(integer(given, "user_id"))
    return encode([*key, text_of(call.params, "language_code")]).decode()


def _commands(call: SimCall) -> dict[str, object]:
    found = call.bot.settings.setdefault("commands", {})
    assert isinstance(found, dict)
    return found


def set_commands(world: World, call: SimCall) -> object:
    given = sequence(call.params, "commands", what="BotCommand")
    if given is None or len(given) > COMMANDS_MAX:
        raise bad("expected an Array of BotCommand" if given is None else "BOT_COMMANDS_TOO_MUCH")
    shown: list[Json] = []
    for one in given:
        if not isinstance(one, dict):
            raise bad("can't parse BotCommand: expected an Object")
        name, text = str(one.get("command", "")).strip().removeprefix("/"), str(one.get("description", "")).strip()
        if (
            not 1 <= len(name) <= 32
            or name != name.lower()
            or not name.replace("_", "").isalnum()
            or not name.isascii()
        ):
            raise bad("BOT_COMMAND_INVALID")
        if not 1 <= len(text) <= 256:
            raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
        shown.append({**one, "command": name, "description": text})
    _commands(call)[_scope(world, call)] = shown
    world.note_applied(call)
    return True


def get_commands(world: World, call: SimCall) -> object:
    return _commands(call).get(_scope(world, call), [])


def delete_commands(world: World, call: SimCall) -> object:
    _commands(call).pop(_scope(world, call), None)
    world.note_applied(call)
    return True


def set_own(field: str, most: int) -> Handler:
    """setMyName, setMyDescription, setMyShortDescription: for all, or for those of a language."""

    def change(world: World, call: SimCall) -> object:
        text = text_of(call.params, field)
        if len(text) > most:
            raise bad("BOT_TITLE_INVALID" if field == "name" else f"bot {field.replace('_', ' ')} is too long")
        said = call.bot.settings.setdefault(field, {})
        assert isinstance(said, dict)
        language = text_of(call.params, "language_code")
        if text:
            said[language] = text
        else:
            said.pop(language, None)
        world.note_applied(call, text=text)
        return True

    return change


def get_own(field: str) -> Handler:
    def read(world: World, call: SimCall) -> object:
        said = call.bot.settings.get(field)
        held = said if isinstance(said, dict) else {}
        usual = call.bot.user.first_name if field == "name" else ""
        return {field: held.get(text_of(call.params, "language_code")) or held.get("") or usual}

    return read


def set_menu(world: World, call: SimCall) -> object:
    given = mapping(call.params, "menu_button", what="MenuButton") or {"type": "default"}
    kind = given.get("type")
    if kind not in {"default", "commands", "web_app"}:
        raise bad("can't parse menu button: MenuButton has unsupported type")
    if kind == "web_app":
        app = given.get("web_app")
        url = str(app.get("url", "")) if isinstance(app, dict) else ""
        if not given.get("text") or not url.startswith("https://"):
            raise bad(f"menu button Web App URL '{url}' is invalid: only HTTPS links are allowed")
    _menus(call)[_menu_chat(world, call)] = given
    world.note_applied(call)
    return True


def get_menu(world: World, call: SimCall) -> object:
    menus = _menus(call)
    return menus.get(_menu_chat(world, call)) or menus.get(0) or {"type": "commands"}


def _menus(call: SimCall) -> dict[int, Json]:
    found = call.bot.settings.setdefault("menus", {})
    assert isinstance(found, dict)
    return found


def _menu_chat(world: World, call: SimCall) -> int:
    if not call.params.get("chat_id"):
        return 0
    chat = known_chat(world, call.bot, call.params)
    if not chat.is_private:
        raise bad("chat not found")
    return chat.id


_CHANNEL_RIGHTS = (*RIGHTS, "can_post_messages", "can_edit_messages", "can_manage_direct_messages")
_GROUP_RIGHTS = (*RIGHTS, "can_pin_messages", "can_manage_topics")


def set_default_rights(world: World, call: SimCall) -> object:
    rights = mapping(call.params, "rights", what="ChatAdministratorRights") or {}
    kind = "channel" if flag(call.params, "for_channels") else "group"
    given = {name: flag(rights, name) for name in rights}
    # Nobody is anonymous in a channel: its posts are the channel's own.
    call.bot.settings[f"{kind} rights"] = given | ({"is_anonymous": False} if kind == "channel" else {})
    world.note_applied(call)
    return True


def get_default_rights(world: World, call: SimCall) -> object:
    is_channel = flag(call.params, "for_channels")
    held = call.bot.settings.get("channel rights" if is_channel else "group rights")
    usual = dict.fromkeys(_CHANNEL_RIGHTS if is_channel else _GROUP_RIGHTS, False)
    return usual | {name: value for name, value in (held if isinstance(held, dict) else {}).items() if name in usual}


# Profiles, of people and of the bot


def set_emoji_status(world: World, call: SimCall) -> object:
    user = world.users.get(integer(call.params, "user_id"))
    if user is None:
        raise bad("user not found")
    ends_at = integer(call.params, "emoji_status_expiration_date")
    status = user.emoji_status = text_of(call.params, "emoji_status_custom_emoji_id")
    user.emoji_status_until = ends_at if status else 0
    if ends_at:
        world.schedule(ends_at, lambda: _end_status(user, ends_at))
    world.note_applied(call, chat_id=user.id, text=user.emoji_status)
    return True


def _end_status(user: SimUser, ends_at: int) -> None:
    if user.emoji_status_until == ends_at:
        user.emoji_status, user.emoji_status_until = "", 0


def profile_photos(world: World, call: SimCall) -> object:
    user = world.users.get(integer(call.params, "user_id"))
    if user is None:
        raise bad("user not found")
    offset, limit = integer(call.params, "offset"), min(max(integer(call.params, "limit", 100), 1), 100)
    return {"total_count": len(user.photos), "photos": user.photos[offset : offset + limit]}


def profile_audios(world: World, call: SimCall) -> object:
    user = world.users.get(integer(call.params, "user_id"))
    if user is None:
        raise bad("user not found")
    offset, limit = integer(call.params, "offset"), min(max(integer(call.params, "limit", 100), 1), 100)
    return {"total_count": len(user.audios), "audios": user.audios[offset : offset + limit]}


def personal_messages(world: World, call: SimCall) -> object:
    """The newest messages of the channel that a person's profile shows."""
    user = world.users.get(integer(call.params, "user_id"))
    if user is None:
        raise bad("user not found")
    chat = world.chats.get(user.personal_chat)
    limit = min(max(integer(call.params, "limit", 20), 1), 20)
    return [chat.messages[number] for number in sorted(chat.messages, reverse=True)[:limit]] if chat is not None else []


def set_profile_photo(world: World, call: SimCall) -> object:
    given = mapping(call.params, "photo", what="InputProfilePhoto") or {}
    field = "animation" if given.get("type") == "animated" else "photo"
    if given.get("type") not in {"static", "animated"}:
        raise bad("invalid profile photo type specified" if given else "there is no photo in the request")
    if not text_of(given, field).startswith("attach://"):
        raise bad("photo must be uploaded as a file")
    stored = taken(world, call, field, "photo", given)
    call.bot.user.photos.insert(0, stored.sizes)
    world.note_applied(call)
    return True


def remove_profile_photo(world: World, call: SimCall) -> object:
    del call.bot.user.photos[:1]
    world.note_applied(call)
    return True


# Queries that people ask


_QUERY_IDS = {
    "callback": "callback_query_id",
    "inline": "inline_query_id",
    "pre_checkout": "pre_checkout_query_id",
    "shipping": "shipping_query_id",
}


def answer_query(kind: str, seconds_option: str) -> Handler:
    def answer(world: World, call: SimCall) -> object:
        field = _QUERY_IDS[kind]
        query = call.bot.queries.get((kind, text_of(call.params, field)))
        patience_s = float(getattr(world.options, seconds_option))
        _check_answer(kind, call.params)
        if query is None or call.now - query.asked_at > patience_s:
            raise bad("query is too old and response timeout expired or query ID is invalid")
        world.note_applied(call, chat_id=query.chat_id or 0, text=text_of(call.params, "text"))
        call.bot.answers[text_of(call.params, field)] = {
            name: structure(call.params, name, what=name) if name in _LISTS else held
            for name, held in call.params.items()
            if name != field
        }
        while len(call.bot.answers) > ANSWERS_MAX:
            del call.bot.answers[next(iter(call.bot.answers))]
        if kind == "inline":
            results = sequence(call.params, "results", what="inline query results") or []
            call.bot.results = {str(one["id"]): one for one in results if isinstance(one, dict)}
        if kind == "pre_checkout" and flag(call.params, "ok"):
            _pay(world, call, text_of(call.params, field))
        if kind == "shipping" and flag(call.params, "ok"):
            _ship(world, call, text_of(call.params, field))
        return True

    return answer


ANSWERS_MAX = 1_000  # of a bot
_LISTS = frozenset({"results", "button", "shipping_options"})
CALLBACK_TEXT_MAX = 200
NEXT_OFFSET_BYTES_MAX = 64
RESULTS_MAX = 50


def _check_answer(kind: str, params: Params) -> None:
    match kind:
        case "callback":
            if len(text_of(params, "text")) > CALLBACK_TEXT_MAX:
                raise bad("MESSAGE_TOO_LONG")
        case "inline":
            results = sequence(params, "results", what="inline query results") or []
            if len(results) > RESULTS_MAX:
                raise bad("RESULTS_TOO_MUCH")
            seen = [one.get("id") if isinstance(one, dict) else None for one in results]
            if None in seen:
                raise bad("can't parse inline query result: inline query result must be an object")
            if len(set(map(str, seen))) < len(seen):
                raise bad("RESULT_ID_DUPLICATE")
            if len(text_of(params, "next_offset").encode()) > NEXT_OFFSET_BYTES_MAX:
                raise bad("NEXT_OFFSET_INVALID")
        case "shipping" | "pre_checkout":
            if not flag(params, "ok") and not text_of(params, "error_message"):
                raise bad("error message must be non-empty")
            if kind == "shipping" and flag(params, "ok"):
                options = sequence(params, "shipping_options", what="shipping options")
                if not options:
                    raise bad("there must be at least one shipping option")
        case _:
            pass


def _ship(world: World, call: SimCall, query_id: str) -> None:
    """The person takes the first way of shipping, and presses Pay."""
    asked = call.bot.checkouts.pop(query_id, None)
    options = sequence(call.params, "shipping_options", what="shipping options")
    if asked is None or not options or not isinstance(options[0], dict):
        return
    prices = sequence(options[0], "prices", what="labeled prices") or []
    total = integer(asked, "total_amount") + sum(integer(one, "amount") for one in prices if isinstance(one, dict))
    asked |= {"total_amount": total, "shipping_option_id": text_of(options[0], "id")}
    fresh = str(world.chance.getrandbits(62))
    user = world.users[integer(asked, "user_id")]
    call.bot.queries["pre_checkout", fresh] = SimQuery(kind="pre_checkout", asked_at=call.now, chat_id=user.id)
    call.bot.checkouts[fresh] = asked
    shown = {name: held for name, held in asked.items() if name != "user_id"}
    world.push(call.bot, "pre_checkout_query", {"id": fresh, "from": user.as_json(), **shown})


def _pay(world: World, call: SimCall, query_id: str) -> None:
    """A checkout that the bot has agreed to: in test money it is paid at once, and the person's message says so."""
    asked = call.bot.checkouts.pop(query_id, None)
    if asked is None:
        return
    user = world.users[integer(asked, "user_id")]
    charge_id = f"{world.chance.getrandbits(100):025x}"
    names = ("currency", "total_amount", "invoice_payload", "shipping_option_id", "order_info")
    payment: Json = {name: asked[name] for name in names if name in asked}
    if payment["currency"] == "XTR":
        partner = {"type": "user", "transaction_type": "invoice_payment", "user": user.as_json()}
        what = {"invoice_payload": payment["invoice_payload"]}
        charge_id = receive(world, call.bot, integer(payment, "total_amount"), **partner, **what)
    payment |= {"telegram_payment_charge_id": charge_id, "provider_payment_charge_id": f"test_{charge_id[:12]}"}
    period_s = integer(asked, "period_s")
    if period_s:
        payment |= {
            "is_recurring": True,
            "is_first_recurring": True,
            "subscription_expiration_date": int(call.now) + period_s,
        }
        held: Json = {"user_id": user.id, "invoice_payload": payment["invoice_payload"], "is_canceled": False}
        call.bot.subscriptions[charge_id] = held | {"payment": payment, "period_s": period_s}
        world.schedule(call.now + period_s, lambda: renew(world, call.bot, charge_id))
    message = tell(world, call.bot, world.dialog(call.bot, user), {"successful_payment": payment}, sender=user)
    world.push(call.bot, "message", visible(message), date=call.now)


def star_transactions(world: World, call: SimCall) -> object:
    offset, limit = integer(call.params, "offset"), min(max(integer(call.params, "limit", 100), 1), 100)
    return {"transactions": call.bot.transactions[offset : offset + limit]}


def star_balance(world: World, call: SimCall) -> object:
    return {"amount": balance(call.bot)}


# Files, payments, things with an id of their own


def get_file(world: World, call: SimCall) -> object:
    stored = call.bot.files.by_id.get(text_of(call.params, "file_id"))
    if stored is None:
        raise bad("invalid file_id")
    most = world.options.download_bytes_max
    if most is not None and stored.size_bytes > most:
        raise bad("file is too big")
    return stored.as_json() | {"file_path": stored.path}


INVOICES_MAX = 1_000  # of a bot


def invoice_link(world: World, call: SimCall) -> object:
    invoice = checked_invoice(call.params)
    period_s = integer(call.params, "subscription_period")
    if period_s and (period_s != SUBSCRIPTION_S or invoice["currency"] != "XTR"):
        raise bad("SUBSCRIPTION_PERIOD_INVALID")
    link = f"https://t.me/$peik{world.chance.getrandbits(48):x}"
    call.bot.invoices[link] = {"invoice": invoice, "bill": bill(call.params), "period_s": period_s}
    while len(call.bot.invoices) > INVOICES_MAX:
        del call.bot.invoices[next(iter(call.bot.invoices))]
    world.note_applied(call, text=link)
    return link


def edit_subscription(world: World, call: SimCall) -> object:
    """The bot ends a subscription with its month, or lets the person take it up again."""
    held = call.bot.subscriptions.get(text_of(call.params, "telegram_payment_charge_id"))
    if held is None or held["user_id"] != integer(call.params, "user_id"):
        if held is not None or not world.options.accept_any_chat:
            raise bad("CHARGE_NOT_FOUND")
    else:
        held["is_canceled"] = flag(call.params, "is_canceled")
    world.note_applied(call, chat_id=integer(call.params, "user_id"))
    return True


def refund(world: World, call: SimCall) -> object:
    """A second refund of one payment is refused, which proves the first."""
    done = call.bot.settings.setdefault("refunds", [])
    charge_id = text_of(call.params, "telegram_payment_charge_id")
    assert isinstance(done, list)
    if charge_id in done:
        raise bad("CHARGE_ALREADY_REFUNDED")
    paid = [one for one in call.bot.transactions if one["id"] == charge_id]
    if not paid and not world.options.accept_any_chat:
        raise bad("CHARGE_NOT_FOUND")
    done.append(charge_id)
    if paid:
        partner = paid[0]["source"]
        back = {**paid[0], "date": int(call.now), "receiver": partner}
        back.pop("source")
        call.bot.transactions.append(back)
        user = world.users.get(integer(call.params, "user_id"))
        if user is not None and isinstance(partner, dict):
            told: Json = {"currency": "XTR", "total_amount": back["amount"], "telegram_payment_charge_id": charge_id}
            told["invoice_payload"] = str(partner.get("invoice_payload", ""))
            message = tell(world, call.bot, world.dialog(call.bot, user), {"refunded_payment": told}, sender=user)
            world.push(call.bot, "message", visible(message), date=call.now)
    world.note_applied(call, text=charge_id)
    return True


# To which chats a prepared message may be sent.
_WHERE = {
    "allow_user_chats": ("private",), "allow_bot_chats": (), "allow_group_chats": ("group", "supergroup"),
    "allow_channel_chats": ("channel",),
}  # fmt: skip


def prepared_message(world: World, call: SimCall) -> object:
    """What a person may send from a Mini App, for a day."""
    _known_user(world, call)
    result = _result(call)
    named = [name for name in _WHERE if flag(call.params, name)]
    if not named:
        raise bad("at least one chat type must be allowed")
    fresh = f"{world.chance.getrandbits(48):x}"
    call.bot.results[fresh] = result
    call.bot.prepared[fresh] = frozenset(itertools.chain.from_iterable(_WHERE[name] for name in named))
    world.schedule(call.now + DAY_S, lambda: _let_lapse(call.bot, fresh))
    world.note_applied(call)
    return {"id": fresh, "expiration_date": int(call.now) + DAY_S}


def prepared_button(world: World, call: SimCall) -> object:
    """A button by which a person shares people or a chat, or makes a bot, from within a Mini App."""
    _known_user(world, call)
    button = mapping(call.params, "button", what="keyboard button")
    if button is None or not button.get("text"):
        raise bad("can't parse keyboard button: KeyboardButton must be a String or an Object")
    if not any(isinstance(button.get(name), dict) for name in ("request_users", "request_chat", "request_managed_bot")):
        raise bad("BUTTON_TYPE_INVALID")
    fresh = f"{world.chance.getrandbits(48):x}"
    call.bot.buttons[fresh] = button
    world.note_applied(call)
    return {"id": fresh}


def _result(call: SimCall) -> Json:
    result = mapping(call.params, "result", what="InlineQueryResult")
    if result is None:
        raise bad("can't parse InlineQueryResult: expected an Object")
    return result


DAY_S = 86_400


def _let_lapse(bot: SimBot, result_id: str) -> None:
    bot.results.pop(result_id, None)
    bot.prepared.pop(result_id, None)


def _known_user(world: World, call: SimCall) -> SimUser | None:
    user = world.users.get(integer(call.params, "user_id"))
    if user is None and not world.options.accept_any_chat:
        raise bad("user not found")
    return user


def answer_web_app(world: World, call: SimCall) -> object:
    """The message that a Mini App sends for its user; each query is answered once."""
    query = call.bot.queries.pop(("web_app", text_of(call.params, "web_app_query_id")), None)
    if query is None and not world.options.accept_any_chat:
        raise bad("query is too old and response timeout expired or query ID is invalid")
    content = inline_content(world, call.bot, _result(call))
    world.note_applied(call, text=str(content.get("text", "")))
    return {"inline_message_id": keep_inline(world, call.bot, content)}


def answer_guest(world: World, call: SimCall) -> object:
    """The bot's answer in a chat that it is not in, to whoever has called it there; each call is answered once."""
    content = inline_content(world, call.bot, _result(call))
    query = call.bot.queries.pop(("guest", text_of(call.params, "guest_query_id")), None)
    if query is None and not world.options.accept_any_chat:
        raise bad("query is too old and response timeout expired or query ID is invalid")
    chat_id = (query.chat_id or 0) if query is not None else 0
    world.note_applied(call, chat_id=chat_id, text=str(content.get("text", "")))
    return {"inline_message_id": keep_inline(world, call.bot, content)}


# How the fields of an inline result begin, if not as what they show is called.
_SHOWN_BY = {"gif": "animation", "mpeg4_gif": "animation"}
_SHOWN = frozenset({"photo", "gif", "mpeg4_gif", "video", "audio", "voice", "document", "sticker"})


def inline_content(world: World, bot: SimBot, result: Json) -> Json:
    """What a message that comes of an inline result shows: its text, or what the result itself is."""
    given = mapping(result, "input_message_content", what="InputMessageContent")
    if given is not None and "message_text" in given:
        content = message_text(world, {**given, "text": given["message_text"]})
    elif given is not None and "rich_message" in given:
        call = SimCall(bot=bot, method="", params=given, files={}, now=world.now())
        content = {"rich_message": rich_message(world, call, given)}
    elif given is not None:
        content = dict(given)
    else:
        content = _inline_media(world, bot, result) | caption(world, result)
    markup = inline_keyboard(result)
    return content if markup is None else {**content, "reply_markup": markup}


def _inline_media(world: World, bot: SimBot, result: Json) -> Json:
    """A file that Telegram has, or at an address; a place, or somebody to call; nothing for an article."""
    kind = text_of(result, "type")
    call = SimCall(bot=bot, method="", params=result, files={}, now=world.now())
    if kind in _SHOWN:
        fields = (f"{kind}_file_id", f"{kind}_url")
        field = next((name for name in fields if result.get(name)), fields[1])
        shown = _SHOWN_BY.get(kind, kind)
        sides = {
            name: result[f"{kind}_{name}"] for name in ("width", "height", "duration") if f"{kind}_{name}" in result
        }
        stored = take(world, call, result.get(field), None, field=field, kind=shown, params=sides)
        return described(stored, result) | hidden(result)
    match kind:
        case "location":
            return {"location": location(result)}
        case "venue":
            return venue(result)
        case "contact":
            return {"contact": contact(result)}
        case "game":
            name = text_of(result, "game_short_name")
            return {"game": bot.games.setdefault(name, Game(title=name)).as_json(world)}
        case _:
            return {}


INLINE_MAX = 10_000  # of a bot


def keep_inline(world: World, bot: SimBot, content: Json) -> str:
    """The id by which the bot may change the message later."""
    inline_id = f"{world.chance.getrandbits(128):032x}"
    bot.inline[inline_id] = content
    while len(bot.inline) > INLINE_MAX:
        del bot.inline[next(iter(bot.inline))]
    return inline_id


# What a passport is made of, and what of it may be wrong.
_PASSPORT = frozenset({
    "personal_details", "passport", "driver_license", "identity_card", "internal_passport", "address", "utility_bill",
    "bank_statement", "rental_agreement", "passport_registration", "temporary_registration", "phone_number", "email",
})  # fmt: skip
_PASSPORT_SOURCES = frozenset({
    "", "unspecified", "data", "front_side", "reverse_side", "selfie", "translation_file", "translation_files", "file", "files",
})  # fmt: skip


def passport_errors(world: World, call: SimCall) -> object:
    """What is wrong with somebody's passport data, in place of what was said before."""
    user = _known_user(world, call)
    errors = sequence(call.params, "errors", what="PassportElementError")
    if errors is None:
        raise bad("can't parse errors JSON object")
    for one in errors:
        said = ""
        if not isinstance(one, dict):
            said = "expected an Object"
        elif one.get("type") not in _PASSPORT:
            said = "wrong Telegram Passport element type specified"
        elif not isinstance(one.get("message"), str):
            said = 'can\'t find field "message"'
        elif one.get("source", "") not in _PASSPORT_SOURCES:
            said = "wrong source specified"
        if said:
            raise bad(f"can't parse PassportElementError: {said}")
    call.bot.passport_errors[user.id if user is not None else 0] = errors
    world.note_applied(call, chat_id=user.id if user is not None else 0)
    return True


VERIFIED_TEXT_MAX = 70


def verify(world: World, call: SimCall) -> object:
    """verifyUser, verifyChat and their opposites: on behalf of the organization that the bot stands for."""
    field = "user_id" if "User" in call.method else "chat_id"
    chat = known_chat(world, call.bot, call.params, field)
    if field == "user_id" and chat.user is None:
        raise bad("user not found")
    if not (call.bot.may_verify or world.options.accept_any_chat):
        raise bad("BOT_VERIFIER_FORBIDDEN")
    said = text_of(call.params, "custom_description")
    if len(said) > VERIFIED_TEXT_MAX:
        raise bad("CUSTOM_DESCRIPTION_TOO_LONG")
    if call.method.startswith("verify"):
        call.bot.verified[chat.id] = said
    else:
        call.bot.verified.pop(chat.id, None)
    world.note_applied(call, chat_id=chat.id, text=said)
    return True


def managed_token(world: World, call: SimCall) -> object:
    """The token of a bot that this one manages; it works. A new one makes the old worthless."""
    bot_id = _managed(world, call)
    bot = world.bots.get(bot_id)
    fresh = f"{bot_id}:{world.chance.getrandbits(140):035x}"
    world.note_applied(call, text=str(bot_id))
    if bot is None and bot_id in world.users:
        return fresh  # made up, and a person has that number
    if bot is None or call.method == "replaceManagedBotToken":
        bot = world.add_bot(fresh)
    return bot.token_text


def _managed(world: World, call: SimCall) -> int:
    bot_id = integer(call.params, "user_id")
    if bot_id not in call.bot.managed:
        if not world.options.accept_any_chat or bot_id in world.bots or bot_id <= 0:
            raise bad("BOT_INVALID")
        call.bot.managed[bot_id] = {"is_access_restricted": False}
    return bot_id


def managed_access(world: World, call: SimCall) -> object:
    return call.bot.managed[_managed(world, call)]


def set_managed_access(world: World, call: SimCall) -> object:
    bot_id = _managed(world, call)
    ids = integers(call.params, "added_user_ids", what="user identifiers")
    added = [world.users[one].as_json() for one in ids if one in world.users]
    is_restricted = flag(call.params, "is_access_restricted")
    call.bot.managed[bot_id] = {"is_access_restricted": is_restricted} | ({"added_users": added} if added else {})
    world.note_applied(call, text=str(bot_id))
    return True


def business_connection(world: World, call: SimCall) -> object:
    found = call.bot.connections.get(text_of(call.params, "business_connection_id"))
    if found is None:
        raise bad("BUSINESS_CONNECTION_INVALID")
    return found


def truth(world: World, call: SimCall) -> object:
    """A write that always works: `true`, once its chat is known. What set… says, get… gives back."""
    if call.params.get("business_connection_id"):
        check_connection(world, call.bot, text_of(call.params, "business_connection_id"))
        chat_id = integer(call.params, "chat_id")
    else:
        chat_id = known_chat(world, call.bot, call.params).id if "chat_id" in call.params else 0
    if call.method.startswith("set"):
        call.bot.settings[call.method[3:]] = call.params
    elif call.method.startswith("delete"):
        call.bot.settings.pop(call.method[6:], None)
    world.note_applied(call, chat_id=chat_id)
    return True


# What a known method without rules of its own does instead, by its name: none at present. A method is in one of these tables.
NOT_IMITATED: dict[str, str] = {}

METHODS: dict[str, Handler] = {
    **SENDS,
    **EDITS,
    **POLLING,
    **WEBHOOKS,
    **CHATS,
    **STICKERS,
    **BUSINESS,
    "getMe": get_me,
    "logOut": log_out,
    "close": close,
    "answerCallbackQuery": answer_query("callback", "callback_s"),
    "answerInlineQuery": answer_query("inline", "inline_s"),
    "answerPreCheckoutQuery": answer_query("pre_checkout", "checkout_s"),
    "answerShippingQuery": answer_query("shipping", "checkout_s"),
    "getFile": get_file,
    "getMyCommands": get_commands,
    "setMyCommands": set_commands,
    "deleteMyCommands": delete_commands,
    "getMyName": get_own("name"),
    "setMyName": set_own("name", 64),
    "getMyDescription": get_own("description"),
    "setMyDescription": set_own("description", 512),
    "getMyShortDescription": get_own("short_description"),
    "setMyShortDescription": set_own("short_description", 120),
    "getChatMenuButton": get_menu,
    "setChatMenuButton": set_menu,
    "getMyDefaultAdministratorRights": get_default_rights,
    "setMyDefaultAdministratorRights": set_default_rights,
    "setUserEmojiStatus": set_emoji_status,
    "getUserProfilePhotos": profile_photos,
    "getUserProfileAudios": profile_audios,
    "getUserPersonalChatMessages": personal_messages,
    "setMyProfilePhoto": set_profile_photo,
    "removeMyProfilePhoto": remove_profile_photo,
    "getMyStarBalance": star_balance,
    "getStarTransactions": star_transactions,
    "setGameScore": set_game_score,
    "getGameHighScores": game_scores,
    "createInvoiceLink": invoice_link,
    "refundStarPayment": refund,
    "savePreparedInlineMessage": prepared_message,
    "savePreparedKeyboardButton": prepared_button,
    "answerGuestQuery": answer_guest,
    "setPassportDataErrors": passport_errors,
    "editUserStarSubscription": edit_subscription,
    **dict.fromkeys(("verifyUser", "verifyChat", "removeUserVerification", "removeChatVerification"), verify),
    "answerWebAppQuery": answer_web_app,
    "getManagedBotToken": managed_token,
    "replaceManagedBotToken": managed_token,
    "getBusinessConnection": business_connection,
    "getManagedBotAccessSettings": managed_access,
    "setManagedBotAccessSettings": set_managed_access,
}

_BY_LOWER: dict[str, tuple[str, Handler]] = {name.lower(): (name, handler) for name, handler in METHODS.items()}
