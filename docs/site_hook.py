"""Makes a site of pages that were written to be read in the repository: what they link to outside of docs/ becomes a page,
too, so that a proof is one click away. It changes no file."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^ *```")
OPENS = re.compile(r"^ *([-*] |\d+\. |\|)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The README in front, and behind the pages whatever they link to."""
    waiting = ["README.md", *(f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md"))]
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        if not _is_there(name):
            text = _as_page(name)
            files.append(File.generated(config, site_name(name), content=text))
        else:
            text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".md"):
            found = {target for _, target, _ in _targets(name, text)} - seen
            seen |= found
            waiting += [one for one in found if not _is_there(one)]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    name = repository_name(page.file.src_uri)
    if not name.endswith(".md"):
        return markdown
    # Python-Markdown reads what is within HTML only where it is told to.
    return _with_room(rewritten(name, markdown)).replace('<div dir="rtl">', '<div dir="rtl" markdown>')


def rewritten(name: str, text: str) -> str:
    """The text with every link to a file of the repository leading to that file's page."""
    here = posixpath.dirname(site_name(name))

    def lead(found: re.Match[str]) -> str:
        target, anchor = _resolved(name, found[2])
        if target is None:
            return found[0]
        return found[1] + posixpath.relpath(site_name(target), here or ".") + anchor + found[3]

    return "\n".join(LINK.sub(lead, line) if is_prose else line for line, is_prose in _lines(text))


def site_name(name: str) -> str:
    """Where a file of the repository stands on the site."""
    if name == "README.md":
        return "index.md"
    if _is_there(name):
        return name.removeprefix("docs/")
    if name.endswith(".md"):
        return f"project/{name}"
    seen = re.sub(r"(^|/)[.]", r"\1", name)  # MkDocs leaves out what begins with a dot
    return f"source/{seen}.md"


def _is_there(name: str) -> bool:
    """Whether the site has it without our help: what stands in docs/, but for programs."""
    return name.startswith("docs/") and not name.endswith(".py")


def repository_name(uri: str) -> str:
    if uri == "index.md":
        return "README.md"
    if uri.startswith("project/"):
        return uri.removeprefix("project/")
    return uri.removeprefix("source/").removesuffix(".md") if uri.startswith("source/") else f"docs/{uri}"


def _as_page(name: str) -> str:
    path = ROOT / name
    if path.is_dir():
        rows = [f"- `{one.name}`" for one in sorted(path.iterdir()) if one.is_file()]
        return "\n".join([f"# `{name}`", "", *rows, ""])
    text = path.read_text(encoding="utf-8")
    if name.endswith(".md"):
        return text
    language = {".py": "python", ".mjs": "js", ".yml": "yaml"}.get(path.suffix, path.suffix.lstrip(".") or "text")
    return f"# `{name}`\n\n````{language}\n{text}\n````\n"


def _targets(name: str, text: str) -> Iterator[tuple[str, str, str]]:
    for line, is_prose in _lines(text):
        for found in LINK.finditer(line) if is_prose else ():
            target, anchor = _resolved(name, found[2])
            if target is not None:
                yield found[2], target, anchor


def _resolved(name: str, link: str) -> tuple[str | None, str]:
    """The file of the repository that a link means, and its anchor; None for an address elsewhere or on the same page."""
    path, mark, anchor = link.partition("#")
    if not path or ":" in path or path.startswith("/"):
        return None, ""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
    if not (ROOT / target).exists():
        return None, ""
    return target, mark + anchor if target.endswith(".md") else ""  # a file of code is a page without headings


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is prose and not code."""
    is_code = False
    for line in text.split("\n"):
        is_fence = bool(FENCE.match(line))
        yield line, not is_code and not is_fence
        is_code ^= is_fence


def _with_room(text: str) -> str:
    """Lists and tables right below a sentence get the empty line that Python-Markdown, unlike others, insists on."""
    made: list[str] = []
    before = ""
    for line, is_prose in _lines(text):
        opens = is_prose and OPENS.match(line)
        if opens and before.strip() and not OPENS.match(before) and not before.startswith(" "):
            made.append("")
        made.append(line)
        before = line if is_prose else ""
    return "\n".join(made)
