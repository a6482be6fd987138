"""Templates become pages here: Jinja with everything escaped, and the few functions that all templates may use."""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import jinja2
from starlette.requests import Request

from peik import __version__
from peik.clock import Clock
from peik.config import shown_address
from peik.core.role import Role
from peik.doors.dashboard.assets import Assets
from peik.doors.dashboard.charts import seconds_text
from peik.doors.dashboard.nav import Nav
from peik.doors.dashboard.times import age_text, utc_text
from peik.doors.dashboard.words import LANGUAGES, RTL, Words
from peik.errors import Problem

if TYPE_CHECKING:
    from peik.doors.dashboard.board import Said, Visitor

_FOLDER = Path(__file__).with_name("templates")


class Renderer:
    def __init__(self, words: Words, assets: Assets, clock: Clock, *, alerts: "Callable[[Visitor], int]") -> None:
        """`alerts`: how many are ongoing that concern a visitor. Every page shows it."""
        self.words = words
        self._clock = clock
        self._nav = Nav(frozenset())
        self._alerts = alerts
        self._jinja = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._jinja.globals.update(
            static=assets.url,
            languages=LANGUAGES,
            version=__version__,
            utc=utc_text,
            Role=Role,
            pretty=pretty,
            secs=seconds_text,
            without_secrets=shown_address,
        )

    def open(self, paths: Collection[str]) -> None:
        """Links lead to these pages only."""
        self._nav = Nav(frozenset(paths))

    def render(
        self,
        template: str,
        *,
        request: Request,
        visitor: "Visitor | None",
        language: str = "en",
        theme: str = "auto",
        said: "Said | None" = None,
        context: Mapping[str, object],
    ) -> str:
        language = language if visitor is None else visitor.language
        now_ms = self._clock.wall_ms()
        path = request.url.path

        def say(key: str, **places: object) -> str:
            return self.words.say(language, key, **places)

        def with_query(**changed: object) -> str:
            """This page with some of its query changed; None takes one away."""
            query = {**request.query_params, **changed}
            kept = {name: value for name, value in query.items() if value not in (None, "")}
            return f"{path}?{urlencode(kept)}" if kept else path

        def problem_text(problem: Problem) -> str:
            known = f"problem_{problem.code}"
            return say(known) if known in self.words else problem.detail

        values: dict[str, object] = {
            "t": say,
            "knows": self.words.__contains__,
            "problem_text": problem_text,
            "with_query": with_query,
            "query": dict(request.query_params),
            "path": path,
            "visitor": visitor,
            "csrf": "" if visitor is None else visitor.csrf,
            "language": language,
            "direction": "rtl" if language in RTL else "ltr",
            "theme": theme if visitor is None else visitor.theme,
            "nav": () if visitor is None else self._nav.groups(visitor.role, path, is_whole=visitor.bot_ids is None),
            "has_page": self._nav.has,
            "alerts_count": 0 if visitor is None else self._alerts(visitor),
            "age": lambda ms: age_text(ms, now_ms, say),
            "now_ms": now_ms,
            "said": said,
            "problem": None,
        }
        return self._jinja.get_template(template).render({**values, **context})


def pretty(value: object) -> str:
    """JSON for people: indented, with letters of all scripts as they are. Text that is no JSON stays as it is."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
