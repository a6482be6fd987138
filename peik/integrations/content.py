"""What a Bot API message holds beside text, in TL: files, places, contacts, and the messages of the chat itself."""

import base64
import binascii
import mimetypes
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

# A Bot API file id, read: it holds where the file lies at Telegram, which is all that MTProto needs to fetch it.


_HAS_REFERENCE = 1 << 25
_IS_WEB = 1 << 24
_VERSION = 4


class FileAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file lies. Good only for the bot that the file id was given to, as the file id itself."""

    id: int
    access_hash: int
    reference: bytes
    dc_id: int


NOWHERE = FileAddress(id=0, access_hash=0, reference=b"", dc_id=0)


def read_file_id(text: str) -> FileAddress:
    """The address in a file id. One of another form gives NOWHERE: the message is whole, the file cannot be fetched."""
    try:
        data = _zeros_back(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if not data or data[-1] != _VERSION:
            return NOWHERE
        kind, dc_id = struct.unpack_from("<ii", data)
        if kind & _IS_WEB:
            return NOWHERE
        reference, place = _bytes_at(data, 8) if kind & _HAS_REFERENCE else (b"", 8)
        media_id, access_hash = struct.unpack_from("<qq", data, place)
    except (binascii.Error, ValueError, struct.error, IndexError):
        return NOWHERE
    return FileAddress(id=media_id, access_hash=access_hash, reference=reference, dc_id=dc_id)


def _zeros_back(data: bytes) -> bytes:
    """Runs of zero bytes are written as one zero and their number."""
    found = bytearray()
    place = 0
    while place < len(data):
        if data[place] == 0:
            found += bytes(data[place + 1])
            place += 2
        else:
            found.append(data[place])
            place += 1
    return bytes(found)


def _bytes_at(data: bytes, place: int) -> tuple[bytes, int]:
    """A TL byte string: its length in one byte, or in three after 254; padded to a multiple of four."""
    length, begin = data[place], place + 1
    if length == 254:
        length, begin = int.from_bytes(data[place + 1 : place + 4], "little"), place + 4
    end = begin + length
    return data[begin:end], end + (place - end) % 4


if TYPE_CHECKING:
    from peik.integrations.tl import Schema

Json = Mapping[str, Any]

# https://core.telegram.org/api/files#image-thumbnail-types: the longest side that each kind of size may have.
_BOXES = (("s", 100), ("m", 320), ("x", 800), ("y", 1280))
_LARGEST = "w"

# Before `document`: an animation has that field too, for clients that do not know animations.
_DOCUMENTS = ("animation", "audio", "voice", "video_note", "video", "sticker", "document")


def media(schema: "Schema", body: Json) -> Any:
    """The TL media of a message without text."""
    is_hidden = body.get("has_media_spoiler")
    if "photo" in body:
        return schema.make("MessageMediaPhoto", photo=_photo(schema, body), spoiler=is_hidden)
    for name in _DOCUMENTS:
        if name in body:
            document = _document(schema, name, body[name], body["date"])
            return schema.make("MessageMediaDocument", document=document, spoiler=is_hidden)
    if "venue" in body:
        return _venue(schema, body["venue"])
    if "location" in body:
        return _location(schema, body["location"])
    if "contact" in body:
        contact = body["contact"]
        return schema.make(
            "MessageMediaContact",
            phone_number=contact["phone_number"],
            first_name=contact["first_name"],
            last_name=contact.get("last_name", ""),
            vcard=contact.get("vcard", ""),
            user_id=contact.get("user_id", 0),
        )
    if "dice" in body:
        return schema.make("MessageMediaDice", value=body["dice"]["value"], emoticon=body["dice"]["emoji"])
    return schema.make("MessageMediaUnsupported")


def action(schema: "Schema", body: Json, user: Callable[[Json], int]) -> Any:
    """What happened in the chat, if the message says so. None: somebody wrote it."""
    for name, make in _ACTIONS.items():
        if name in body:
            return make(schema, body[name], user)
    return None


_ACTIONS: dict[str, Callable[["Schema", Any, Callable[[Json], int]], Any]] = {
    "new_chat_members": lambda schema, members, user: schema.make(
        "MessageActionChatAddUser", users=[user(one) for one in members]
    ),
    "left_chat_member": lambda schema, member, user: schema.make("MessageActionChatDeleteUser", user_id=user(member)),
    "new_chat_title": lambda schema, title, _: schema.make("MessageActionChatEditTitle", title=title),
    "delete_chat_photo": lambda schema, _, __: schema.make("MessageActionChatDeletePhoto"),
    "group_chat_created": lambda schema, _, __: schema.make("MessageActionChatCreate", title="", users=[]),
    "successful_payment": lambda schema, payment, _: _payment(schema, payment),
    "web_app_data": lambda schema, data, _: schema.make(
        "MessageActionWebViewDataSentMe", text=data["button_text"], data=data["data"]
    ),
}


def _payment(schema: "Schema", payment: Json) -> Any:
    return schema.make(
        "MessageActionPaymentSentMe",
        currency=payment["currency"],
        total_amount=payment["total_amount"],
        payload=payment["invoice_payload"].encode(),
        charge=schema.make(
            "PaymentCharge",
            id=payment["telegram_payment_charge_id"],
            provider_charge_id=payment["provider_payment_charge_id"],
        ),
        shipping_option_id=payment.get("shipping_option_id"),
        recurring_init=payment.get("is_first_recurring"),
        recurring_used=payment.get("is_recurring"),
    )


def _photo(schema: "Schema", body: Json) -> Any:
    sizes: list[Json] = body["photo"]
    address = read_file_id(sizes[-1]["file_id"])
    return schema.make(
        "Photo",
        id=address.id,
        access_hash=address.access_hash,
        file_reference=address.reference,
        date=schema.instant(body["date"]),
        sizes=[_size(schema, one) for one in sizes],
        dc_id=address.dc_id,
    )


def _size(schema: "Schema", size: Json) -> Any:
    longest = max(size["width"], size["height"])
    letter = next((letter for letter, box in _BOXES if longest <= box), _LARGEST)
    return schema.make("PhotoSize", type=letter, w=size["width"], h=size["height"], size=size.get("file_size", 0))


def _document(schema: "Schema", name: str, file: Json, date: int) -> Any:
    address = read_file_id(file["file_id"])
    thumbnail = file.get("thumbnail")
    return schema.make(
        "Document",
        id=address.id,
        access_hash=address.access_hash,
        file_reference=address.reference,
        date=schema.instant(date),
        mime_type=file.get("mime_type") or _mime_type(name, file),
        size=file.get("file_size", 0),
        dc_id=address.dc_id,
        attributes=_attributes(schema, name, file),
        thumbs=None if thumbnail is None else [_size(schema, thumbnail)],
    )


def _mime_type(name: str, file: Json) -> str:
    if name == "sticker":
        return (
            "application/x-tgsticker"
            if file.get("is_animated")
            else "video/webm"
            if file.get("is_video")
            else "image/webp"
        )
    if name == "video_note":
        return "video/mp4"
    return mimetypes.guess_type(file.get("file_name", ""))[0] or "application/octet-stream"


def _attributes(schema: "Schema", name: str, file: Json) -> list[Any]:
    found = []
    if name in ("video", "video_note", "animation"):
        side = file.get("length", 0)
        found.append(
            schema.make(
                "DocumentAttributeVideo",
                duration=file["duration"],
                w=file.get("width", side),
                h=file.get("height", side),
                round_message=name == "video_note",
            )
        )
    if name == "animation":
        found.append(schema.make("DocumentAttributeAnimated"))
    if name in ("audio", "voice"):
        found.append(
            schema.make(
                "DocumentAttributeAudio",
                duration=file["duration"],
                voice=name == "voice",
                title=file.get("title"),
                performer=file.get("performer"),
            )
        )
    if name == "sticker":
        found.append(schema.make("DocumentAttributeImageSize", w=file["width"], h=file["height"]))
        found.append(
            schema.make("DocumentAttributeSticker", alt=file.get("emoji", ""), stickerset=_sticker_set(schema, file))
        )
    if "file_name" in file:
        found.append(schema.make("DocumentAttributeFilename", file_name=file["file_name"]))
    return found


def _sticker_set(schema: "Schema", sticker: Json) -> Any:
    name = sticker.get("set_name")
    if name is None:
        return schema.make("InputStickerSetEmpty")
    return schema.make("InputStickerSetShortName", short_name=name)


def _location(schema: "Schema", location: Json) -> Any:
    geo = _point(schema, location)
    if "live_period" not in location:
        return schema.make("MessageMediaGeo", geo=geo)
    return schema.make("MessageMediaGeoLive", geo=geo, period=location["live_period"], heading=location.get("heading"))


def _venue(schema: "Schema", venue: Json) -> Any:
    is_google = "google_place_id" in venue
    return schema.make(
        "MessageMediaVenue",
        geo=_point(schema, venue["location"]),
        title=venue["title"],
        address=venue["address"],
        provider="gplaces" if is_google else "foursquare",
        venue_id=venue.get("google_place_id" if is_google else "foursquare_id", ""),
        venue_type=venue.get("google_place_type" if is_google else "foursquare_type", ""),
    )


def _point(schema: "Schema", location: Json) -> Any:
    return schema.make("GeoPoint", long=location["longitude"], lat=location["latitude"], access_hash=0)
