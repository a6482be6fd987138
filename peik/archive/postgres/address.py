"""Where a PostgreSQL archive is: a server, a database, and a schema of its own in it."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from peik.errors import StartError

SCHEMA = "peik_archive"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")  # it needs no quotes


class Address(msgspec.Struct, frozen=True, kw_only=True):
    url: str  # as the driver wants it; may hold a password
    schema: str
    shown: str  # for people: no user, no password

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def read_address(url: str) -> Address:
    """Raises StartError if it cannot be one."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in query if name == "schema"), SCHEMA)
    if not _SCHEMA.fullmatch(schema):
        raise StartError(
            f"The schema {schema!r} in PEIK_ARCHIVE cannot be used. Name it with small letters, digits and underscores."
        )
    rest = urlencode([(name, value) for name, value in query if name != "schema"])
    shown = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}?schema={schema}"
    return Address(url=urlunsplit(parts._replace(query=rest)), schema=schema, shown=shown)


def beside_store(url: str) -> str:
    """The archive that goes with a store: the same database, a schema named after the store's. Not the store's own: it would
    refuse one in which somebody else's tables stand."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in query if name == "schema"), "peik")
    asked = [(name, value) for name, value in query if name != "schema"]
    return urlunsplit(parts._replace(query=urlencode([*asked, ("schema", f"{schema}_archive")])))
