"""The methods that put something new into a chat. Content is checked first, then the chat, then the limits."""

import itertools
from collections.abc import Callable, Iterator

from peik.testing.answer import (
    Json,
    Params,
    Refusal,
    bad,
    flag,
    integer,
    integers,
    mapping,
    number,
    sequence,
    structure,
    text_of,
)
from peik.testing.media import CAPTIONED, NO_MEDIA, UNFETCHED, described, hidden, take, taken
from peik.testing.posting import (
    TEXT_MAX,
    caption,
    charge,
    envelope,
    inline_keyboard,
    known_chat,
    message_text,
    origin,
    post,
    thread,
    words,
    writable_chat,
)
from peik.testing.rich import plain, rich_message
from peik.testing.world import KINDS, Game, SimCall, SimChat, World

Handler = Callable[[World, SimCall], object]

IDS_MAX = 100
POLL_OPTIONS_MAX = 12
QUESTION_MAX = 300
OPTION_MAX = 100
LIVE_FOREVER_S = 0x7FFFFFFF

# What surrounds a message; the rest is its content, and that is what a copy takes along.
_AROUND = frozenset({
    "message_id", "from", "sender_chat", "chat", "date", "edit_date", "reply_to_message", "reply_markup",
    "message_thread_id", "is_topic_message", "business_connection_id", "media_group_id", "forward_origin",
    "forward_from", "forward_from_chat", "forward_from_message_id", "forward_sender_name", "forward_signature",
    "forward_date", "has_protected_content", "effect_id", "quote", "external_reply", "direct_messages_topic",
    "suggested_post_info", "via_bot", "sender_tag",
})  # fmt: skip


def send_message(world: World, call: SimCall) -> object:
    content = message_text(world, call.params)
    return post(world, call, writable_chat(world, call.bot, call.params), content, text=str(content["text"]))


def _whats(kind: str) -> str:
    """How a refusal calls it."""
    return "voice notes" if kind == "voice" else f"{kind.replace('_', ' ')}s"


def send_media(kind: str) -> Handler:
    """sendPhoto, sendDocument and their like."""

    def send(world: World, call: SimCall) -> object:
        content = described(taken(world, call, kind, kind), call.params)
        if kind == "video":
            _add_cover(world, call, content, call.params)
        if kind in CAPTIONED:
            content.update(caption(world, call.params))
            content.update(hidden(call.params))
        chat = writable_chat(world, call.bot, call.params, what=_whats(kind))
        return post(world, call, chat, content, text=str(content.get("caption", "")))

    return send


def _add_cover(world: World, call: SimCall, content: Json, params: Params) -> None:
    """A video's cover, and the second at which it begins."""
    face = content.get("video")
    if isinstance(face, dict) and params.get("cover"):
        stored = take(world, call, params["cover"], call.files.get("cover"), field="cover", kind="photo", params=params)
        face["cover"] = described(stored, {})["photo"]
    if isinstance(face, dict) and integer(params, "start_timestamp"):
        face["start_timestamp"] = integer(params, "start_timestamp")


def send_live_photo(world: World, call: SimCall) -> object:
    """A photo with the moving second around it."""
    live = taken(world, call, "live_photo", "live_photo")
    still = described(taken(world, call, "photo", "photo"), call.params)
    # The message shows the still picture as well, for clients that know no live photos.
    sizes = still["photo"]
    if not live.sizes and isinstance(sizes, list):
        live.sizes = sizes
    face: Json = {**live.as_json(), **live.face, "photo": live.sizes}
    content: Json = {"live_photo": face, **still, **caption(world, call.params), **hidden(call.params)}
    chat = writable_chat(world, call.bot, call.params, what="photos")
    return post(world, call, chat, content, text=str(content.get("caption", "")))


def album_item(world: World, call: SimCall, item: object) -> Json:
    """The content of one InputMedia."""
    if not isinstance(item, dict):
        raise bad("can't parse InputMedia: expected an Object")
    kind = str(item.get("type", ""))
    if kind not in KINDS and kind not in {"location", "venue", "link"}:
        raise bad(f"can't parse InputMedia: type {kind or 'must be specified'}")
    match kind:
        case "location":
            return {"location": location(item)}
        case "venue":
            return venue(item)
        case "link":
            return {"link": {"url": text_of(item, "url")}}
    stored = take(world, call, item.get("media"), None, field="media", kind=kind, params=item)
    content = described(stored, item)
    _add_cover(world, call, content, item)
    return {**content, **caption(world, item), **hidden(item)}


def send_media_group(world: World, call: SimCall) -> object:
    media = sequence(call.params, "media", what="InputMedia")
    if not media:
        raise bad("there are no media in the request")
    if not 2 <= len(media) <= 10:
        raise bad("group of media must contain 2-10 items")
    items = [_of_album(world, call, item, place) for place, item in enumerate(media, start=1)]
    kinds = {str(item.get("type")) for item in media if isinstance(item, dict)}
    if kinds - {"photo", "video", "live_photo"} and len(kinds) > 1:
        raise bad("can't use the media of the specified type in the album")
    for what in sorted(map(_whats, kinds)):
        chat = writable_chat(world, call.bot, call.params, what=what)
    envelope(world, call, chat)  # what is wrong with it must show before anything is counted
    charge(world, call, chat, len(items))
    group_id = str(world.chance.getrandbits(62))
    return [
        post(world, call, chat, {"media_group_id": group_id, **item}, text=str(item.get("caption", "")), amount=0)
        for item in items
    ]


def send_rich(world: World, call: SimCall) -> object:
    shown = rich_message(world, call, call.params)
    return _post(world, call, {"rich_message": shown}, text=plain(shown).rstrip())


DRAFT_S = 30.0


def send_draft(world: World, call: SimCall) -> object:
    """What the bot is writing just now, rich or not. It is gone after half a minute, or when a message comes."""
    if call.method == "sendRichMessageDraft":
        content: Json = {"rich_message": rich_message(world, call, call.params, is_draft=True)}
    else:
        content = _draft(world, call)
    chat = writable_chat(world, call.bot, call.params)
    if not chat.is_private:
        raise bad("TEXTDRAFT_PEER_INVALID")
    draft_id = integer(call.params, "draft_id")
    if not draft_id:
        raise bad("RANDOM_ID_EMPTY")
    thread_id = thread(call.params, chat)
    around: Json = {"message_thread_id": thread_id} if thread_id else {}
    for name in ("can_stop", "keep_on_stop"):
        if flag(call.params, name):
            around[name] = True
    shown = chat.drafts[draft_id] = {**around, **content}
    world.schedule(call.now + DRAFT_S, lambda: _let_fade(chat, draft_id, shown))
    return True


def _draft(world: World, call: SimCall) -> Json:
    text, entities = words(world, call.params, "text", mode_field="parse_mode", entities_field="entities")
    if len(text) > TEXT_MAX:
        raise bad("MESSAGE_TOO_LONG")
    return {"text": text} | ({"entities": entities} if entities else {})


def _let_fade(chat: SimChat, draft_id: int, shown: Json) -> None:
    if chat.drafts.get(draft_id) is shown:
        del chat.drafts[draft_id]


# What Telegram's core says of addresses, and what single sends are told instead.
_OF_ADDRESSES = {f"Bad Request: {UNFETCHED}": "WEBPAGE_CURL_FAILED", f"Bad Request: {NO_MEDIA}": "WEBPAGE_MEDIA_EMPTY"}


def _of_album(world: World, call: SimCall, item: object, place: int) -> Json:
    """An address that gives nothing is found out when the others are on their way already."""
    try:
        return album_item(world, call, item)
    except Refusal as refusal:
        said = _OF_ADDRESSES.get(refusal.description)
        if said is None:
            raise
        raise bad(f'failed to send message #{place} with the error message "{said}"') from None


def send_location(world: World, call: SimCall) -> object:
    return _post(world, call, {"location": location(call.params)})


def send_venue(world: World, call: SimCall) -> object:
    return _post(world, call, venue(call.params), text=text_of(call.params, "title"))


def venue(params: Params) -> Json:
    place = location(params)
    venue: Json = {"location": place, "title": text_of(params, "title"), "address": text_of(params, "address")}
    for name in ("foursquare_id", "foursquare_type", "google_place_id", "google_place_type"):
        if params.get(name):
            venue[name] = text_of(params, name)
    return {"venue": venue, "location": place}


def location(params: Params) -> Json:
    latitude, longitude = number(params, "latitude"), number(params, "longitude")
    if latitude is None:
        raise bad("latitude is empty")
    if longitude is None:
        raise bad("longitude is empty")
    if abs(latitude) > 90 or abs(longitude) > 180:
        raise bad("wrong latitude and longitude specified" if abs(latitude) > 90 else "invalid location specified")
    place: Json = {"latitude": latitude, "longitude": longitude}
    live_s = integer(params, "live_period")
    if live_s and live_s != LIVE_FOREVER_S and not 60 <= live_s <= 86_400:
        raise bad("wrong live period specified")
    accuracy = number(params, "horizontal_accuracy")
    if accuracy:
        place["horizontal_accuracy"] = accuracy
    if live_s:
        place["live_period"] = live_s
        for name in ("heading", "proximity_alert_radius"):
            if integer(params, name):
                place[name] = integer(params, name)
    return place


def send_contact(world: World, call: SimCall) -> object:
    return _post(world, call, {"contact": contact(call.params)})


def contact(params: Params) -> Json:
    names = ("phone_number", "first_name", "last_name", "vcard")
    found: Json = {name: text_of(params, name) for name in names if params.get(name)}
    for name in names[:2]:
        if name not in found:
            raise bad(f"{name.replace('_', ' ')} is empty")
    return found


def send_poll(world: World, call: SimCall) -> object:
    params = call.params
    options = _listed_options(params)  # what is no list is refused before a word is read
    question, question_entities = words(
        world, params, "question", mode_field="question_parse_mode", entities_field="question_entities"
    )
    if not question:
        raise bad("poll question must be non-empty")
    if len(question) > QUESTION_MAX:
        raise bad(f"poll question length must not exceed {QUESTION_MAX}")
    kind = text_of(params, "type") or "regular"
    poll: Json = {
        "id": str(world.chance.getrandbits(60)),
        "question": question,
        "options": _poll_options(world, call, options),
        "total_voter_count": 0,
        "is_closed": flag(params, "is_closed"),
        "is_anonymous": flag(params, "is_anonymous") if "is_anonymous" in params else True,
        "type": kind,
        "allows_multiple_answers": flag(params, "allows_multiple_answers"),
        "allows_revoting": flag(params, "allows_revoting"),
        "members_only": flag(params, "members_only"),
    }
    poll.update(_poll_more(world, params))
    if question_entities:
        poll["question_entities"] = question_entities
    if kind == "quiz":
        poll.update(_quiz(world, params, len(poll["options"]) if isinstance(poll["options"], list) else 0))
    for name in ("media", "explanation_media"):
        item = mapping(params, name, what="InputMedia")
        if item is not None:
            poll[name] = album_item(world, call, item)
    closes_at = _poll_end(params, call.now)
    if closes_at is not None:
        poll |= {"open_period": integer(params, "open_period"), "close_date": int(closes_at)}
        if not poll["open_period"]:
            del poll["open_period"]
    message = _post(world, call, {"poll": poll}, text=question)
    world.polls[str(poll["id"])] = (call.bot.id, poll)
    while len(world.polls) > POLLS_MAX:
        oldest = next(iter(world.polls))
        del world.polls[oldest]
        world.votes.pop(oldest, None)
    if closes_at is not None and not poll["is_closed"]:
        world.schedule(closes_at, lambda: close_poll(world, poll))
    return message


def _poll_more(world: World, params: Params) -> Json:
    """What stands under the question, and whose votes are wanted."""
    found: Json = {}
    about, about_entities = words(
        world, params, "description", mode_field="description_parse_mode", entities_field="description_entities"
    )
    if about:
        found |= {"description": about} | ({"description_entities": about_entities} if about_entities else {})
    countries = sequence(params, "country_codes", what="country codes")
    if countries:
        found["country_codes"] = countries
    return found


POLLS_MAX = 10_000


def close_poll(world: World, poll: Json) -> None:
    """No more votes; the bot that asked is told."""
    if poll["is_closed"]:
        return
    poll["is_closed"] = True
    bot_id, _ = world.polls.get(str(poll["id"]), (0, poll))
    if bot_id in world.bots:
        world.push(world.bots[bot_id], "poll", poll)


def _listed_options(params: Params) -> list[object]:
    found = structure(params, "options", what="options")
    if found is None and not params.get("options"):
        raise bad("can't parse options JSON object")
    if not isinstance(found, list):
        raise bad("expected an Array of String as options")
    return found


def _poll_options(world: World, call: SimCall, given: list[object]) -> list[Json]:
    if not given:
        raise bad("poll must have at least 1 option")
    if len(given) > POLL_OPTIONS_MAX:
        raise bad(f"poll can't have more than {POLL_OPTIONS_MAX} options")
    options: list[Json] = []
    for place, one in enumerate(given):
        option = one if isinstance(one, dict) else {"text": str(one)}
        text, entities = words(world, option, "text", mode_field="text_parse_mode", entities_field="text_entities")
        if not text:
            raise bad("poll options must be non-empty")
        if len(text) > OPTION_MAX:
            raise bad(f"poll options length must not exceed {OPTION_MAX}")
        shown: Json = {"persistent_id": str(place), "text": text, "voter_count": 0}
        if entities:
            shown["text_entities"] = entities
        media = mapping(option, "media", what="InputMedia")
        if media is not None:
            shown["media"] = album_item(world, call, media)
        options.append(shown)
    return options


def _quiz(world: World, params: Params, count: int) -> Json:
    ids = integers(params, "correct_option_ids", what="correct option identifiers")
    if not ids and "correct_option_id" in params:
        ids = [integer(params, "correct_option_id", -1)]
    if not ids or not all(0 <= one < count for one in ids):
        raise bad("wrong correct option ID specified")
    found: Json = {"correct_option_ids": ids, "correct_option_id": ids[0]}
    text, entities = words(
        world, params, "explanation", mode_field="explanation_parse_mode", entities_field="explanation_entities"
    )
    if text:
        found["explanation"] = text
        if entities:
            found["explanation_entities"] = entities
    return found


def _poll_end(params: Params, now: float) -> float | None:
    period, date = integer(params, "open_period"), integer(params, "close_date")
    if period:
        if not 5 <= period <= 2_628_000:
            raise bad("can't parse poll: wrong open period specified")
        return now + period
    return float(date) if date > now else None


def send_dice(world: World, call: SimCall) -> object:
    emoji = text_of(call.params, "emoji") or "🎲"
    faces = {"🎲": 6, "🎯": 6, "🎳": 6, "🏀": 5, "⚽": 5, "🎰": 64}
    emoji = "⚽" if emoji == "⚽️" else emoji
    if emoji not in faces:
        raise bad("DICE_EMOJI_INVALID")
    return _post(world, call, {"dice": {"emoji": emoji, "value": world.chance.randint(1, faces[emoji])}})


def send_invoice(world: World, call: SimCall) -> object:
    invoice = checked_invoice(call.params)
    chat = writable_chat(world, call.bot, call.params)
    markup = inline_keyboard(call.params)
    pay = {"inline_keyboard": [[{"text": "Pay", "pay": True}]]}
    message = post(world, call, chat, {"invoice": invoice, "reply_markup": markup or pay}, text=str(invoice["title"]))
    _keep_bill(chat, message, call.params)
    return message


NEEDS = ("need_name", "need_phone_number", "need_email", "need_shipping_address")


def bill(params: Params) -> Json:
    """What stands behind an invoice and no message shows."""
    asked = [name.removeprefix("need_") for name in NEEDS if flag(params, name)]
    return {"payload": text_of(params, "payload"), "is_flexible": flag(params, "is_flexible"), "needs": asked}


def _keep_bill(chat: SimChat, message: Json, params: Params) -> None:
    chat.bills[integer(message, "message_id")] = bill(params)
    while len(chat.bills) > BILLS_MAX:
        del chat.bills[next(iter(chat.bills))]


BILLS_MAX = 1_000  # of a chat
TIPS_MAX = 4
TEST_PROVIDERS = (":TEST:", ":LIVE:")


def checked_invoice(params: Params) -> Json:
    """An invoice as a chat shows it. Providers are test providers: nobody is asked to pay."""
    for name, said in (("title", "title"), ("description", "description"), ("payload", "payload")):
        if not text_of(params, name):
            raise bad(f"{said} is empty")
    currency = text_of(params, "currency")
    if not currency:
        raise bad("currency is empty")
    prices = sequence(params, "prices", what="labeled prices")
    if not prices:
        raise bad("there must be at least one price")
    total = _total(prices)
    if currency != "XTR" and params.get("provider_token"):
        token = text_of(params, "provider_token")
        if not any(mark in token for mark in TEST_PROVIDERS):
            raise bad("PAYMENT_PROVIDER_INVALID")
    if len(currency) != 3 or not currency.isalpha():
        raise bad("CURRENCY_INVALID")
    if total <= 0:
        raise bad("CURRENCY_TOTAL_AMOUNT_INVALID")
    tips = integers(params, "suggested_tip_amounts", what="suggested tip amounts")
    if len(tips) > TIPS_MAX or tips != sorted(set(tips)) or (tips and tips[-1] > integer(params, "max_tip_amount")):
        raise bad("SUGGESTED_TIP_AMOUNTS_INVALID")
    names = ("title", "description", "currency", "start_parameter")
    return {name: text_of(params, name) for name in names} | {"total_amount": total}


def _total(prices: list[object]) -> int:
    total = 0
    for price in prices:
        if not isinstance(price, dict):
            raise bad("can't parse labeled price: LabeledPrice must be an Object")
        if not price.get("label"):
            raise bad("can't parse labeled price: LabeledPrice label must be non-empty")
        total += integer(price, "amount")
    return total


def send_game(world: World, call: SimCall) -> object:
    name = text_of(call.params, "game_short_name")
    if not name:
        raise bad("game_short_name is empty")
    game = call.bot.games.get(name)
    if game is None:
        game = call.bot.games[name] = Game(title=name)
    return _post(world, call, {"game": game.as_json(world)}, text=name)


def set_game_score(world: World, call: SimCall) -> object:
    """A score that is not higher than the last is refused, unless it is forced."""
    user = world.users.get(integer(call.params, "user_id"))
    if user is None:
        raise bad("user not found")
    score = integer(call.params, "score", -1)
    if score < 0:
        raise bad("wrong game score specified")
    game, chat, message = _game(call, world)
    before = game.scores.get(user.id)
    if before is not None and score <= before and not flag(call.params, "force"):
        raise bad("BOT_SCORE_NOT_MODIFIED")
    game.scores[user.id] = score
    world.note_applied(call, chat_id=chat.id if chat is not None else 0, text=str(score))
    if message is None:
        return True
    if not flag(call.params, "disable_edit_message"):
        message["game"] = game.as_json(world)
        message["edit_date"] = int(call.now)
    return message


def game_scores(world: World, call: SimCall) -> object:
    """Somebody's place with two neighbours on either side, and the first three."""
    user_id = integer(call.params, "user_id")
    if user_id not in world.users:
        raise bad("user not found")
    game, _, _ = _game(call, world)
    rows = list(enumerate(sorted(game.scores.items(), key=lambda row: -row[1]), start=1))
    own = next((place for place, (who, _) in rows if who == user_id), 1)
    return [
        {"position": place, "user": world.users[who].as_json(), "score": score}
        for place, (who, score) in rows
        if place <= 3 or abs(place - own) <= 2
    ]


def _game(call: SimCall, world: World) -> tuple[Game, SimChat | None, Json | None]:
    if call.params.get("inline_message_id"):
        games = list(call.bot.games.values()) or [call.bot.games.setdefault("game", Game(title="game"))]
        return games[-1], None, None
    chat = known_chat(world, call.bot, call.params)
    message = chat.messages.get(integer(call.params, "message_id"))
    if message is None:
        raise bad("message not found")
    shown = message.get("game")
    named = [game for game in call.bot.games.values() if isinstance(shown, dict) and game.title == shown["title"]]
    if not named:
        raise bad("message must be a game")
    return named[0], chat, message


def send_paid_media(world: World, call: SimCall) -> object:
    media = sequence(call.params, "media", what="InputPaidMedia")
    if not media:
        raise bad("there are no media in the request")
    if len(media) > 10:
        raise bad("too many media specified")
    stars = integer(call.params, "star_count")
    if not 0 < stars <= 25_000:
        raise bad("STARS_AMOUNT_INVALID")
    items = [album_item(world, call, item) for item in media]
    paid = [{"type": "photo" if "photo" in item else "video", **item} for item in items]
    content: Json = {"paid_media": {"star_count": stars, "paid_media": paid}, **caption(world, call.params)}
    message = _post(world, call, content | hidden(call.params), text=str(content.get("caption", "")))
    chat = known_chat(world, call.bot, call.params)
    _keep_bill(chat, message, call.params)
    return message


CHECKLIST_TITLE_MAX = 255
TASKS_MAX = 30
TASK_MAX = 100


def checklist(world: World, params: Params, before: Json | None = None) -> Json:
    """A Checklist as the chat shows it. Of one that is changed, tasks that stay keep who has done them."""
    given = mapping(params, "checklist", what="InputChecklist") or {}
    tasks = sequence(given, "tasks", what="InputChecklistTask")
    title, entities = words(world, given, "title", mode_field="parse_mode", entities_field="title_entities")
    if not title or not tasks:
        raise bad("can't parse InputChecklist: it needs a title and tasks")
    if len(title) > CHECKLIST_TITLE_MAX or len(tasks) > TASKS_MAX:
        raise bad("TODO_ITEMS_TOO_MUCH" if len(tasks) > TASKS_MAX else "checklist title is too long")
    found: Json = {"title": title, "tasks": list(checklist_tasks(world, tasks, before))}
    if entities:
        found["title_entities"] = entities
    return found | {
        name: True for name in ("others_can_add_tasks", "others_can_mark_tasks_as_done") if flag(given, name)
    }


def checklist_tasks(world: World, tasks: list[object], before: Json | None = None) -> Iterator[Json]:
    held = (before or {}).get("tasks")
    known = {integer(one, "id"): one for one in held if isinstance(one, dict)} if isinstance(held, list) else {}
    seen: set[int] = set()
    for one in tasks:
        if not isinstance(one, dict) or integer(one, "id") <= 0 or integer(one, "id") in seen:
            raise bad(
                "TODO_ITEM_DUPLICATE" if isinstance(one, dict) and integer(one, "id") in seen else "invalid task id"
            )
        number = integer(one, "id")
        seen.add(number)
        text, entities = words(world, one, "text", mode_field="parse_mode", entities_field="text_entities")
        if not 0 < len(text) <= TASK_MAX:
            raise bad("checklist task text is too long" if text else "checklist task text must be non-empty")
        done = {name: held for name, held in known.get(number, {}).items() if name.startswith("complet")}
        yield {"id": number, "text": text, **({"text_entities": entities} if entities else {}), **done}


def send_checklist(world: World, call: SimCall) -> object:
    if not call.params.get("business_connection_id"):
        raise bad("business connection not found")
    return _post(world, call, {"checklist": checklist(world, call.params)})


def send_anything(world: World, call: SimCall) -> object:
    """A send this version does not know: a message with whatever text it has. New Bot API versions work on their first day."""
    text = text_of(call.params, "text") or text_of(call.params, "caption")
    return _post(world, call, {"text": text} if text else {}, text=text)


def forward_message(world: World, call: SimCall) -> object:
    chat, source = writable_chat(world, call.bot, call.params), known_chat(world, call.bot, call.params, "from_chat_id")
    original = source.messages.get(integer(call.params, "message_id"))
    if original is None:
        raise bad("message to forward not found")
    if not _is_free(source, original):
        raise bad("the message can't be forwarded")
    content = _starting_at(call, _forwarded(original))
    return post(world, call, chat, content, text=_shown(original))


def _starting_at(call: SimCall, content: Json) -> Json:
    """A video that is taken elsewhere may begin at another second."""
    face, second = content.get("video"), integer(call.params, "video_start_timestamp")
    return {**content, "video": {**face, "start_timestamp": second}} if isinstance(face, dict) and second else content


def copy_message(world: World, call: SimCall) -> object:
    chat, source = writable_chat(world, call.bot, call.params), known_chat(world, call.bot, call.params, "from_chat_id")
    original = source.messages.get(integer(call.params, "message_id"))
    if original is None:
        raise bad("message to copy not found")
    if not _is_free(source, original):
        raise bad("the message can't be copied")
    content = content_of(original)
    if "caption" in call.params:
        content.pop("caption", None)
        content.pop("caption_entities", None)
        content.pop("show_caption_above_media", None)
        content.update(caption(world, call.params))
        content.update(hidden(call.params))
    content = _starting_at(call, content)
    text = str(content.get("caption") or _shown(content))
    return {"message_id": post(world, call, chat, content, text=text)["message_id"]}


# Told by Telegram itself, and by no one else.
_SERVICE = frozenset({
    "new_chat_members", "left_chat_member", "new_chat_title", "new_chat_photo", "delete_chat_photo", "pinned_message",
    "forum_topic_created", "forum_topic_edited", "forum_topic_closed", "forum_topic_reopened", "gift", "unique_gift",
    "refunded_payment", "checklist_tasks_done", "checklist_tasks_added", "suggested_post_approved", "web_app_data",
    "suggested_post_approval_failed", "suggested_post_declined", "suggested_post_paid", "migrate_to_chat_id",
    "message_auto_delete_timer_changed", "migrate_from_chat_id", "successful_payment",
})  # fmt: skip


def _is_free(source: SimChat, message: Json) -> bool:
    """May it be taken elsewhere? Not a protected one, and not a service message."""
    is_protected = bool(message.get("has_protected_content")) or bool(source.more.get("has_protected_content"))
    return not is_protected and _SERVICE.isdisjoint(message)


def forward_messages(world: World, call: SimCall) -> object:
    return _several(world, call, _forwarded, "forward")


def copy_messages(world: World, call: SimCall) -> object:
    is_bare = flag(call.params, "remove_caption")
    return _several(world, call, _uncaptioned if is_bare else content_of, "copy")


def _uncaptioned(message: Json) -> Json:
    return {key: held for key, held in content_of(message).items() if key not in {"caption", "caption_entities"}}


def _several(world: World, call: SimCall, transform: Callable[[Json], Json], verb: str) -> object:
    chat, source = writable_chat(world, call.bot, call.params), known_chat(world, call.bot, call.params, "from_chat_id")
    ids = integers(call.params, "message_ids", what="message identifiers")
    if not ids:
        raise bad("message identifiers are not specified")
    if len(ids) > IDS_MAX:
        raise bad(f"too many messages to {verb}")
    if any(later <= earlier for earlier, later in itertools.pairwise(ids)):
        raise bad("message identifiers must be in a strictly increasing order")
    # Missing ones are skipped, so that the result may be shorter (docs/telegram.md, Method classes).
    found = [source.messages[message_id] for message_id in ids if message_id in source.messages]
    originals = [one for one in found if _is_free(source, one)]
    if not originals:
        raise bad(f"there are no messages to {verb}")
    charge(world, call, chat, len(originals))
    posted = [post(world, call, chat, transform(one), text=_shown(one), amount=0) for one in originals]
    return [{"message_id": message["message_id"]} for message in posted]


_PLAIN = {
    "poll": "polls", "dice": "dice", "game": "games", "location": "locations", "venue": "venues", "contact": "contacts",
    "paid_media": "paid media", "checklist": "checklists",
}  # fmt: skip


def _post(world: World, call: SimCall, content: Json, *, text: str = "") -> Json:
    what = _PLAIN.get(next(iter(content), ""), "text messages")
    return post(world, call, writable_chat(world, call.bot, call.params, what=what), content, text=text)


def content_of(message: Json) -> Json:
    return {key: held for key, held in message.items() if key not in _AROUND}


def _forwarded(message: Json) -> Json:
    first = origin(message)
    # Beside the origin stand the fields that it replaced.
    old = {
        "sender_user": "forward_from", "sender_user_name": "forward_sender_name", "sender_chat": "forward_from_chat",
        "chat": "forward_from_chat", "message_id": "forward_from_message_id", "author_signature": "forward_signature",
        "date": "forward_date",
    }  # fmt: skip
    return {**content_of(message), "forward_origin": first, **{old[name]: first[name] for name in old if name in first}}


def _shown(message: Json) -> str:
    return str(message.get("text") or message.get("caption") or "")


SENDS: dict[str, Handler] = {
    "sendMessage": send_message,
    "sendPhoto": send_media("photo"),
    "sendDocument": send_media("document"),
    "sendAudio": send_media("audio"),
    "sendVideo": send_media("video"),
    "sendAnimation": send_media("animation"),
    "sendVoice": send_media("voice"),
    "sendVideoNote": send_media("video_note"),
    "sendSticker": send_media("sticker"),
    "sendMessageDraft": send_draft,
    "sendRichMessageDraft": send_draft,
    "sendRichMessage": send_rich,
    "sendMediaGroup": send_media_group,
    "sendPaidMedia": send_paid_media,
    "sendLivePhoto": send_live_photo,
    "sendLocation": send_location,
    "sendVenue": send_venue,
    "sendContact": send_contact,
    "sendPoll": send_poll,
    "sendDice": send_dice,
    "sendInvoice": send_invoice,
    "sendGame": send_game,
    "sendChecklist": send_checklist,
    "forwardMessage": forward_message,
    "forwardMessages": forward_messages,
    "copyMessage": copy_message,
    "copyMessages": copy_messages,
}
