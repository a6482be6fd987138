"""Which store the settings name. What a server's store needs is imported only if it is named."""

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from peik.clock import Clock
from peik.core.documents import ContactStore, DocumentStore
from peik.core.nodes import FileStore, NodeStore
from peik.erasure.store import Forgetting
from peik.errors import StartError, StoreUnavailable, to_install
from peik.inbox.store import InboxStore
from peik.jobs.store import JobStore
from peik.outbox.store import HookStore, KeyStore, Store
from peik.secrets.seals import Seals, SealStore, seals_of
from peik.settings.config import Config
from peik.settings.values import StoreKind
from peik.storage.executor import Executor, ThreadExecutor
from peik.storage.sqlite.database import SchemaUpgrade
from peik.storage.sqlite.store import SqliteStore


class AnyStore(Store, KeyStore, HookStore, Protocol):
    """A store with all of its parts, which are there from `open` on."""

    @property
    def inbox(self) -> InboxStore: ...

    @property
    def nodes(self) -> NodeStore: ...

    @property
    def jobs(self) -> JobStore: ...

    @property
    def documents(self) -> DocumentStore: ...

    @property
    def contacts(self) -> ContactStore: ...

    @property
    def seals(self) -> Seals: ...

    @property
    def sealed(self) -> SealStore: ...

    @property
    def forgetting(self) -> Forgetting: ...

    @property
    def files(self) -> FileStore | None:
        """Where files of letters can be kept for all nodes. None: beside the database, where all processes see them."""

    def trouble(self) -> StoreUnavailable | None:
        """Why nothing can be stored now, as far as the last commit tells."""


def store_of(
    config: Config,
    *,
    clock: Clock,
    must_own: bool = False,
    address: str | None = None,
    executor: Callable[[str], Executor] = ThreadExecutor,
    on_blobs_freed: Callable[[Sequence[str]], None] = lambda blobs: None,
    seals: Seals | None = None,
    on_upgrade: Callable[[str], None] | None = None,
) -> AnyStore:
    """The store of the settings, not open yet. `must_own`: opening a SQLite file that another process owns is an error.
    `seals`: other ones than those of the settings. `on_upgrade` hears, on a thread, of a schema that is brought up to date; else
    standard error does."""
    seals = seals or seals_of(config.secret_keys)
    match config.store_kind:
        case StoreKind.SQLITE:
            return SqliteStore(
                config.sqlite_path.absolute(),
                clock=clock,
                is_owner=must_own,
                executor=executor,
                on_blobs_freed=on_blobs_freed,
                seals=seals,
                upgrade=SchemaUpgrade(is_backed_up=config.backup_before_upgrade, tell=on_upgrade or _to_stderr),
            )
        case StoreKind.POSTGRES:
            try:
                from peik.storage.postgres.store import PostgresStore
            except ImportError as error:
                raise _missing("postgres", error) from None
            return PostgresStore(
                config.store,
                clock=clock,
                lease_s=config.lease,
                address=address,
                on_blobs_freed=on_blobs_freed,
                seals=seals,
            )
        case StoreKind.REDIS:
            try:
                from peik.storage.redis.store import RedisStore
            except ImportError as error:
                raise _missing("redis", error, by_redis_host=config.is_store_by_redis_host) from None
            return RedisStore(
                config.store,
                clock=clock,
                lease_s=config.lease,
                address=address,
                on_blobs_freed=on_blobs_freed,
                seals=seals,
            )


def _to_stderr(words: str) -> None:
    sys.stderr.write(f"{words}\n")


def _missing(extra: str, error: ImportError, *, by_redis_host: bool = False) -> StartError:
    wanting = f"needs a package that is not installed ({error.name}): {to_install(extra)}."
    if by_redis_host:
        return StartError(
            f"REDIS_HOST is set, so the store is that Redis, which {wanting} For a file: PEIK_STORE=sqlite:///peik.db."
        )
    return StartError(f"PEIK_STORE {wanting}")
