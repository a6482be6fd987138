"""Style sheets and scripts: in memory, under names that hold a hash of what is in them, so that browsers keep them for ever."""

import hashlib
from pathlib import Path

import msgspec
from starlette.responses import Response

PREFIX = "/admin/static/"
_FOLDER = Path(__file__).with_name("static")
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True):
    body: bytes
    media_type: str


class Assets:
    def __init__(self, folder: Path = _FOLDER) -> None:
        self._by_name: dict[str, Asset] = {}
        self._names: dict[str, str] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix in _TYPES:
                body = path.read_bytes()
                digest = hashlib.blake2b(body, digest_size=6).hexdigest()
                name = f"{path.stem}.{digest}{path.suffix}"
                self._names[path.name] = name
                self._by_name[name] = Asset(body, _TYPES[path.suffix])

    def url(self, file: str) -> str:
        """Where the browser finds this file."""
        return PREFIX + self._names[file]

    def answer(self, name: str) -> Response | None:
        asset = self._by_name.get(name)
        if asset is None:
            return None
        return Response(asset.body, headers={"Cache-Control": _FOR_EVER}, media_type=asset.media_type)
