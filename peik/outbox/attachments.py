"""The files of letters on their way out: brought to this node, or named by the id that Telegram has given them before."""

from collections.abc import Sequence

import msgspec

from peik.clock import Clock
from peik.core.letter import Enclosed, Letter
from peik.errors import NotFound
from peik.outbox.store import Store
from peik.storage.spool import SpoolPort
from peik.telegram.port import Enclosure

# The parameter that carries the one file of these methods, and the field of the answer that tells its id.
_FILE_FIELD = {
    "sendPhoto": "photo",
    "sendDocument": "document",
    "sendAudio": "audio",
    "sendVideo": "video",
    "sendAnimation": "animation",
    "sendVoice": "voice",
    "sendVideoNote": "video_note",
    "sendSticker": "sticker",
}


class Attachments:
    def __init__(self, bot_id: int, store: Store, spool: SpoolPort, clock: Clock) -> None:
        self._bot_id = bot_id
        self._store = store
        self._spool = spool
        self._clock = clock
        self._known: dict[int, str] = {}  # by letter, while it is in flight
        self._spoiled: dict[int, str] = {}  # the same: why its files cannot be sent, ever
        self._refused: set[tuple[str, str]] = set()  # ids that Telegram did not take, until the file is uploaded again

    async def prepare(self, letter: Letter) -> None:
        """Look up whether the letter's file was uploaded before, by any letter of this bot. If not, bring its files here.

        Raises StoreUnavailable. A file that is gone for good raises nothing: the try itself ends with it (`spoiled`).
        """
        self._spoiled.pop(letter.id, None)
        one = _reusable(letter)
        if one is not None and (one.digest, _kind(letter)) not in self._refused:
            file_id = await self._store.file_id(self._bot_id, one.digest, _kind(letter))
            if file_id is not None:
                self._known[letter.id] = file_id
                return
        try:
            for file in letter.enclosed:
                await self._spool.bring(file)
        except NotFound as error:
            self._spoiled[letter.id] = error.detail

    def spoiled(self, letter: Letter) -> str | None:
        """Why the letter cannot be sent as it was accepted, if a file of it is gone for good."""
        return self._spoiled.get(letter.id)

    def fill(self, letter: Letter) -> tuple[str, Sequence[Enclosure]]:
        """The parameters and files to send, of a letter that has files."""
        file_id = self._known.get(letter.id)
        if file_id is not None:
            params = msgspec.json.decode(letter.params)
            params[_FILE_FIELD[letter.method]] = file_id
            return msgspec.json.encode(params).decode(), ()
        return letter.params, [
            Enclosure(
                field=one.field,
                path=self._spool.path_of(one.blob),
                filename=one.filename,
                content_type=one.content_type,
                size_bytes=one.size_bytes,
            )
            for one in letter.enclosed
        ]

    async def delivered(self, letter: Letter, result: bytes) -> None:
        """Remember the id that Telegram gave to the file."""
        one = _reusable(letter)
        file_id = _file_id(letter.method, result)
        if one is not None and file_id is not None:
            self._refused.discard((one.digest, _kind(letter)))
            at_ms = self._clock.wall_ms()
            await self._store.keep_file_id(self._bot_id, one.digest, _kind(letter), file_id, at_ms=at_ms)

    def is_reused(self, letter: Letter) -> bool:
        return letter.id in self._known

    def forget(self, letter: Letter) -> None:
        """Telegram does not take the remembered id any more: the next try uploads the file."""
        one = _reusable(letter)
        if one is not None:
            self._refused.add((one.digest, _kind(letter)))

    def landed(self, letter: Letter) -> None:
        self._known.pop(letter.id, None)
        self._spoiled.pop(letter.id, None)


# Telegram keeps the name of these with the file, so the same bytes under another name are another file.
_NAMED = frozenset({"sendDocument", "sendAudio", "sendVideo", "sendAnimation"})


def _kind(letter: Letter) -> str:
    """What a remembered file id is good for, besides its bytes."""
    return f"{letter.method} {letter.enclosed[0].filename}" if letter.method in _NAMED else letter.method


def _reusable(letter: Letter) -> Enclosed | None:
    field = _FILE_FIELD.get(letter.method)
    if len(letter.enclosed) == 1 and letter.enclosed[0].field == field:
        return letter.enclosed[0]
    return None


def _file_id(method: str, result: bytes) -> str | None:
    message = msgspec.json.decode(result)
    found = message.get(_FILE_FIELD.get(method, "")) if isinstance(message, dict) else None
    if isinstance(found, list) and found:
        found = found[-1]  # the largest size of a photo
    file_id = found.get("file_id") if isinstance(found, dict) else None
    return file_id if isinstance(file_id, str) else None
