"""Stickers and their sets: made, filled, ordered, emptied; custom emoji. Every bot sees every set, and changes its own alone."""

from peik.testing.answer import Json, UploadedFile, bad, flag, integer, mapping, sequence, text_of
from peik.testing.media import kept, look, take, taken
from peik.testing.sends import Handler
from peik.testing.world import SimBot, SimCall, StickerSet, StoredFile, World

SET_MAX = 120
EMOJI_MAX = 20
KEYWORDS_MAX = 20
_FORMATS = {"static": ("image/webp", "image/png", "image/jpeg"), "animated": ("application/x-tgsticker",),
            "video": ("video/webm",)}  # fmt: skip
_KINDS = frozenset({"regular", "mask", "custom_emoji"})


def shown(stored: StoredFile) -> Json:
    """A Sticker."""
    face: Json = {**stored.as_json(), **stored.face}
    return face if stored.thumb is None else face | {"thumbnail": stored.thumb}


def get_set(world: World, call: SimCall) -> object:
    one = _set(world, call)
    face: Json = {"name": one.name, "title": one.title, "sticker_type": one.kind}
    face["stickers"] = [shown(_of(call.bot, sticker)) for sticker in one.stickers]
    return face if one.thumbnail is None else face | {"thumbnail": one.thumbnail}


def _of(bot: SimBot, sticker: StoredFile) -> StoredFile:
    """The file as this bot may send it: bots may send the stickers of every set."""
    bot.files.by_id.setdefault(sticker.file_id, sticker)
    return sticker


def _set(world: World, call: SimCall, field: str = "name") -> StickerSet:
    name = text_of(call.params, field)
    found = world.sticker_sets.get(name.lower())
    if found is None:
        raise bad("STICKERSET_INVALID")
    return found


def _own_set(world: World, call: SimCall, field: str = "name") -> StickerSet:
    found = _set(world, call, field)
    if found.owner_id != call.bot.id:
        raise bad("STICKERSET_INVALID")
    return found


def _own_sticker(world: World, call: SimCall, field: str = "sticker") -> tuple[StickerSet, StoredFile]:
    file_id = text_of(call.params, field)
    if not file_id:
        raise bad("sticker is not specified")
    stored = call.bot.files.by_id.get(file_id)
    name = str(stored.face.get("set_name", "")) if stored is not None else ""
    found = world.sticker_sets.get(name.lower())
    if stored is None:
        raise bad("wrong file identifier/HTTP URL specified")
    if found is None or found.owner_id != call.bot.id:
        raise bad("STICKER_INVALID" if found is None else "STICKERSET_INVALID")
    return found, stored


def create_set(world: World, call: SimCall) -> object:
    name, title = text_of(call.params, "name"), text_of(call.params, "title")
    kind = text_of(call.params, "sticker_type") or ("mask" if flag(call.params, "contains_masks") else "regular")
    if not title:
        raise bad("sticker set title can't be empty")
    _check_name(call.bot, name)
    if name.lower() in world.sticker_sets:
        raise bad("sticker set name is already occupied")
    if kind not in _KINDS:
        raise bad("unsupported sticker type specified")
    _check_user(world, call)
    given = (
        sequence(call.params, "stickers", what="InputSticker") if "stickers" in call.params else [_old_sticker(call)]
    )
    if not given:
        raise bad(
            "sticker set must contain at least one sticker" if given == [] else "expected an Array of InputSticker"
        )
    if len(given) > 50:
        raise bad("too many stickers specified")
    made = StickerSet(name=name, title=title, kind=kind, owner_id=call.bot.id,
                      needs_repainting=flag(call.params, "needs_repainting"))  # fmt: skip
    made.stickers = [_sticker(world, call, made, one) for one in given]
    world.sticker_sets[name.lower()] = made
    world.note_applied(call, text=name)
    return True


def _check_name(bot: SimBot, name: str) -> None:
    tail = f"_by_{bot.user.username}"
    if not name or not name[0].isalpha() or not name.replace("_", "").isalnum() or "__" in name or len(name) > 64:
        raise bad("invalid sticker set name is specified")
    if not name.lower().endswith(tail.lower()):
        raise bad("invalid sticker set name is specified")


def _check_user(world: World, call: SimCall) -> None:
    user = world.users.get(integer(call.params, "user_id"))
    if user is None and not world.options.accept_any_chat:
        raise bad("user not found")
    if user is not None and user.is_bot:
        raise bad("USER_IS_BOT")


def _old_sticker(call: SimCall) -> Json:
    """One sticker as it was given before Bot API 6.6: in fields of its own."""
    fields = {"png_sticker": "static", "tgs_sticker": "animated", "webm_sticker": "video"}
    for field, form in fields.items():
        if field in call.files or call.params.get(field):
            emojis = [text_of(call.params, "emojis")] if call.params.get("emojis") else []
            return {"sticker": call.params.get(field) or f"attach://{field}", "format": form, "emoji_list": emojis,
                    "mask_position": call.params.get("mask_position")}  # fmt: skip
    raise bad("expected an Array of InputSticker")


def _sticker(world: World, call: SimCall, owner: StickerSet, given: object) -> StoredFile:
    """One InputSticker: a fresh file in its set, with its emoji."""
    if not isinstance(given, dict):
        raise bad("can't parse sticker: InputSticker must be an Object")
    form = _form(text_of(given, "format") or text_of(call.params, "sticker_format"))
    emojis = _emojis(given)
    source = take(world, call, given.get("sticker"), None, field="sticker", kind="sticker", params=given)
    # The same bytes in another set are another sticker.
    content = source.content if source.content is not None else b"?"
    upload = UploadedFile(filename=source.filename, content=content, content_type=source.content_type)
    stored = kept(call.bot, upload, "sticker", given)
    seen = "application/x-tgsticker" if stored.face["is_animated"] else "video/webm" if stored.face["is_video"] else ""
    if form != "static" and seen and seen not in _FORMATS[form]:
        raise bad("STICKER_TGS_NOTGS" if form == "animated" else "STICKER_VIDEO_NOWEBM")
    sides = (stored.face["width"], stored.face["height"])
    if owner.kind == "custom_emoji" and form == "static" and sides != (100, 100):
        raise bad("STICKER_PNG_DIMENSIONS")
    stored.face |= {"type": owner.kind, "emoji": emojis[0], "set_name": owner.name}
    if owner.kind == "custom_emoji":
        stored.face["custom_emoji_id"] = _emoji_id(world)
        stored.face["needs_repainting"] = owner.needs_repainting
    mask = mapping(given, "mask_position", what="MaskPosition") if given.get("mask_position") else None
    if mask is not None and owner.kind == "mask":
        stored.face["mask_position"] = mask
    return stored


def _form(given: str) -> str:
    if given and given not in _FORMATS:
        raise bad("invalid sticker format specified")
    return given or "static"


def _emojis(given: Json) -> list[str]:
    found = sequence(given, "emoji_list", what="string") if "emoji_list" in given else None
    if not found:
        raise bad("emoji list must be non-empty" if found == [] else "expected an Array of string")
    if len(found) > EMOJI_MAX or not all(isinstance(one, str) and one for one in found):
        raise bad("STICKER_EMOJI_INVALID")
    return [str(one) for one in found]


def add(world: World, call: SimCall) -> object:
    owner = _own_set(world, call)
    _check_user(world, call)
    if len(owner.stickers) >= SET_MAX:
        raise bad("STICKERS_TOO_MUCH")
    given = mapping(call.params, "sticker", what="InputSticker") if "sticker" in call.params else _old_sticker(call)
    owner.stickers.append(_sticker(world, call, owner, given))
    return _applied(world, call, owner)


def replace(world: World, call: SimCall) -> object:
    owner, old = _own_sticker(world, call, "old_sticker")
    given = mapping(call.params, "sticker", what="InputSticker")
    fresh = _sticker(world, call, owner, given)
    owner.stickers = [fresh if one is old else one for one in owner.stickers]
    return _applied(world, call, owner)


def set_position(world: World, call: SimCall) -> object:
    owner, sticker = _own_sticker(world, call)
    position = integer(call.params, "position", -1)
    if position < 0:
        raise bad("wrong sticker position specified")
    owner.stickers.remove(sticker)
    owner.stickers.insert(position, sticker)
    return _applied(world, call, owner)


def delete(world: World, call: SimCall) -> object:
    owner, sticker = _own_sticker(world, call)
    if sticker not in owner.stickers:
        raise bad("STICKERSET_NOT_MODIFIED")
    owner.stickers.remove(sticker)
    return _applied(world, call, owner)


def set_emojis(world: World, call: SimCall) -> object:
    owner, sticker = _own_sticker(world, call)
    sticker.face["emoji"] = _emojis(call.params)[0]
    return _applied(world, call, owner)


def set_keywords(world: World, call: SimCall) -> object:
    owner, _ = _own_sticker(world, call)
    keywords = sequence(call.params, "keywords", what="keywords") or []
    if len(keywords) > KEYWORDS_MAX or not all(isinstance(one, str) for one in keywords):
        raise bad("keyword must be a string")
    return _applied(world, call, owner)


def set_mask(world: World, call: SimCall) -> object:
    owner, sticker = _own_sticker(world, call)
    mask = mapping(call.params, "mask_position", what="mask position")
    if mask is None:
        sticker.face.pop("mask_position", None)
    else:
        if mask.get("point") not in {"forehead", "eyes", "mouth", "chin"}:
            raise bad("can't parse mask position: wrong point specified in MaskPosition")
        sticker.face["mask_position"] = mask
    return _applied(world, call, owner)


def set_title(world: World, call: SimCall) -> object:
    owner = _own_set(world, call)
    title = text_of(call.params, "title")
    if not title:
        raise bad("sticker set title can't be empty")
    owner.title = title
    return _applied(world, call, owner)


def set_thumbnail(world: World, call: SimCall) -> object:
    owner = _own_set(world, call)
    _check_user(world, call)
    _form(text_of(call.params, "format"))
    has_file = "thumbnail" in call.files or "thumb" in call.files or call.params.get("thumbnail")
    if not has_file:
        owner.thumbnail = None
        return _applied(world, call, owner)
    stored = taken(world, call, "thumb" if "thumb" in call.files else "thumbnail", "sticker")
    seen = look(stored.content or b"")
    sides = {name: stored.face[name] for name in ("width", "height")}
    # Where nothing says what the picture is, as behind an address, it is taken as it should be.
    if seen.mime.startswith("image/") and (seen.width, seen.height) != (100, 100):
        raise bad("STICKER_THUMB_PNG_NOPNG")
    owner.thumbnail = {**stored.as_json(), **sides}
    return _applied(world, call, owner)


def set_emoji_thumbnail(world: World, call: SimCall) -> object:
    owner = _own_set(world, call)
    wanted = text_of(call.params, "custom_emoji_id")
    if owner.kind != "custom_emoji" or (
        wanted and wanted not in {one.face["custom_emoji_id"] for one in owner.stickers}
    ):
        raise bad("STICKERSET_INVALID" if owner.kind != "custom_emoji" else "CUSTOM_EMOJI_INVALID")
    chosen = next((one for one in owner.stickers if one.face["custom_emoji_id"] == wanted), None)
    owner.thumbnail = chosen.thumb if chosen is not None else None
    return _applied(world, call, owner)


def delete_set(world: World, call: SimCall) -> object:
    owner = _own_set(world, call)
    del world.sticker_sets[owner.name.lower()]
    return _applied(world, call, owner)


def upload(world: World, call: SimCall) -> object:
    _check_user(world, call)
    _form(text_of(call.params, "sticker_format"))
    field = next((one for one in ("sticker", "png_sticker") if one in call.files or call.params.get(one)), "sticker")
    return taken(world, call, field, "sticker").as_json()


def custom_emoji(world: World, call: SimCall) -> object:
    """The stickers of those ids; unknown ones are left out."""
    ids = sequence(call.params, "custom_emoji_ids", what="custom emoji identifiers") or []
    if not all(isinstance(one, str) for one in ids):
        raise bad("custom emoji identifier must be of type String")
    if len(ids) > 200:
        raise bad("too many custom emoji identifiers specified")
    by_id = {
        one.face["custom_emoji_id"]: one
        for owner in world.sticker_sets.values()
        if owner.kind == "custom_emoji"
        for one in owner.stickers
    }
    return [shown(_of(call.bot, by_id[one])) for one in ids if one in by_id]


def add_set(
    world: World, bot: SimBot, name: str, files: list[UploadedFile], *, title: str, kind: str, emoji_ids: list[str]
) -> StickerSet:
    """A set that belongs to no bot."""
    made = StickerSet(name=name, title=title or name, kind=kind)
    for place, file in enumerate(files):
        stored = kept(bot, file, "sticker", {})
        stored.face |= {"type": kind, "emoji": "🙂", "set_name": name}
        if kind == "custom_emoji":
            stored.face["custom_emoji_id"] = emoji_ids[place] if place < len(emoji_ids) else _emoji_id(world)
        made.stickers.append(stored)
    world.sticker_sets[name.lower()] = made
    return made


def _emoji_id(world: World) -> str:
    return str(5_000_000_000_000_000_000 + world.chance.getrandbits(58))


# What a topic may have as its icon, as in Telegram's own set.
TOPIC_ICONS = ("📰", "💡", "⚡️", "🎙", "🔝", "🗣", "🆒", "❗️", "📝", "📆", "📁", "🔎", "📣", "🔥", "❤️", "❓", "📈", "📉")
_ICONS = "topics"


def topic_icons(world: World, call: SimCall) -> object:
    if _ICONS not in world.sticker_sets:
        owner = StickerSet(name="Topics", title="Topic Icons", kind="custom_emoji")
        for place, emoji in enumerate(TOPIC_ICONS):
            file = UploadedFile(filename=f"{place}.tgs", content=emoji.encode().ljust(24_000, b" "))
            stored = kept(call.bot, file, "sticker", {})
            stored.face |= {"type": "custom_emoji", "is_animated": True, "emoji": emoji, "set_name": owner.name,
                            "custom_emoji_id": str(5_417_915_203_100_613_993 + place)}  # fmt: skip
            still = UploadedFile(filename=f"{place}.webp", content=emoji.encode().ljust(3_000, b" "))
            small = call.bot.files.put("photo", still)
            stored.thumb = {**small.as_json(), "width": 128, "height": 128}
            owner.stickers.append(stored)
        world.sticker_sets[_ICONS] = owner
    return [shown(_of(call.bot, one)) for one in world.sticker_sets[_ICONS].stickers]


def _applied(world: World, call: SimCall, owner: StickerSet) -> bool:
    world.note_applied(call, text=owner.name)
    return True


STICKERS: dict[str, Handler] = {
    "getStickerSet": get_set,
    "getCustomEmojiStickers": custom_emoji,
    "getForumTopicIconStickers": topic_icons,
    "uploadStickerFile": upload,
    "createNewStickerSet": create_set,
    "addStickerToSet": add,
    "replaceStickerInSet": replace,
    "setStickerPositionInSet": set_position,
    "deleteStickerFromSet": delete,
    "setStickerEmojiList": set_emojis,
    "setStickerKeywords": set_keywords,
    "setStickerMaskPosition": set_mask,
    "setStickerSetTitle": set_title,
    "setStickerSetThumbnail": set_thumbnail,
    "setStickerSetThumb": set_thumbnail,
    "setCustomEmojiStickerSetThumbnail": set_emoji_thumbnail,
    "deleteStickerSet": delete_set,
}
