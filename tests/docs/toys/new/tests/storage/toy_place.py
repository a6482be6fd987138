"""Where the toy store of the conformance suite lives."""

from peik.storage.toy.store import ToyStore
from tests.storage.places import SqlitePlace


class ToyPlace(SqlitePlace):
    def make(self, *, is_owner: bool) -> ToyStore:
        return ToyStore(
            self.path, clock=self.clock, is_owner=is_owner, on_blobs_freed=self.freed.extend, seals=self.seals
        )
