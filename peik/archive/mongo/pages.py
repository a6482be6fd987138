"""Pages of a collection, the newest first, and the bounds of a time."""

from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo.asynchronous.collection import AsyncCollection

from peik.archive.cursors import cursor_of, read_cursor
from peik.archive.mongo.documents import Document
from peik.errors import BadInput


async def page_of(
    collection: AsyncCollection[Document], asked: Document, *, by: str, cursor: str | None, limit: int
) -> tuple[list[Document], str | None]:
    """`by` is the time that orders them; `_id` tells those of one millisecond apart."""
    if cursor is not None:
        at_ms, row = read_cursor(cursor)
        if not ObjectId.is_valid(row):
            raise BadInput(code="bad_cursor", detail="The cursor is not one of this archive's. Begin again without it.")
        # The first part says the same as the second, for the index: it begins where the last page ended.
        at = DatetimeMS(at_ms)
        after = {"$or": [{by: {"$lt": at}}, {by: at, "_id": {"$lt": ObjectId(row)}}]}
        asked = {"$and": [asked, {by: {"$lte": at}}, after]}
    found = collection.find(asked, {"words": False}).sort([(by, -1), ("_id", -1)])
    documents = await found.limit(limit + 1).to_list()
    if len(documents) <= limit:
        return documents, None
    last = documents[limit - 1]
    return documents[:limit], cursor_of(int(last[by]), last["_id"])


def between(name: str, since_ms: int | None, until_ms: int | None) -> Document:
    bounds: dict[str, Any] = {}
    if since_ms is not None:
        bounds["$gte"] = DatetimeMS(since_ms)
    if until_ms is not None:
        bounds["$lt"] = DatetimeMS(until_ms)
    return {name: bounds} if bounds else {}
