"""The methods that put something new into a chat. Content is checked first, then the chat, then the limits."""

import itertools
from collections.abc import Callable
from urllib.parse import urlsplit

from peik.testing.answer import (
    Json,
    Params,
    Refusal,
    UploadedFile,
    bad,
    flag,
    integer,
    integers,
    mapping,
    number,
    sequence,
    text_of,
)
from peik.testing.faults import MIB
from peik.testing.posting import caption, charge, envelope, known_chat, message_text, post, writable_chat
from peik.testing.world import KINDS, SimCall, StoredFile, World

# Files inside requests: uploaded, attached, by file_id or by URL; checked for size, shown as Telegram shows them.
#
# See docs/telegram.md, Sizes and files.


CAPTIONED = frozenset({"photo", "document", "audio", "video", "animation", "voice"})
PHOTO_BYTES_MAX = 10 * MIB
_SIZED = frozenset({"video", "animation", "sticker"})


def taken(world: World, call: SimCall, field: str, kind: str) -> StoredFile:
    """The file of a request's field, stored if it is new."""
    return _take(world, call, call.params.get(field), call.files.get(field), field=field, kind=kind)


def album_item(world: World, call: SimCall, item: object) -> Json:
    """The content of one InputMedia."""
    if not isinstance(item, dict):
        raise bad("can't parse InputMedia: expected an Object")
    kind = str(item.get("type", ""))
    if kind not in KINDS:
        raise bad(f"can't parse InputMedia: type {kind or 'must be specified'}")
    stored = _take(world, call, item.get("media"), None, field="media", kind=kind)
    return {**described(stored, item), **caption(item)}


def described(stored: StoredFile, params: Params) -> Json:
    """The part of a Message that shows this file."""
    face = stored.as_json()
    kind = stored.kind
    if kind == "photo":
        return {"photo": [{**face, "width": 1280, "height": 720}]}
    if kind in {"document", "audio", "video", "animation"}:
        face |= {"file_name": stored.filename, "mime_type": stored.content_type}
    if kind in {"audio", "video", "animation", "voice", "video_note"}:
        face["duration"] = integer(params, "duration")
    if kind in _SIZED:
        face |= {"width": integer(params, "width", 512), "height": integer(params, "height", 512)}
    if kind == "video_note":
        face["length"] = integer(params, "length", 240)
    if kind == "sticker":
        face |= {"type": "regular", "is_animated": False, "is_video": False}
    if kind == "audio":
        face |= {name: text_of(params, name) for name in ("performer", "title") if params.get(name)}
    # An animation is shown as a document too, for clients that know no animations.
    return {kind: face, "document": face} if kind == "animation" else {kind: face}


def _take(
    world: World, call: SimCall, value: object, upload: UploadedFile | None, *, field: str, kind: str
) -> StoredFile:
    text = value if isinstance(value, str) else ""
    if text.startswith("attach://"):
        upload = call.files.get(text.removeprefix("attach://"))
    if upload is not None:
        return store(world, call, upload, kind)
    if not text or text.startswith("attach://"):
        raise bad(f"there is no {field.replace('_', ' ')} in the request")
    if text.startswith(("http://", "https://")):
        return _fetched(call, text, kind)
    if text.startswith("file://") and world.options.mode == "local":
        return call.bot.files.put(kind, UploadedFile(filename=text.rpartition("/")[2], content=b""))
    stored = call.bot.files.by_id.get(text)
    if stored is None:
        raise bad("wrong file identifier/HTTP URL specified")
    if stored.kind != kind:
        names = (stored.kind.replace("_", " ").title(), kind.replace("_", " ").title())
        raise bad(f"can't use file of type {names[0].replace(' ', '')} as {names[1].replace(' ', '')}")
    return stored


def store(world: World, call: SimCall, upload: UploadedFile, kind: str) -> StoredFile:
    """Put an upload on the bot's collection, if its size is allowed."""
    size = len(upload.content)
    if size == 0:
        raise bad("file must be non-empty")
    if size > world.options.upload_bytes_max:
        raise Refusal(413, "Request Entity Too Large")
    if kind == "photo" and size > PHOTO_BYTES_MAX:
        raise bad(f"file of size {size} bytes is too big for a photo; the maximum size is {PHOTO_BYTES_MAX} bytes")
    return call.bot.files.put(kind, upload)


def _fetched(call: SimCall, url: str, kind: str) -> StoredFile:
    """A file by URL. Nothing is fetched: the address stands for its content."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise bad("wrong HTTP URL specified")
    filename = parts.path.rpartition("/")[2] or "file"
    return call.bot.files.put(kind, UploadedFile(filename=filename, content=url.encode()))


Handler = Callable[[World, SimCall], object]

IDS_MAX = 100

# What surrounds a message; the rest is its content, and that is what a copy takes along.
_AROUND = frozenset(
    {
        "message_id",
        "from",
        "sender_chat",
        "chat",
        "date",
        "edit_date",
        "reply_to_message",
        "reply_markup",
        "message_thread_id",
    }
    | {"is_topic_message", "business_connection_id", "media_group_id", "forward_origin", "forward_date"}
)


def send_message(world: World, call: SimCall) -> object:
    content = message_text(call.params)
    return post(world, call, writable_chat(world, call.bot, call.params), content, text=str(content["text"]))


def send_media(kind: str) -> Handler:
    """sendPhoto, sendDocument and their like."""

    def send(world: World, call: SimCall) -> object:
        stored = taken(world, call, kind, kind)
        content = described(stored, call.params)
        if kind in CAPTIONED:
            content.update(caption(call.params))
        chat = writable_chat(world, call.bot, call.params, what=f"{kind.replace('_', ' ')}s")
        return post(world, call, chat, content, text=str(content.get("caption", "")))

    return send


def send_media_group(world: World, call: SimCall) -> object:
    media = sequence(call.params, "media", what="InputMedia")
    if not media:
        raise bad("there are no media in the request")
    if not 2 <= len(media) <= 10:
        raise bad("group of media must contain 2-10 items")
    items = [album_item(world, call, item) for item in media]
    kinds = {str(item.get("type")) for item in media if isinstance(item, dict)}
    if kinds - {"photo", "video", "live_photo"} and len(kinds) > 1:
        raise bad("can't use the media of the specified type in the album")
    chat = writable_chat(world, call.bot, call.params, what="media messages")
    envelope(call, chat)  # what is wrong with it must show before anything is counted
    charge(world, call, chat, len(items))
    group_id = str(world.chance.getrandbits(62))
    return [
        post(world, call, chat, {"media_group_id": group_id, **item}, text=str(item.get("caption", "")), amount=0)
        for item in items
    ]


def send_location(world: World, call: SimCall) -> object:
    return _post(world, call, {"location": _location(call.params)})


def send_venue(world: World, call: SimCall) -> object:
    venue = {
        "location": _location(call.params),
        "title": text_of(call.params, "title"),
        "address": text_of(call.params, "address"),
    }
    return _post(world, call, {"venue": venue, "location": venue["location"]}, text=text_of(call.params, "title"))


def _location(params: Params) -> Json:
    latitude, longitude = number(params, "latitude"), number(params, "longitude")
    if latitude is None:
        raise bad("latitude is empty")
    if longitude is None:
        raise bad("longitude is empty")
    place: Json = {"latitude": latitude, "longitude": longitude}
    live_s = integer(params, "live_period")
    return place | {"live_period": live_s} if live_s else place


def send_contact(world: World, call: SimCall) -> object:
    names = ("phone_number", "first_name", "last_name", "vcard")
    contact: Json = {name: text_of(call.params, name) for name in names if call.params.get(name)}
    for name in names[:2]:
        if name not in contact:
            raise bad(f"{name.replace('_', ' ')} is empty")
    return _post(world, call, {"contact": contact})


def send_poll(world: World, call: SimCall) -> object:
    question = text_of(call.params, "question")
    if not question:
        raise bad("poll question must be non-empty")
    options = sequence(call.params, "options", what="InputPollOption") or []
    if not options:
        raise bad("poll must have at least 1 option")
    texts = [str(option.get("text", "")) if isinstance(option, dict) else str(option) for option in options]
    poll: Json = {
        "id": str(world.chance.getrandbits(60)),
        "question": question,
        "options": [{"persistent_id": str(place), "text": text, "voter_count": 0} for place, text in enumerate(texts)],
        "total_voter_count": 0,
        "is_closed": flag(call.params, "is_closed"),
        "is_anonymous": flag(call.params, "is_anonymous") if "is_anonymous" in call.params else True,
        "type": text_of(call.params, "type") or "regular",
        "allows_multiple_answers": flag(call.params, "allows_multiple_answers"),
        "allows_revoting": flag(call.params, "allows_revoting"),
        "members_only": flag(call.params, "members_only"),
    }
    return _post(world, call, {"poll": poll}, text=question)


def send_dice(world: World, call: SimCall) -> object:
    emoji = text_of(call.params, "emoji") or "🎲"
    faces = {"🎲": 6, "🎯": 6, "🎳": 6, "🏀": 5, "⚽": 5, "🎰": 64}
    return _post(world, call, {"dice": {"emoji": emoji, "value": world.chance.randint(1, faces.get(emoji, 6))}})


def send_invoice(world: World, call: SimCall) -> object:
    for name in ("title", "description", "payload", "currency", "prices"):
        if not call.params.get(name):
            raise bad(f"{name} is empty" if name != "prices" else "there must be at least one price")
    prices = sequence(call.params, "prices", what="LabeledPrice") or []
    total = sum(integer(price, "amount") for price in prices if isinstance(price, dict))
    names = ("title", "description", "currency", "start_parameter")
    invoice: Json = {name: text_of(call.params, name) for name in names} | {"total_amount": total}
    return _post(world, call, {"invoice": invoice}, text=str(invoice["title"]))


def send_game(world: World, call: SimCall) -> object:
    name = text_of(call.params, "game_short_name")
    if not name:
        raise bad("game_short_name is empty")
    return _post(world, call, {"game": {"title": name, "description": "", "photo": []}}, text=name)


def send_paid_media(world: World, call: SimCall) -> object:
    media = sequence(call.params, "media", what="InputPaidMedia")
    if not media:
        raise bad("there are no media in the request")
    stars = integer(call.params, "star_count")
    if not 0 < stars <= 25_000:
        raise bad("STARS_AMOUNT_INVALID")
    items = [album_item(world, call, item) for item in media]
    paid = [{"type": "photo" if "photo" in item else "video", **item} for item in items]
    content: Json = {"paid_media": {"star_count": stars, "paid_media": paid}, **caption(call.params)}
    return _post(world, call, content, text=str(content.get("caption", "")))


def checklist(params: Params) -> Json:
    given = mapping(params, "checklist", what="InputChecklist") or {}
    tasks = sequence(given, "tasks", what="InputChecklistTask")
    if not given.get("title") or not tasks:
        raise bad("can't parse InputChecklist: it needs a title and tasks")
    return {"checklist": {"title": given["title"], "tasks": tasks}}


def send_checklist(world: World, call: SimCall) -> object:
    return _post(world, call, checklist(call.params))


def send_anything(world: World, call: SimCall) -> object:
    """A send this version does not know: a message with whatever text it has. New Bot API versions work on their first day."""
    text = text_of(call.params, "text") or text_of(call.params, "caption")
    return _post(world, call, {"text": text} if text else {}, text=text)


def forward_message(world: World, call: SimCall) -> object:
    chat, source = writable_chat(world, call.bot, call.params), known_chat(world, call.bot, call.params, "from_chat_id")
    original = source.messages.get(integer(call.params, "message_id"))
    if original is None:
        raise bad("message to forward not found")
    return post(world, call, chat, _forwarded(original), text=_shown(original))


def copy_message(world: World, call: SimCall) -> object:
    chat, source = writable_chat(world, call.bot, call.params), known_chat(world, call.bot, call.params, "from_chat_id")
    original = source.messages.get(integer(call.params, "message_id"))
    if original is None:
        raise bad("message to copy not found")
    content = _content(original)
    if "caption" in call.params:
        content.pop("caption", None)
        content.update(caption(call.params))
    return {
        "message_id": post(world, call, chat, content, text=str(content.get("caption") or _shown(content)))[
            "message_id"
        ]
    }


def forward_messages(world: World, call: SimCall) -> object:
    return _several(world, call, _forwarded, "forward")


def copy_messages(world: World, call: SimCall) -> object:
    return _several(world, call, _content, "copy")


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
    originals = [source.messages[message_id] for message_id in ids if message_id in source.messages]
    if not originals:
        raise bad(f"there are no messages to {verb}")
    charge(world, call, chat, len(originals))
    posted = [post(world, call, chat, transform(one), text=_shown(one), amount=0) for one in originals]
    return [{"message_id": message["message_id"]} for message in posted]


def _post(world: World, call: SimCall, content: Json, *, text: str = "") -> Json:
    return post(world, call, writable_chat(world, call.bot, call.params), content, text=text)


def _content(message: Json) -> Json:
    return {key: held for key, held in message.items() if key not in _AROUND}


def _forwarded(message: Json) -> Json:
    origin = {"type": "user", "sender_user": message.get("from"), "date": message["date"]}
    return {**_content(message), "forward_origin": origin}


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
    "sendMediaGroup": send_media_group,
    "sendPaidMedia": send_paid_media,
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
