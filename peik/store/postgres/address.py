"""Where a PostgreSQL store is: a server, a database, and a schema of our own in it."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from peik.errors import StartError

SCHEMA = "peik"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")  # it needs no quotes, and leaves room for a prefix in names of 63 bytes


class Address(msgspec.Struct, frozen=True, kw_only=True):
    url: str  # as the driver wants it; may hold a password
    schema: str
    shown: str  # for people: no user, no password

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def read_address(url: str) -> Address:
    """Raises StartError if it cannot be one."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise StartError("A PostgreSQL store is named postgresql://user:password@host/database in PEIK_STORE.")
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in query if name == "schema"), SCHEMA)
    if not _SCHEMA.fullmatch(schema):
        raise StartError(
            f"The schema {schema!r} in PEIK_STORE cannot be used. Name it with small letters, digits and underscores."
        )
    rest = urlencode([(name, value) for name, value in query if name != "schema"])
    shown = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}?schema={schema}"
    return Address(url=urlunsplit(parts._replace(query=rest)), schema=schema, shown=shown)
