"""Files inside requests: taken from uploads, file ids and addresses, checked for size, read for what they are, shown as Telegram
shows them. Small readers of our own: of each format only its head. See docs/telegram.md, Sizes and files."""

import gzip
import re
import struct
import zlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from peik.testing.answer import Json, Params, Refusal, UploadedFile, bad, flag, integer, text_of
from peik.testing.faults import MIB
from peik.testing.world import SimBot, SimCall, StoredFile, World

# What bytes say of themselves.


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is by its bytes; zero and "" where they do not say."""

    mime: str = ""
    width: int = 0
    height: int = 0
    duration: int = 0
    title: str = ""
    performer: str = ""
    has_video: bool = False
    has_sound: bool = False


def look(content: bytes) -> Look:
    try:
        return _look(content)
    except (struct.error, IndexError, ValueError, zlib.error, OSError, EOFError):
        return Look()  # cut short or broken: it says nothing


def _look(content: bytes) -> Look:
    head = content[:16]
    return _picture(content, head) or _recording(content, head) or _other(content, head)


def _picture(content: bytes, head: bytes) -> Look | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack(">II", content[16:24])
        return Look(mime="image/png", width=width, height=height)
    if head.startswith(b"\xff\xd8\xff"):
        return _jpeg(content)
    if head[:6] in {b"GIF87a", b"GIF89a"}:
        width, height = struct.unpack("<HH", content[6:10])
        return Look(mime="image/gif", width=width, height=height, duration=_gif_seconds(content))
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp(content)
    return None


def _recording(content: bytes, head: bytes) -> Look | None:
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        rate = struct.unpack("<I", content[28:32])[0]
        return Look(mime="audio/x-wav", duration=_whole((len(content) - 44) / rate if rate else 0), has_sound=True)
    if head[4:8] == b"ftyp":
        return _mp4(content)
    if head.startswith(b"\x1aE\xdf\xa3"):
        return _webm(content)
    if head.startswith(b"OggS"):
        return _ogg(content)
    if head.startswith(b"ID3") or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0):
        return _mp3(content)
    if head.startswith(b"fLaC"):
        bits = int.from_bytes(content[18:26], "big")
        rate, samples = bits >> 44, bits & ((1 << 36) - 1)
        return Look(mime="audio/flac", duration=_whole(samples / rate if rate else 0), has_sound=True)
    return None


def _other(content: bytes, head: bytes) -> Look:
    if head.startswith(b"\x1f\x8b"):
        return _tgs(content)
    if head.startswith(b"%PDF"):
        return Look(mime="application/pdf")
    return Look(mime="application/zip") if head.startswith(b"PK\x03\x04") else Look()


def _whole(seconds: float) -> int:
    return int(seconds + 0.5)


def _jpeg(content: bytes) -> Look:
    index = 2
    while index < len(content):
        if content[index] != 0xFF:
            index += 1
            continue
        marker = content[index + 1]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", content[index + 5 : index + 9])
            return Look(mime="image/jpeg", width=width, height=height)
        is_bare = marker == 0xFF or 0xD0 <= marker <= 0xD8 or marker == 0x01
        index += 1 if marker == 0xFF else 2 if is_bare else 2 + struct.unpack(">H", content[index + 2 : index + 4])[0]
    return Look(mime="image/jpeg")


def _gif_seconds(content: bytes) -> int:
    delays = re.findall(rb"\x21\xf9\x04.(..)\x00", content, re.DOTALL)
    return _whole(sum(struct.unpack("<H", delay)[0] for delay in delays) / 100)


def _webp(content: bytes) -> Look:
    kind = content[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(content[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L":
        bits = int.from_bytes(content[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (size & 0x3FFF for size in struct.unpack("<HH", content[26:30]))
    return Look(mime="image/webp", width=width, height=height)


def _boxes(content: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The boxes of an MP4, one after another: name, where its body begins and ends."""
    while start + 8 <= end:
        size, name = struct.unpack(">I4s", content[start : start + 8])
        body = start + 8
        if size == 1:
            size = struct.unpack(">Q", content[body : body + 8])[0]
            body += 8
        stop = end if size == 0 else start + size
        if stop <= start:
            return
        yield name, body, min(stop, end)
        start = stop


def _mp4(content: bytes) -> Look:
    width = height = 0
    seconds, has_video, has_sound = 0.0, False, False
    for name, body, end in _boxes(content, 0, len(content)):
        if name != b"moov":
            continue
        for inner, start, stop in _boxes(content, body, end):
            if inner == b"mvhd":
                is_long = content[start] == 1
                at = start + (20 if is_long else 12)
                scale, units = struct.unpack(">IQ" if is_long else ">II", content[at : at + (12 if is_long else 8)])
                seconds = units / scale if scale else 0.0
            elif inner == b"trak":
                track = content[start:stop]
                has_sound = has_sound or b"soun" in track
                if b"vide" in track:
                    has_video = True
                    header = next((one for one in _boxes(content, start, stop) if one[0] == b"tkhd"), None)
                    if header is not None:
                        width, height = (
                            size >> 16 for size in struct.unpack(">II", content[header[2] - 8 : header[2]])
                        )
    brand = content[8:12]
    mime = "video/quicktime" if brand == b"qt  " else "video/mp4" if has_video or not has_sound else "audio/mp4"
    return Look(
        mime=mime, width=width, height=height, duration=_whole(seconds), has_video=has_video, has_sound=has_sound
    )


def _webm(content: bytes) -> Look:
    """The first megabyte is enough: the numbers stand at the beginning."""
    head = content[: 1 << 20]
    found: dict[str, int] = {}
    for name, mark in (("width", b"\xb0"), ("height", b"\xba")):
        match = re.search(rb"\xe0[\x80-\xff\x01].{0,60}?" + mark + rb"([\x81-\x84])(.{1,4})", head, re.DOTALL)
        found[name] = int.from_bytes(match[2][: match[1][0] & 0x7F], "big") if match else 0
    length = re.search(rb"\x44\x89(?:\x84(.{4})|\x88(.{8}))", head, re.DOTALL)
    milliseconds = 0.0
    if length is not None:
        milliseconds = struct.unpack(">f", length[1])[0] if length[1] else struct.unpack(">d", length[2])[0]
    has_sound = b"A_OPUS" in head or b"A_VORBIS" in head
    return Look(
        mime="video/webm",
        duration=_whole(milliseconds / 1000),
        has_video=True,
        has_sound=has_sound,
        width=found["width"],
        height=found["height"],
    )


def _ogg(content: bytes) -> Look:
    last = content.rfind(b"OggS")
    samples = struct.unpack("<q", content[last + 6 : last + 14])[0]
    rate = 48_000
    if b"\x01vorbis" in content[:128]:
        at = content.index(b"\x01vorbis")
        rate = struct.unpack("<I", content[at + 12 : at + 16])[0]
    return Look(mime="audio/ogg", duration=_whole(samples / rate if rate else 0), has_sound=True)


_BIT_RATES = {
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_SAMPLE_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}


def _mp3(content: bytes) -> Look:
    tags: dict[str, str] = {}
    index = 0
    if content.startswith(b"ID3"):
        size = 0
        for byte in content[6:10]:
            size = size << 7 | byte & 0x7F
        tags = _id3(content[10 : 10 + size])
        index = 10 + size
    while index + 4 <= len(content) and not (content[index] == 0xFF and content[index + 1] & 0xE6 == 0xE2):
        index += 1
    if index + 4 > len(content):
        return Look()
    version, bits, rates = content[index + 1] >> 3 & 3, content[index + 2] >> 4, content[index + 2] >> 2 & 3
    rate = _SAMPLE_RATES[version][rates]
    per_frame = 1152 if version == 3 else 576
    tag = re.compile(rb"Xing|Info").search(content, index, index + 64)
    if tag is not None and content[tag.end() + 3] & 1:
        seconds = struct.unpack(">I", content[tag.end() + 4 : tag.end() + 8])[0] * per_frame / rate
    else:
        speed = _BIT_RATES[3 if version == 3 else 2][bits] * 125
        seconds = (len(content) - index) / speed if speed else 0.0
    return Look(
        mime="audio/mpeg",
        duration=int(seconds),
        has_sound=True,
        title=tags.get("title", ""),
        performer=tags.get("performer", ""),
    )


def _id3(content: bytes) -> dict[str, str]:
    found = {}
    index = 0
    while index + 10 <= len(content) and content[index]:
        name, size = content[index : index + 4], int.from_bytes(content[index + 4 : index + 8], "big")
        body = content[index + 10 : index + 10 + size]
        field = {b"TIT2": "title", b"TPE1": "performer"}.get(name)
        if field and body:
            coding = ("latin-1", "utf-16", "utf-16-be", "utf-8")[min(body[0], 3)]
            found[field] = body[1:].decode(coding, "replace").strip("\0 ")
        index += 10 + size
    return found


_TGS = "application/x-tgsticker"


def _tgs(content: bytes) -> Look:
    """A gzipped Lottie animation."""
    drawing = msgspec.json.decode(gzip.decompress(content))
    if not isinstance(drawing, dict) or "layers" not in drawing:
        return Look(mime="application/gzip")
    width, height = integer(drawing, "w"), integer(drawing, "h")
    return Look(mime=_TGS, width=width, height=height)


# From a request to a stored file.


CAPTIONED = frozenset({"photo", "document", "audio", "video", "animation", "voice", "live_photo"})
PHOTO_BYTES_MAX = 10 * MIB
URL_PHOTO_BYTES_MAX = 5 * MIB
URL_BYTES_MAX = 20 * MIB
_BY_ENDING = {
    "gif": "image/gif", "mp4": "video/mp4", "mov": "video/quicktime", "webm": "video/webm", "mp3": "audio/mpeg",
    "ogg": "audio/ogg", "oga": "audio/ogg", "opus": "audio/ogg", "m4a": "audio/mp4", "flac": "audio/flac",
    "jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png", "webp": "image/webp", "pdf": "application/pdf",
    "txt": "text/plain", "zip": "application/zip", "tgs": "application/x-tgsticker", "json": "application/json",
}  # fmt: skip
_THUMBED = frozenset({"document", "audio", "video", "animation", "video_note", "sticker"})
_SIDES = (90, 320, 800, 1280)  # of a photo's sizes
_ALIKE = frozenset(
    {"video", "animation", "document", "video_note", "live_photo"}
)  # what one was sent as may be sent as another


def taken(world: World, call: SimCall, field: str, kind: str, params: Params | None = None) -> StoredFile:
    """The file of a request's field, stored if it is new."""
    given = call.params if params is None else params
    upload = call.files.get(field) if params is None else None
    return take(world, call, given.get(field), upload, field=field, kind=kind, params=given)


def take(
    world: World, call: SimCall, value: object, upload: UploadedFile | None, *, field: str, kind: str, params: Params
) -> StoredFile:
    text = value if isinstance(value, str) else ""
    if text.startswith("attach://"):
        upload = call.files.get(text.removeprefix("attach://"))
        if upload is None:
            raise bad(f"can't parse file: attached file {text.removeprefix('attach://')} not found")
    if upload is None:
        if not text:
            raise bad(f"there is no {field.replace('_', ' ')} in the request")
        if text.startswith(("http://", "https://")):
            upload = _fetched(world, text, kind)
        elif text.startswith("file://") and world.options.mode == "local":
            return call.bot.files.put(kind, UploadedFile(filename=text.rpartition("/")[2], content=b""))
        else:
            return _known(call.bot, text, kind)
    return store(world, call, upload, kind, params=params)


def _known(bot: SimBot, file_id: str, kind: str) -> StoredFile:
    stored = bot.files.by_id.get(file_id)
    if stored is None:
        raise bad("wrong file identifier/HTTP URL specified")
    if stored.kind != kind and not {stored.kind, kind} <= _ALIKE:
        names = (stored.kind.replace("_", " ").title(), kind.replace("_", " ").title())
        raise bad(f"can't use file of type {names[0].replace(' ', '')} as {names[1].replace(' ', '')}")
    return stored


def store(world: World, call: SimCall, upload: UploadedFile, kind: str, *, params: Params | None = None) -> StoredFile:
    """Put an upload on the bot's collection, if its size is allowed, with its thumbnail and what its bytes say."""
    size = len(upload.content)
    if size == 0:
        raise bad("file must be non-empty")
    if size > world.options.upload_bytes_max:
        raise Refusal(413, "Request Entity Too Large")
    if kind == "photo" and size > PHOTO_BYTES_MAX:
        raise bad(f"file of size {size} bytes is too big for a photo; the maximum size is {PHOTO_BYTES_MAX} bytes")
    if kind == "photo":
        _check_picture(look(upload.content))
    params = call.params if params is None else params
    thumb = None
    if kind in _THUMBED:
        named = str(params.get("thumbnail") or params.get("thumb") or "")
        thumb = (
            call.files.get("thumbnail") or call.files.get("thumb") or call.files.get(named.removeprefix("attach://"))
        )
    return kept(call.bot, upload, kind, params, thumb)


PHOTO_SIDES_MAX = 10_000  # width and height together
PHOTO_RATIO_MAX = 20


def _check_picture(seen: Look) -> None:
    """What cannot be a photo, as far as its bytes say what it is. Unknown bytes stand for a picture."""
    if seen.mime and not seen.mime.startswith("image/"):
        raise bad("IMAGE_PROCESS_FAILED")
    width, height = seen.width, seen.height
    if width + height > PHOTO_SIDES_MAX or (
        width and height and max(width, height) > PHOTO_RATIO_MAX * min(width, height)
    ):
        raise bad("PHOTO_INVALID_DIMENSIONS")


def kept(bot: SimBot, upload: UploadedFile, kind: str, params: Params, thumb: UploadedFile | None = None) -> StoredFile:
    """The stored file with its face."""
    seen = look(upload.content)
    if kind == "voice" and seen.mime == "audio/mpeg":
        kind = "audio"
    if kind == "video_note" and seen.width != seen.height:
        kind = "video"  # only a square one is a round one
    if kind == "document" and seen.has_video and not seen.has_sound and upload.filename.endswith(".gif"):
        kind = "animation"
    stored = bot.files.put(kind, upload)
    stored.face = _face(bot, stored, seen, params)
    if kind == "photo":
        stored.sizes = _sizes(bot, stored, seen, upload)
    elif seen.width and kind in _THUMBED:
        # What can be seen gets a thumbnail of Telegram's own, whatever came with it.
        stored.thumb = _size(
            bot, upload, stored.unique_id, *_within(seen.width, seen.height, 128 if seen.mime == _TGS else 320)
        )
    elif thumb is not None and kind in _THUMBED:
        small = look(thumb.content)
        stored.thumb = _size(bot, thumb, stored.unique_id, small.width or 320, small.height or 320)
    return stored


def _within(width: int, height: int, side: int) -> tuple[int, int]:
    longest = max(width, height)
    if longest <= side:
        return width, height
    return max(1, width * side // longest), max(1, height * side // longest)


def _size(bot: SimBot, upload: UploadedFile, unique_id: str, width: int, height: int) -> Json:
    """One PhotoSize of a file. Nothing is scaled: behind each size lie the bytes of the whole."""
    name = f"{width}x{height}.jpg"
    salted = UploadedFile(filename=name, content=upload.content, content_type="image/jpeg")
    one = bot.files.put("photo", salted, mark=f"{unique_id} {name}".encode())
    one.sizes = [{**one.as_json(), "width": width, "height": height}]
    return one.sizes[0]


def _sizes(bot: SimBot, stored: StoredFile, seen: Look, upload: UploadedFile) -> list[Json]:
    """A photo's sizes, smallest first; the largest is the file itself."""
    width, height = seen.width or 1280, seen.height or 720
    sizes = []
    for side in _SIDES:
        if max(width, height) <= side:
            break
        if seen.width and side < _SIDES[-1]:
            sizes.append(_size(bot, upload, stored.unique_id, *_within(width, height, side)))
    width, height = _within(width, height, _SIDES[-1])
    return [*sizes, {**stored.as_json(), "width": width, "height": height}]


def squares(bot: SimBot, stored: StoredFile) -> list[Json]:
    """The sizes of a chat's photo, which are cut to squares."""
    upload = UploadedFile(filename=stored.filename, content=stored.content or b"")
    return [_size(bot, upload, stored.unique_id, side, side) for side in (160, 320, 640)]


def _face(bot: SimBot, stored: StoredFile, seen: Look, params: Params) -> Json:
    """What Telegram says of a file besides its ids."""
    kind = stored.kind
    ending = stored.filename.rpartition(".")[2].lower() if "." in stored.filename else ""
    given = stored.content_type if stored.content_type != "application/octet-stream" else ""
    face: Json = {}
    if kind in {"document", "audio", "video", "animation"}:
        face["file_name"] = stored.filename
    if kind in {"document", "audio", "video", "animation", "voice", "live_photo"}:
        face["mime_type"] = seen.mime or _BY_ENDING.get(ending) or given or "application/octet-stream"
    if kind in {"audio", "video", "animation", "voice", "video_note", "live_photo"}:
        face["duration"] = integer(params, "duration") or seen.duration
    if kind in {"video", "animation", "live_photo"}:
        face |= {name: integer(params, name) or getattr(seen, name) or 512 for name in ("width", "height")}
    if kind == "sticker":
        face |= {"width": seen.width or 512, "height": seen.height or 512, "type": "regular"}
        face |= {"is_animated": seen.mime == _TGS, "is_video": seen.mime == "video/webm"}
    if kind == "video_note":
        face["length"] = integer(params, "length") or seen.width or 240
    if kind == "audio":
        for name in ("performer", "title"):
            if params.get(name) or getattr(seen, name):
                face[name] = text_of(params, name) or getattr(seen, name)
    return face


def described(stored: StoredFile, params: Params) -> Json:
    """The part of a Message that shows this file."""
    kind = stored.kind
    if kind == "photo":
        return {"photo": stored.sizes or [{**stored.as_json(), "width": 1280, "height": 720}]}
    face: Json = {**stored.as_json(), **stored.face}
    if stored.thumb is not None:
        face["thumbnail"] = stored.thumb
    if kind == "sticker" and params.get("emoji") and "set_name" not in face:
        face["emoji"] = text_of(params, "emoji")
    # An animation is shown as a document too, for clients that know no animations.
    if kind == "animation":
        document = {name: held for name, held in face.items() if name not in {"duration", "width", "height"}}
        return {kind: face, "document": document}
    return {kind: face}


def hidden(params: Params) -> Json:
    """What a request says of how its media is shown."""
    found: Json = {}
    if flag(params, "has_spoiler"):
        found["has_media_spoiler"] = True
    if flag(params, "show_caption_above_media"):
        found["show_caption_above_media"] = True
    return found


UNFETCHED = "failed to get HTTP URL content"
NO_MEDIA = "wrong type of the web page content"


def _fetched(world: World, url: str, kind: str) -> UploadedFile:
    """What an address leads to. The tester says what lies there, or it is on this machine; else the address stands for it."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise bad("wrong HTTP URL specified")
    found = world.web(url) or world.fetched.get(url)
    if found is not None:
        if len(found.content) > (URL_PHOTO_BYTES_MAX if kind == "photo" else URL_BYTES_MAX):
            raise bad(UNFETCHED)
        if found.content_type.partition(";")[0].strip().lower() == "text/html":
            raise bad(NO_MEDIA)
        return found
    if url in world.fetched:
        raise bad(UNFETCHED)
    filename = parts.path.rpartition("/")[2] or "file"
    return UploadedFile(filename=filename, content=url.encode())
