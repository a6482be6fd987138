"""`make house`: the shape of the package in figures, beside what we want them to be. It reads the source and runs nothing."""

import ast
import gc
import io
import keyword
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "peik"
# Where a comment may send its reader: to a page by its place or its name in capitals, which has to be here. Bare numbers of
# sections and marks of requirements are those of documents that are not in the repository.
_PAGE = re.compile(r"(?<![\w/.-])(?:docs/[\w/-]+|[A-Z]{2,})\.md\b")
_MARK = re.compile(
    r"\b(?:DESIGN|TELEGRAM|REQUIREMENTS|HOUSE|FEATURES)(?= §| S\d|'s\b| has\b)|(?<!RFC \d{4} )§ ?\d|\bS[1-4]\.\d"
)
# The walks of ARCHITECTURE.md: whoever follows one opens so many files at most.
WALKS = {"The way of a letter": 18, "The way of an update": 18, "The way of a failed send": 10}
_STEP = re.compile(r"^\d+\. \[`[^`]+`\]\((peik/[^)]+)\)", re.MULTILINE)
_FOLDERS = ("peik", "simulation", "tests", "bench", "proofs", "examples", "docs", "deploy")
_READ = (".py", ".pyi", ".sql", ".lua", ".md", ".toml", ".yml", ".yaml", ".js", ".mjs", ".ts", ".css", ".html")


class Figure(NamedTuple):
    name: str
    value: int
    goal: int
    examples: tuple[str, ...] = ()


class Module(NamedTuple):
    name: str  # peik.core.lanes
    path: Path
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # of the tree, all
    lines: int

    @property
    def folder(self) -> str:
        return self.name.rpartition(".")[0]


def modules(package: Path = PACKAGE) -> list[Module]:
    """All of the package."""
    is_collecting = gc.isenabled()
    gc.disable()  # a million nodes, none of them garbage: to look for some takes twice as long as to parse them
    try:
        return [_module(path, package) for path in sorted(package.rglob("*.py"))]
    finally:
        if is_collecting:
            gc.enable()


def _module(path: Path, package: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
    tree = ast.parse(text)
    return Module(name, path, tree, tuple(ast.walk(tree)), text.count("\n"))


def figures(found: list[Module]) -> list[Figure]:
    at_root = [one.name for one in found if one.path.parent == PACKAGE]
    folders = {one.path.relative_to(PACKAGE).parts[0] for one in found if one.path.parent != PACKAGE}
    named = [one for one in found if one.path.name != "__init__.py"]
    return [
        Figure("files", len(found), 455),
        Figure("lines", sum(one.lines for one in found), 105_000),
        Figure("modules at the root", len(at_root), 5, tuple(at_root)),
        Figure("folders at the root", len(folders), 29),
        _counted("public class names in more than one file", _same_names(found), 10),
        _counted("modules that end in -ing", [one.name for one in named if one.name.endswith("ing")], 15),
        _counted("modules imported once, by a sibling", _only_children(named), 60),
        _counted("protocols", list(_protocols(found)), 60),
        _counted("pass-through functions", list(_pass_throughs(found)), 60),
        _counted("references to what is not in the repository", list(dangling()), 0),
        _counted("names in comments of what is not in the code", list(strange()), 0),
        _counted("operations without a declaration", undeclared(found), 0),
        _counted("operations that are not declared on their method", [*routes(found)], 0),
        *(_counted(f"files on {title[0].lower()}{title[1:]}", walk(title), most) for title, most in WALKS.items()),
    ]


def walk(title: str, page: Path = ROOT / "ARCHITECTURE.md") -> list[str]:
    """The files of a walk, in order: one to a step."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"## {title}\n")
    return _STEP.findall(rest.partition("\n## ")[0])


def _counted(name: str, found: list[str], goal: int) -> Figure:
    return Figure(name, len(found), goal, tuple(found))


def _same_names(found: list[Module]) -> list[str]:
    places: defaultdict[str, set[str]] = defaultdict(set)
    for one in found:
        for node in one.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(one.name)
    return [f"{name}: {', '.join(sorted(where))}" for name, where in sorted(places.items()) if len(where) > 1]


def _only_children(found: list[Module]) -> list[str]:
    """Modules that one other of their own folder imports and nobody else does: candidates to be one file with it."""
    names = {one.name for one in found}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for one in found:
        for imported in _imports(one, names):
            if imported != one.name:
                importers[imported].add(one.name)
    folder_of = {one.name: one.folder for one in found}
    return [
        f"{name} (by {by})"
        for name, (by, *more) in sorted((name, sorted(some)) for name, some in importers.items())
        if not more and folder_of[name] == folder_of[by]
    ]


def _imports(one: Module, names: set[str]) -> Iterator[str]:
    for node in one.nodes:
        if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if name in names)
            if node.module in names and not all(name in names for name in inner):
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)


def _protocols(found: list[Module]) -> Iterator[str]:
    """Of types. One of asyncio's is a class of its own that speaks to a socket."""
    for one in found:
        for node in one.nodes:
            bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
            if any(base.partition("[")[0] in ("Protocol", "typing.Protocol") for base in bases):
                yield f"{one.name}.{node.name}"


def _pass_throughs(found: list[Module]) -> Iterator[str]:
    """Functions that only call one of the same name, or hand on all that they were given to one of another."""
    for one in found:
        for node in one.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _only_passes(node):
                yield f"{one.name}:{node.lineno} {node.name}"


def _only_passes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = [node for node in function.body if not _is_docstring(node)]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    given = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    passed = [*call.args, *(keyword.value for keyword in call.keywords)]
    wanted = [name for name in given if name not in ("self", "cls")]
    handed = [node.id for node in passed if isinstance(node, ast.Name)]
    return len(handed) == len(passed) == len(wanted) and set(handed) == set(wanted) and bool(wanted)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def texts(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Source, tests and docs: whatever of ours people read. Without this file, which has to name what it looks for."""
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            is_ours = not {"node_modules", ".venv"} & set(path.relative_to(root).parts)
            if is_ours and path.suffix in _READ and path != Path(__file__):
                yield path, path.read_text(encoding="utf-8")


def dangling(root: Path = ROOT) -> Iterator[str]:
    """Where source, tests or docs send their reader to a document that is not here."""
    for path, text in texts(root):
        if _PAGE.search(text) is None and _MARK.search(text) is None:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            pages = [(root / page, path.parent / page) for page in _PAGE.findall(line)]
            if _MARK.search(line) or not all(one.is_file() or other.is_file() for one, other in pages):
                yield f"{path.relative_to(root).as_posix()}:{number}"


def undeclared(found: list[Module]) -> list[str]:
    """Routes in a `table()` without a row in a table of operations. A row of one is (verb, path, handler, name, tag)."""
    declared = {name for one in found for name in _declared(one.tree)}
    return sorted(f"{name} ({where})" for name, where in routes(found).items() if name not in declared)


def routes(found: list[Module]) -> dict[str, str]:
    """Operations that stand as rows in a `table()`, and where. All others have `@operation` on their method."""
    return {name: one.name for one in found for name in _routes(one)}


def _routes(one: Module) -> Iterator[str]:
    for function in one.nodes:
        if isinstance(function, ast.FunctionDef) and function.name == "table":
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Tuple)
                    and len(node.elts) == 5
                    and isinstance(name := node.elts[3], ast.Constant)
                ):
                    yield str(name.value)


def _declared(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        is_table = isinstance(node, ast.AnnAssign) and "Operation" in ast.unparse(node.annotation)
        if is_table and isinstance(node.value, ast.Dict):
            yield from (str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))


# Names in comments and docstrings. A name in backticks must be in the code, part by part; a file must be there.

_NAME = re.compile(r"`([A-Za-z_][\w./]*)(?:\(\))?`")
_FILE = re.compile(r"(?<![\w/.*{-])((?:\w+/)*\w+\.py)\b")
_WORD = re.compile(r"\w+")
# Since Python 3.12 an f-string is several tokens.
_SAYING = (tokenize.NAME, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
_CODE = ("peik", "simulation", "tests", "proofs", "bench", "docs", "examples")


def strange(root: Path = ROOT) -> Iterator[str]:
    """Where a comment or a docstring of the package names what is nowhere in the code, or a file that is not there."""
    known, prose, others = set(keyword.kwlist), [], []
    for folder in _CODE:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix == ".py" and "node_modules" not in path.parts:
                known |= {*path.relative_to(root).with_suffix("").parts}
                text = path.read_text(encoding="utf-8")
                if folder not in ("peik", "simulation"):
                    others.append(text)
                    continue
                words, said = _split(text)
                known |= words
                prose += [(path, number, text, _NAME.findall(text)) for number, text in said]
            elif folder == "peik" and path.suffix in (".sql", ".lua", ".html", ".toml", ".js"):
                known |= {*_WORD.findall(path.read_text(encoding="utf-8")), path.stem}
    sought = {word for *_, names in prose for name in names for word in _parts(name)} - known
    for text in others:  # to split one takes long, and most have none of these
        if not sought.isdisjoint(_WORD.findall(text)):
            known |= _split(text)[0]
            sought -= known
    for path, number, text, found in prose:
        names = [name for name in found if not known.issuperset(_parts(name))]
        places = (root, root / "peik", path.parent)
        gone = [file for file in _FILE.findall(text) if not any((place / file).is_file() for place in places)]
        yield from (f"{path.relative_to(root).as_posix()}:{number} {name}" for name in dict.fromkeys((*names, *gone)))


def _parts(name: str) -> list[str]:
    return _WORD.findall(name.removesuffix(".py"))


def _split(text: str) -> tuple[set[str], list[tuple[int, str]]]:
    """The words of the code, strings included; and the lines of comments and docstrings, by their numbers."""
    words: set[str] = set()
    said: list[tuple[int, str]] = []
    is_start = True  # of a statement: a string there is a docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            said.append((token.start[0], token.string))
        elif token.type == tokenize.STRING and is_start:
            said += enumerate(token.string.splitlines(), start=token.start[0])
        elif token.type in _SAYING:
            words.update(_WORD.findall(token.string))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            is_start = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    return words, said


def main() -> None:
    is_whole = "--all" in sys.argv
    for figure in figures(modules()):
        mark = "+" if figure.value <= figure.goal else "-"
        print(f"{mark} {figure.name:<48}{figure.value:>8,}   goal {figure.goal:,}")
        if is_whole:
            for example in figure.examples:
                print(f"      {example}")
    largest = Counter({one.name: one.lines for one in modules()}).most_common(5)
    print("  largest: " + ", ".join(f"{name} {lines}" for name, lines in largest))


if __name__ == "__main__":
    main()
