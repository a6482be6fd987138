"""REST: the audit log, and what makes REST itself write it: every call that changes something, but for the traffic."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admins.audit import Audit, AuditLine
from peik.admins.sign_ins import who_of
from peik.doors.access import Access
from peik.doors.bodies import instant_ms
from peik.doors.queries import WORD_CHARS_MAX, read_limit
from peik.doors.replies import Endpoint, Route, json_response
from peik.errors import BadInput, Denied, Problem
from peik.shown import rfc3339

_ANSWER_BYTES_MAX = 64 * 1024
_FILTERS = ("who", "action", "since", "until", "cursor", "limit")
# What programs do all day. It is in the letters, arrivals and jobs themselves, with the key that did it.
TRAFFIC = frozenset(
    {
        "acceptLetter", "acceptBatch", "notify", "notifyMany", "queueJob", "queueJobs", "noteSeen",
        "acknowledgeArrivals", "linkUser", "setReader", "importContacts", "keepImport",
    }
)  # fmt: skip


class AuditRoutes:
    def __init__(self, audit: Audit, access: Access) -> None:
        self._audit = audit
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (("GET", "/v1/audit", self.get_audit, "listAudit", "audit"),)

    async def get_audit(self, request: Request) -> Response:
        """Who did what to Peik, by whichever door, the newest first."""
        self._access.admit(request, "admin").must_serve_all()
        query = request.query_params
        unknown = set(query) - set(_FILTERS)
        if unknown:
            raise BadInput(
                code="unknown_filter",
                detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {', '.join(_FILTERS)}.",
            )
        if any(not 0 < len(value) <= WORD_CHARS_MAX for value in query.values()):
            raise BadInput(code="bad_filter", detail=f"A filter has 1 to {WORD_CHARS_MAX} characters.")
        page = await self._audit.find(
            who=query.get("who"),
            action=query.get("action"),
            since_ms=_moment(query.get("since"), "since"),
            until_ms=_moment(query.get("until"), "until"),
            cursor=_cursor(query.get("cursor")),
            limit=read_limit(request),
        )
        return json_response({"audit": [audit_view(line) for line in page.lines], "next_cursor": page.cursor})


def audit_view(line: AuditLine) -> dict[str, object]:
    return {
        "id": line.id,
        "at": rfc3339(line.at_ms),
        "who": line.who,
        "action": line.action,
        "target": line.target,
        "outcome": line.outcome,
        "detail": line.detail,
        "address": line.address,
    }


class Audited:
    """Wraps endpoints of REST, so that what they do is in the audit log: begun before, ended after."""

    def __init__(self, audit: Audit, access: Access) -> None:
        self._audit = audit
        self._access = access

    def wrap(self, verb: str, endpoint: Endpoint, operation_id: str) -> Endpoint:
        if verb == "GET" or operation_id in TRAFFIC:
            return endpoint

        async def audited(request: Request) -> Response:
            try:
                caller = self._access.admit(request, "read")
            except Denied:
                return await endpoint(request)  # which says the same, and does nothing
            who = who_of(caller.key)
            self._audit.refusals.check(who)
            line = await self._audit.begin(
                who=who,
                action=operation_id,
                target="/".join(map(str, request.path_params.values())),
                address="" if request.client is None else request.client.host,
            )
            try:
                response = await endpoint(request)
            except Problem as problem:
                if isinstance(problem, Denied):
                    self._audit.refusals.note(who)
                await self._audit.end(line, is_done=False, detail=f"{problem.code}: {problem.detail}")
                raise
            await self._audit.end(line, is_done=response.status_code < 400, detail=_outcome(response))
            return response

        audited.__doc__ = endpoint.__doc__
        return audited


def _outcome(response: Response) -> str:
    """What came to be, and how many: the rest of an answer is in Peik, and some of it is shown once."""
    if response.media_type != "application/json" or len(response.body) > _ANSWER_BYTES_MAX:
        return ""
    try:
        told = msgspec.json.decode(response.body, type=_Told)
    except msgspec.DecodeError:
        return ""
    facts = (("id", told.id), ("mark", told.mark), ("count", told.count))
    return ", ".join(f"{name} {value}" for name, value in facts if value is not None)


class _Told(msgspec.Struct):
    id: str | None = None
    mark: str | None = None  # of a person who is forgotten
    count: int | None = None


def _moment(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    try:
        return instant_ms(float(text), name)
    except ValueError:
        return instant_ms(text, name)


def _cursor(text: str | None) -> str | None:
    if text is not None and not (text.isascii() and text.isprintable()):
        raise BadInput(code="bad_cursor", detail="A cursor is the next_cursor of the page before.")
    return text
