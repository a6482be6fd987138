"""Files inside requests: uploaded, attached, by file_id or by URL; checked for size, shown as Telegram shows them.

See docs/telegram.md, Sizes and files.
"""

from urllib.parse import urlsplit

from peik.testing.answer import Json, Params, Refusal, UploadedFile, bad, integer, text_of
from peik.testing.options import MIB
from peik.testing.posting import caption
from peik.testing.world import KINDS, SimCall, StoredFile, World

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
    stored = call.bot.files.by_id(text)
    if stored is None:
        raise bad("wrong file identifier/HTTP URL specified")
    if stored.kind != kind:
        names = (stored.kind.replace("_", " ").title(), kind.replace("_", " ").title())
        raise bad(f"can't use file of type {names[0].replace(' ', '')} as {names[1].replace(' ', '')}")
    return stored


def store(world: World, call: SimCall, upload: UploadedFile, kind: str) -> StoredFile:
    """Put an upload on the bot's shelf, if its size is allowed."""
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
