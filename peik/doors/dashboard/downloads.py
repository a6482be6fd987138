"""Files that a page gives to take away, written as they come: a cookie opens no REST, so the dashboard streams its own."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response

from peik.archive.exporting import Form, Part
from peik.doors.dashboard.fields import Fields
from peik.doors.flowing import CHUNK_BYTES, Flow
from peik.errors import BadInput

STALL_S = 60.0  # a browser that takes nothing for so long has gone
_MEDIA_TYPES = {Form.JSONL: "application/jsonl", Form.CSV: "text/csv; charset=utf-8"}


async def download(parts: AsyncGenerator[bytes, None], *, form: Form, name: str) -> Response:
    """What is wrong with the first part is raised here, while it can still be said. A file that breaks off is not the whole."""
    first = await anext(parts, b"")
    return Flow(
        _pieces(first, parts),
        media_type=_MEDIA_TYPES[form],
        headers={"Content-Disposition": f'attachment; filename="{name}.{form}"', "Cache-Control": "no-store"},
        stall_s=STALL_S,
    )


async def _pieces(first: bytes, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """In pieces of which a slow reader takes each in time. The next part is made when this one is gone."""
    async with aclosing(parts):
        part: bytes | None = first
        while part is not None:
            for start in range(0, len(part), CHUNK_BYTES):
                yield part[start : start + CHUNK_BYTES]
            part = await anext(parts, None)


async def data_of(parts: AsyncGenerator[Part, None]) -> AsyncGenerator[bytes, None]:
    """Of an export of the archive."""
    async with aclosing(parts):
        async for part in parts:
            yield part.data


def form_of(fields: Fields) -> Form:
    try:
        return Form(fields.text("format") or Form.JSONL)
    except ValueError:
        raise BadInput(code="bad_format", detail=f"format is one of {', '.join(Form)}.") from None
