"""The way around: every section in its group, as far as there is such a page and the visitor may see it."""

import msgspec

from peik.core.role import Role

# What each needs: a role, and whether a key of some bots only may see it as well.
_GROUPS: tuple[tuple[str, tuple[tuple[str, str, Role, bool], ...]], ...] = (
    ("nav_now", (("nav_overview", "/admin", Role.VIEWER, True),)),
    (
        "nav_traffic",
        (
            ("nav_letters", "/admin/letters", Role.VIEWER, True),
            ("nav_dead", "/admin/dead", Role.VIEWER, True),
            ("nav_lanes", "/admin/lanes", Role.VIEWER, True),
            ("nav_arrivals", "/admin/arrivals", Role.VIEWER, True),
            ("nav_chats", "/admin/chats", Role.VIEWER, True),
        ),
    ),
    (
        "nav_outreach",
        (
            ("nav_broadcasts", "/admin/broadcasts", Role.VIEWER, True),
            ("nav_notifications", "/admin/notifications", Role.VIEWER, True),
        ),
    ),
    (
        "nav_work",
        (
            ("nav_jobs", "/admin/jobs", Role.VIEWER, False),
            ("nav_sessions", "/admin/sessions", Role.VIEWER, False),
            ("nav_archive", "/admin/archive", Role.VIEWER, False),
        ),
    ),
    (
        "nav_peik",
        (
            ("nav_bots", "/admin/bots", Role.VIEWER, True),
            ("nav_nodes", "/admin/nodes", Role.VIEWER, False),
            ("nav_keys", "/admin/keys", Role.ADMIN, False),
            ("nav_people", "/admin/people", Role.ADMIN, False),
            ("nav_audit", "/admin/audit", Role.ADMIN, False),
            ("nav_settings", "/admin/settings", Role.ADMIN, False),
        ),
    ),
)


class Link(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    path: str
    is_here: bool


class LinkGroup(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    links: tuple[Link, ...]


class Nav(msgspec.Struct, frozen=True):
    paths: frozenset[str]

    def has(self, path: str) -> bool:
        return path in self.paths

    def groups(self, role: Role, here: str, *, is_whole: bool) -> tuple[LinkGroup, ...]:
        groups = []
        for text, rows in _GROUPS:
            links = tuple(
                Link(text=key, path=path, is_here=_is_within(here, path))
                for key, path, needed, is_for_parts in rows
                if path in self.paths and role.allows(needed) and (is_whole or is_for_parts)
            )
            if links:
                groups.append(LinkGroup(text=text, links=links))
        return tuple(groups)


def _is_within(here: str, path: str) -> bool:
    return here == path or (path != "/admin" and here.startswith(path + "/"))
