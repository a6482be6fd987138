"""`make docs-check`: builds the docs as a site, strictly, and looks at what a browser would load for its pages: nothing of it
may come from another address, and nothing of it may be missing. Run it with the Python that has MkDocs."""

import os
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What a browser fetches by itself; a link that a person may follow is no part of it.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "form": "action"}
NOT_LOADED = {"canonical", "next", "prev", "alternate"}


class Page(HTMLParser):
    """What one page loads, and where its links within the site lead."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.classes |= set(given.get("class", "").split())
        address = given.get(LOADED.get(tag, ""), "")
        if address and given.get("rel") not in NOT_LOADED:
            self.loads.append(address)
        if tag == "a" and given.get("href"):
            self.leads.append(given["href"])


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})


def faults(site: Path) -> list[str]:
    """In words, whatever is wrong with a site."""
    found = []
    for path in sorted(site.rglob("*.html")):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        name = path.relative_to(site)
        found += [f"{name} loads {one}" for one in page.loads if _is_elsewhere(one)]
        found += [f"{name} has no {one}" for one in page.loads + page.leads if not _is_there(path, one)]
        if "mermaid" in page.classes:
            found.append(f"{name} has a diagram, for which the theme would fetch a script")
    for path in sorted(site.rglob("*.css")):
        if "url(http" in path.read_text(encoding="utf-8") or "url(//" in path.read_text(encoding="utf-8"):
            found.append(f"{path.relative_to(site)} loads something from elsewhere")
    return found


def _is_elsewhere(address: str) -> bool:
    return address.startswith(("http:", "https:", "//"))


def _is_there(page: Path, address: str) -> bool:
    path = address.partition("#")[0].partition("?")[0]
    # The page for addresses that there are not is served anywhere, so that its own are absolute.
    if not path or ":" in path or path.startswith("/"):
        return True
    target = page.parent / path
    return target.is_file() or (target / "index.html").is_file()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="peik-site-") as name:
        site = Path(name)
        build(site)
        pages = len(list(site.rglob("*.html")))
        found = faults(site)
    for fault in found:
        print(fault)
    print(f"{pages} pages, {len(found)} faults.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
