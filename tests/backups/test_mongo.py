"""What is MongoDB's own: a database that others use too."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from peik.backups.model import BackupWatch
from tests.archive.places import HAS_SERVERS, MongoPlace, opened
from tests.archive.samples import message
from tests.backups.trips import backups_in
from tests.storage import places as stores

if not HAS_SERVERS:
    pytest.skip("they need servers", allow_module_level=True)

from pymongo import MongoClient

from peik.archive.mongo.archive import COLLECTIONS as COPIED
from peik.archive.mongo.documents import INDEXES
from peik.backups.mongo import COLLECTIONS

_NAMED = re.compile(r'\b(?:collection|settled)\("(\w+)"\)')


def test_all_collections_of_the_archive_are_backed_up() -> None:
    sources = [entry for entry in files("peik.archive.mongo").iterdir() if entry.name.endswith(".py")]
    named = {name for entry in sources for name in _NAMED.findall(entry.read_text())}
    assert named
    assert named | set(INDEXES) | {name for name, _ in COPIED.values()} == COLLECTIONS


async def test_what_others_keep_in_the_same_database_is_left_alone(tmp_path: Path) -> None:
    archive, store = MongoPlace(tmp_path), stores.SqlitePlace(tmp_path)
    async with store.open():
        pass
    with MongoClient[Any](archive.url) as client:
        database = client.get_default_database()
        database["shop_orders"].insert_one({"_id": 1, "state": "as it was"})
        backups = backups_in(tmp_path, store, archive=archive.url)
        assert (await backups.create(BackupWatch())).manifest.part("archive") is None, "nobody has used the archive yet"
        async with opened(archive) as one:
            await one.keep_messages([message(1)])
        made = await backups.create(BackupWatch())
        part = made.manifest.part("archive")
        assert part is not None
        assert part.counts["messages"] == 1
        assert "shop_orders" not in part.counts
        await backups.verify(made.path, BackupWatch())
        database["shop_orders"].update_one({"_id": 1}, {"$set": {"state": "paid"}})
        database["shop_customers"].insert_one({"_id": 2})
        database["messages"].delete_many({})
        await backups.restore(made.path, BackupWatch())
        assert database["messages"].count_documents({}) == 1
        assert database["shop_orders"].find_one() == {"_id": 1, "state": "paid"}
        assert database["shop_customers"].find_one() == {"_id": 2}
