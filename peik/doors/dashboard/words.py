"""The words of the dashboard in its languages: `texts/*.toml`, a table per key with one text per language. Read once."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

LANGUAGES = {"en": "English", "fa": "فارسی", "ru": "Русский", "uz": "Oʻzbekcha"}  # noqa: RUF001  that is how it is written
RTL = frozenset({"fa"})
_FOLDER = Path(__file__).with_name("texts")


class Words(msgspec.Struct, frozen=True):
    """Every text by key and language."""

    texts: Mapping[str, Mapping[str, str]]

    def __contains__(self, key: object) -> bool:
        return key in self.texts

    def say(self, language: str, key: str, /, **places: object) -> str:
        """The text with its places filled. A key that nobody wrote a text for is shown as itself: a page never fails for it."""
        versions = self.texts.get(key)
        if versions is None:
            return f"[{key}]"
        return (versions.get(language) or versions["en"]).format(**places)


@cache
def load(folder: Path = _FOLDER) -> Words:
    """All files of the folder, read once. A key stands in one of them only."""
    texts: dict[str, Mapping[str, str]] = {}
    for path in sorted(folder.glob("*.toml")):
        for key, versions in tomllib.loads(path.read_text(encoding="utf-8")).items():
            assert key not in texts, f"{key} is in two files, one of them {path.name}"
            texts[key] = versions
    return Words(texts)


def language_of(wanted: str | None, kept: str | None, accepted: str | None) -> str:
    """Which language to speak: what was asked for now, what was asked for once, what the browser would like best."""
    for code in (wanted, kept):
        if code in LANGUAGES:
            return code
    ranked: list[tuple[float, str]] = []
    for place, part in enumerate((accepted or "").split(",")[:20]):
        tag, _, weight = part.strip().partition(";q=")
        try:
            rank = float(weight) if weight else 1.0
        except ValueError:
            continue
        code = tag.partition("-")[0].lower()
        if code in LANGUAGES:
            ranked.append((rank - place / 1000, code))
    return max(ranked)[1] if ranked else "en"
