"""The texts that a company has for its types of notifications, per language. What has none is written plainly."""

from peik.core.notification import DEFAULT, check_template, template_keys
from peik.errors import NotFound
from peik.notifications.values import TEMPLATES, Template, checked_language, checked_type, filed, read
from peik.paper_ports import PaperStore


class Templates:
    def __init__(self, papers: PaperStore) -> None:
        self._papers = papers

    async def find(self, kind: str, language: str | None) -> Template | None:
        """The nearest: in this language, in its family, in any; of this type, or of all. None: the plain one."""
        keys = template_keys(kind, language)
        found = await self._papers.those(TEMPLATES, keys)
        return next((read(found[key], Template) for key in keys if key in found), None)

    async def get(self, kind: str, language: str) -> Template:
        paper = await self._papers.paper(TEMPLATES, _key(kind, language))
        if paper is None:
            raise _unknown(kind, language)
        return read(paper, Template)

    async def all(self, *, after: str | None, limit: int) -> list[Template]:
        return [read(paper, Template) for paper in await self._papers.papers(TEMPLATES, after=after, limit=limit)]

    async def save(self, kind: str, language: str, text: str) -> Template:
        """Replace what there was. `default` as a type or a language stands for all that have none of their own."""
        key = _key(kind, language)
        check_template(text)
        template = Template(type=kind, language=key.partition("/")[2], text=text)
        await self._papers.file([filed(TEMPLATES, key, template)])
        return template

    async def remove(self, kind: str, language: str) -> None:
        await self.get(kind, language)
        await self._papers.file([filed(TEMPLATES, _key(kind, language), None)])


def _key(kind: str, language: str) -> str:
    spoken = DEFAULT if language == DEFAULT else checked_language(language)
    return f"{checked_type(kind)}/{spoken}"


def _unknown(kind: str, language: str) -> NotFound:
    return NotFound(code="unknown_template", detail=f"There is no template of type {kind} in {language}.")
