"""Letters from Django: `send` and `send_text`, by the back-end that the setting PEIK names, as EMAIL_BACKEND does for mail.

    PEIK = {"BACKEND": "peik.integrations.django.RestBackend", "URL": "http://127.0.0.1:8081", "KEY": "…"}

A letter of a transaction that is rolled back is never sent, whichever back-end it is.
"""

import functools
import sys
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections, transaction
from django.utils.module_loading import import_string

from peik.client.calls import Call, Letter
from peik.client.enqueue import enqueue_sync
from peik.client.peik import BlockingPeik

_NAMES = frozenset({"BACKEND", "URL", "KEY", "DATABASE", "SCHEMA"})
sent: list[Call] = []  # by the MemoryBackend, for tests; empty it in setUp


def send(method: str, /, **params: Any) -> Letter | None:
    """Any sending method of the Bot API with its parameters and the terms of `Peik.send`. The letter, if it is accepted by now:
    within a transaction the RestBackend hands it over at the commit."""
    return backend().send(method, **params)


def send_text(chat_id: int | str, text: str, **more: Any) -> Letter | None:
    return send("sendMessage", chat_id=chat_id, text=text, **more)


class Backend:
    """One of your own needs nothing else. It is made once, of the setting's other names in lower case."""

    def send(self, method: str, /, **params: Any) -> Letter | None:
        raise NotImplementedError


class RestBackend(Backend):
    """Over REST, once the transaction has committed; at once outside of one. If the process dies between the two, or Peik cannot
    be reached then (which raises, after the commit), the letter is not sent: the DatabaseBackend has no such gap."""

    def __init__(self, *, url: str, key: str, database: str = "default") -> None:
        self.peik = BlockingPeik.connect(url, key=key)
        self._database = database

    def send(self, method: str, /, **params: Any) -> Letter | None:
        Call(method, **params)  # what cannot be right is told while the transaction can still be given up
        accepted: list[Letter] = []
        transaction.on_commit(lambda: accepted.append(self.peik.send(method, **params)), using=self._database)
        return accepted[0] if accepted else None


class DatabaseBackend(Backend):
    """In the transaction itself, where Peik's store is the PostgreSQL of this project: your rows and the letter, or neither.
    See docs/transactional-outbox.md for the rights that it needs."""

    def __init__(self, *, database: str = "default", schema: str = "peik") -> None:
        self._database = database
        self._schema = schema

    def send(self, method: str, /, **params: Any) -> Letter:
        connection = connections[self._database]
        if connection.vendor != "postgresql":
            raise ImproperlyConfigured(
                f"The DatabaseBackend needs PostgreSQL, and {self._database!r} is {connection.vendor}."
            )
        connection.ensure_connection()
        # Django's own transaction, savepoints included: it is the same connection of psycopg.
        return enqueue_sync(connection.connection, method, schema=self._schema, **params)


class MemoryBackend(Backend):
    """For tests: nothing is sent, and `sent` has the calls: once the transaction has committed, as the RestBackend would send
    them. Within the transaction of a TestCase that is at the end of `captureOnCommitCallbacks(execute=True)`."""

    def __init__(self, *, database: str = "default") -> None:
        self._database = database

    def send(self, method: str, /, **params: Any) -> None:
        transaction.on_commit(functools.partial(sent.append, Call(method, **params)), using=self._database)


class ConsoleBackend(Backend):
    """For development: nothing is sent, and standard output shows the calls, once the transaction has committed."""

    def __init__(self, *, database: str = "default") -> None:
        self._database = database

    def send(self, method: str, /, **params: Any) -> None:
        Call(method, **params)
        transaction.on_commit(lambda: sys.stdout.write(f"{method} {params}\n"), using=self._database)


@functools.cache
def backend() -> Backend:
    """The one that the settings name. Raises ImproperlyConfigured."""
    given = dict(getattr(settings, "PEIK", {}))
    if unknown := sorted(given.keys() - _NAMES):
        raise ImproperlyConfigured(f"PEIK has no {', '.join(unknown)}. It knows {', '.join(sorted(_NAMES))}.")
    made = import_string(given.pop("BACKEND", f"{__name__}.RestBackend"))
    try:
        found: Backend = made(**{name.lower(): value for name, value in given.items()})
    except TypeError as error:
        raise ImproperlyConfigured(f"PEIK in your settings: {error}.") from None
    return found


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "PEIK":  # override_settings in a test
        backend.cache_clear()


setting_changed.connect(_forget)
