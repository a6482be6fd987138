"""The words of notices: those that Peik brings along, and over them those of the user's own file. Read once, at the start."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from peik.core.notice import ALERT_MAX, JOB_PLACES, OTHER, PLACES, SENTENCE_MAX, JobWords, NoticeWords, Texts, places_of
from peik.errors import StartError

# The words that Peik speaks to people with, as files beside this one. It only gives them out; nothing is read into
# them.


NOTICES = "notices.toml"


def built_in() -> str:
    """The notices in every language that Peik brings along, as TOML."""
    return resources.files("peik.inbox").joinpath(NOTICES).read_text(encoding="utf-8")


_FORMS = ("minutes", "hours", "days", "more", "others")
_HINT = "`peik config texts` prints the built-in words."


def load_texts(path: Path | None) -> Texts:
    """Every language. Raises StartError, with the file, the place in it and the way out."""
    if path is None:
        return _brought_along()
    tables = _merged(tomllib.loads(built_in()), _own(path))
    _lend_jobs(tables)
    return _read(tables, where=str(path))


@cache
def _brought_along() -> Texts:
    return _read(tomllib.loads(built_in()), where="the built-in words")


def _own(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"PEIK_TEXTS={path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise StartError(f"PEIK_TEXTS={path} cannot be read: it is not text in UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise StartError(f"PEIK_TEXTS={path} is not valid TOML: {error}.") from None


def _merged(below: dict[str, object], above: dict[str, object]) -> dict[str, object]:
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _lend_jobs(tables: dict[str, object]) -> None:
    """A language of a user's own may be older than jobs: it speaks of them in English until it has words for them."""
    english = tables["en"]
    for code, table in tables.items():
        if isinstance(table, dict) and isinstance(english, dict) and "jobs" not in table:
            tables[code] = {**table, "jobs": english["jobs"]}


def _read(tables: dict[str, object], *, where: str) -> Texts:
    languages: dict[str, NoticeWords] = {}
    for code, table in tables.items():
        if code == "default":
            continue
        try:
            words = msgspec.convert(table, NoticeWords)
        except msgspec.ValidationError as error:
            raise StartError(f"{where}: [{code}]: {_plainly(error)}. {_HINT}") from None
        _check(words, place=f"{where}: [{code}]")
        languages[code.lower()] = words
    default = tables.get("default")
    if not isinstance(default, str) or default.lower() not in languages:
        known = ", ".join(sorted(languages))
        raise StartError(f"{where}: default = {default!r} is not one of the languages there are: {known}.")
    return Texts(default=default.lower(), languages=languages)


def _plainly(error: msgspec.ValidationError) -> str:
    return str(error).replace("Object", "It").replace("`", "")


def _check(words: NoticeWords, *, place: str) -> None:
    _check_all(words, PLACES, place=place)
    _check_all(words.jobs, JOB_PLACES, place=f"{place} jobs:")
    if len(words.digits) != 10:
        raise StartError(f"{place} digits has {len(words.digits)} characters; it is the ten digits, from zero to nine.")
    if not words.names.get(OTHER):
        raise StartError(f"{place} names needs {OTHER}: the word for what has no name of its own. {_HINT}")


def _check_all(words: NoticeWords | JobWords, places: Mapping[str, frozenset[str]], *, place: str) -> None:
    for name, allowed in places.items():
        value: str | tuple[str, ...] = getattr(words, name)
        forms = value if isinstance(value, tuple) else (value,)
        if name in _FORMS and not 1 <= len(forms) <= 3:
            raise StartError(f"{place} {name} has {len(forms)} forms; it is one, two (1, others) or three (1, 2, 5).")
        for template in forms:
            _check_sentence(template, name, allowed, place=place)


def _check_sentence(template: str, name: str, allowed: frozenset[str], *, place: str) -> None:
    try:
        places = places_of(template)
    except ValueError as error:
        raise StartError(f"{place} {name}: {error}; write {{{{ and }}}} for braces that are meant as such.") from None
    for wrong in (one for one in places if one not in allowed):
        named = ", ".join(f"{{{one}}}" for one in sorted(allowed)) or "nothing"
        raise StartError(f"{place} {name} holds {{{wrong}}}; between braces it may hold {named}.")
    longest = ALERT_MAX if name.startswith("alert_") else SENTENCE_MAX
    if not template.strip() or len(template) > longest:
        raise StartError(f"{place} {name} has {len(template)} characters; it has 1 to {longest}.")
