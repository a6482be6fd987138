"""The way of papers and known chats to the server: connections of their own, and scripts that know nothing else."""

from peik.store.redis.bell import Bell
from peik.store.redis.commits import Commits
from peik.store.redis.part_client import PartClient
from peik.store.redis.writer import Writer

_COMMIT = ("prelude", "papers", "contacts", "contact_forgetting", "commit_end")
_READ = ("prelude", "paper_reading", "contact_reading", "read_end")


class PaperWay:
    """What papers and known chats share: one client, one writer with group commit."""

    def __init__(self, url: str, bell: Bell, *, node: str) -> None:
        self._client = PartClient(url, commit=_COMMIT, read=_READ)
        self._writer = Writer(self._client, node=node)
        self.commits = Commits(self._writer, bell, listener=lambda: None, on_blobs_freed=lambda blobs: None)
        self.read = self._client.read

    async def open(self) -> None:
        await self._client.open()

    async def drained(self) -> None:
        """Returns when everything that was asked has been answered."""
        await self._writer.drained()

    async def abandon(self) -> None:
        await self._writer.abandon()
        await self._client.close()
