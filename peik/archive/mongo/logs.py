"""The log in the MongoDB archive."""

import re
from collections.abc import Sequence

from bson.datetime_ms import DatetimeMS
from pymongo import errors

from peik.archive.feeding import digest_of, levels_from
from peik.archive.mongo.connection import Server, duplicates
from peik.archive.mongo.documents import Document, document_of, record_of
from peik.archive.mongo.pages import between, page_of
from peik.archive_ports import LogFilter, LogLine


class Logs:
    def __init__(self, server: Server) -> None:
        self._lines = server.collection("logs")
        self._settled = server.settled("logs")

    async def keep(self, lines: Sequence[LogLine]) -> None:
        if not lines:
            return
        try:
            await self._lines.insert_many([log_document(line) for line in lines], ordered=False)
        except errors.BulkWriteError as error:
            duplicates(error)

    async def find(self, wanted: LogFilter, cursor: str | None, limit: int) -> tuple[list[LogLine], str | None]:
        documents, following = await page_of(self._settled, _where(wanted), by="at", cursor=cursor, limit=limit)
        return [record_of(document, LogLine) for document in documents], following

    async def drop(self, lines: Sequence[LogLine]) -> int:
        return (await self._lines.delete_many({"digest": {"$in": [digest_of(line) for line in lines]}})).deleted_count

    async def clean(self, before: DatetimeMS, limit: int) -> int:
        found = await self._lines.find({"at": {"$lt": before}}, {"_id": True}).sort("at", 1).limit(limit).to_list()
        return (await self._lines.delete_many({"_id": {"$in": [one["_id"] for one in found]}})).deleted_count


def log_document(line: LogLine) -> Document:
    return {**document_of(line), "digest": digest_of(line)}


def _where(wanted: LogFilter) -> Document:
    names = ("event", "session_id", "bot_id")
    asked: Document = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    asked |= between("at", wanted.since_ms, wanted.until_ms)
    if wanted.level is not None:
        asked["level"] = {"$in": list(levels_from(wanted.level))}
    if wanted.text is not None:
        # A pattern may not hold NUL itself. No line does, so nothing is found.
        anywhere = {"$regex": re.escape(wanted.text).replace("\0", r"\x00"), "$options": "i"}
        asked["$or"] = [{"event": anywhere}, {"fields": anywhere}]
    return asked
