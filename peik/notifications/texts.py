"""What Peik itself says to people who link their chat, in every language that it brings along."""

import tomllib
from collections.abc import Mapping
from importlib import resources

ENGLISH = "en"
Texts = Mapping[str, Mapping[str, str]]


def load_outreach() -> Texts:
    """By language. A company's own words are templates of the types peik.linked, peik.wrong, peik.late and peik.refused."""
    tables: Texts = tomllib.loads(resources.files("peik.texts").joinpath("outreach.toml").read_text(encoding="utf-8"))
    return tables


def words_of(texts: Texts, language: str | None) -> Mapping[str, str]:
    """fa-IR finds fa; what is not known finds English."""
    code = (language or "").lower().replace("_", "-")
    return texts.get(code) or texts.get(code.partition("-")[0]) or texts[ENGLISH]
