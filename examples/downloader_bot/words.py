"""What the bot says, in four languages: one TOML file each."""

import functools
import tomllib
from pathlib import Path

LANGUAGES = {"fa": "فارسی", "en": "English", "ru": "Русский", "uz": "Oʻzbekcha"}  # noqa: RUF001  Uzbek is written so
USUAL = "en"


class Words:
    """`words("too_big", size="50 MB")`."""

    def __init__(self, language: str) -> None:
        self.language = language
        path = Path(__file__).parent / "texts" / f"{language}.toml"
        self._said: dict[str, str] = tomllib.loads(path.read_text(encoding="utf-8"))

    def __call__(self, name: str, **values: object) -> str:
        return self._said[name].format(**values).strip()


@functools.cache
def words_of(language: str) -> Words:
    return Words(language if language in LANGUAGES else USUAL)


def language_of(code: str | None) -> str:
    """Of Telegram's language_code, such as fa-IR."""
    language = (code or "").partition("-")[0].lower()
    return language if language in LANGUAGES else USUAL


def megabytes(size_bytes: int) -> str:
    """As Telegram counts its limits."""
    if 0 < size_bytes < 2**20 / 10:
        return f"{max(1, round(size_bytes / 2**10))} KB"
    return f"{size_bytes / 2**20:.1f}".removesuffix(".0") + " MB"
