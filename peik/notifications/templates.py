"""The texts that a company has for its types of notifications, per language. What has none is written plainly."""

import tomllib
from collections.abc import Mapping
from importlib import resources

from peik.core.documents import DocumentStore
from peik.errors import NotFound
from peik.notifications.model import (
    DEFAULT,
    TEMPLATES,
    Template,
    check_template,
    checked_language,
    checked_type,
    filed,
    read,
    template_keys,
)


class Templates:
    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def find(self, kind: str, language: str | None) -> Template | None:
        """The nearest: in this language, in its family, in any; of this type, or of all. None: the plain one."""
        keys = template_keys(kind, language)
        found = await self._documents.those(TEMPLATES, keys)
        return next((read(found[key], Template) for key in keys if key in found), None)

    async def get(self, kind: str, language: str) -> Template:
        document = await self._documents.document(TEMPLATES, _key(kind, language))
        if document is None:
            raise _unknown(kind, language)
        return read(document, Template)

    async def all(self, *, after: str | None, limit: int) -> list[Template]:
        return [
            read(document, Template)
            for document in await self._documents.documents(TEMPLATES, after=after, limit=limit)
        ]

    async def save(self, kind: str, language: str, text: str) -> Template:
        """Replace what there was. `default` as a type or a language stands for all that have none of their own."""
        key = _key(kind, language)
        check_template(text)
        template = Template(type=kind, language=key.partition("/")[2], text=text)
        await self._documents.file([filed(TEMPLATES, key, template)])
        return template

    async def remove(self, kind: str, language: str) -> None:
        await self.get(kind, language)
        await self._documents.file([filed(TEMPLATES, _key(kind, language), None)])


def _key(kind: str, language: str) -> str:
    spoken = DEFAULT if language == DEFAULT else checked_language(language)
    return f"{checked_type(kind)}/{spoken}"


def _unknown(kind: str, language: str) -> NotFound:
    return NotFound(code="unknown_template", detail=f"There is no template of type {kind} in {language}.")


# What Peik itself says to people who link their chat, in every language that it brings along.


ENGLISH = "en"
Texts = Mapping[str, Mapping[str, str]]


def load_outreach() -> Texts:
    """By language. A company's own words are templates of the types peik.linked, peik.wrong, peik.late and peik.refused."""
    tables: Texts = tomllib.loads(
        resources.files("peik.notifications").joinpath("outreach.toml").read_text(encoding="utf-8")
    )
    return tables


def words_of(texts: Texts, language: str | None) -> Mapping[str, str]:
    """fa-IR finds fa; what is not known finds English."""
    code = (language or "").lower().replace("_", "-")
    return texts.get(code) or texts.get(code.partition("-")[0]) or texts[ENGLISH]
