"""Who may do what at the REST door. A route admits its request first, and asks the caller about bots and letters after."""

import hmac
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from peik.admin.model import Key, Scope, digest_of
from peik.errors import BadInput, Denied, Forbidden, NotFound, TooMany
from peik.inbox.store import ArrivalFilter, ArrivalView
from peik.outbox.store import LetterFilter, LetterView
from peik.web.limits import RequestLimits

if TYPE_CHECKING:
    from starlette.requests import Request

    from peik.core.letter import LetterCall

F = TypeVar("F", LetterFilter, ArrivalFilter)
_ADMIN = "the admin key"
_ADMITTED = "peik.key"  # of a request: whose it is, once it is known


class Access:
    """Finds the caller behind a request. One hash and one look into a dictionary: it is on every hot path."""

    def __init__(
        self,
        admin_key: str,
        *,
        find: Callable[[bytes], Key | None],
        wall_ms: Callable[[], int],
        gate: RequestLimits | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._admin = Key(id=0, name=_ADMIN, digest=digest_of(admin_key), scopes=("admin",))
        self._find = find
        self._wall_ms = wall_ms
        self._gate = gate
        self._now = now

    def admit(self, request: "Request", scope: Scope) -> "Caller":
        """Who asks. Raises Denied without a valid key, Forbidden if the key does not reach so far, TooMany if it comes too
        often. A request is counted once, however often it is asked about."""
        key = request.scope.get(_ADMITTED)
        if key is None:
            key = request.scope[_ADMITTED] = self._find_key(request)
        caller = Caller(key)
        caller.must_have(scope)
        return caller

    def known(self, request: "Request") -> "Caller | None":
        """Who asks, where nobody has to say it. None for a stranger, and for a key that may not even read."""
        if header_in(request.scope, b"authorization") is None and header_in(request.scope, b"x-api-key") is None:
            return None
        try:
            return self.admit(request, "read")
        except Denied:
            return None

    def _find_key(self, request: "Request") -> Key:
        scheme, _, given = (header_in(request.scope, b"authorization") or "").partition(" ")
        given = given if scheme.lower() == "bearer" else header_in(request.scope, b"x-api-key") or ""
        if not given:
            raise Denied(code="no_key", detail="Send the key as `Authorization: Bearer <key>`.")
        key = self._known(digest_of(given.strip()))
        if key is None:
            self._check_guess(request, given)
            raise Denied(
                code="wrong_key", detail="This key is not known here. `peik serve` prints where the admin key is kept."
            )
        if key.is_over(self._wall_ms()):
            raise Denied(code="expired_key", detail="The time of this key is over. Ask for a new one.")
        if self._gate is not None:
            wait_s = self._gate.holder_wait_s(host_of(request.scope), key.id, key.rate, self._now())
            if wait_s:
                raise too_often(wait_s)
        return key

    def _check_guess(self, request: "Request", given: str) -> None:
        """Raises TooMany for an address that has shown too many wrong keys."""
        if self._gate is not None:
            wait_s = self._gate.wrong_wait_s(host_of(request.scope), given, self._now())
            if wait_s:
                raise too_often(wait_s)

    def _known(self, digest: bytes) -> Key | None:
        # The look-up itself tells nothing by its time: what is compared is a hash that the caller cannot steer.
        key = self._find(digest) or self._admin
        return key if hmac.compare_digest(key.digest, digest) else None


def header_in(scope: Mapping[str, Any], name: bytes) -> str | None:
    """What a request says under a name in small letters, as `request.headers` would say it, for a tenth of the price."""
    for one, value in scope["headers"]:
        if one == name:
            return str(value, "latin-1")
    return None


def host_of(scope: Mapping[str, Any]) -> str | None:
    """Where a request comes from, as far as the server knows it. None: from this process."""
    client = scope.get("client")
    return None if client is None else str(client[0])


def too_often(wait_s: float) -> TooMany:
    """In the same words for all: whether a key was right is not told to somebody who tries out many."""
    return TooMany(
        code="too_many_requests",
        detail="Too many requests by this key or from this address. Wait as Retry-After says.",
        wait_s=wait_s,
    )


class Caller:
    """The owner of a key, and the bots that it was made for."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key

    def must_have(self, scope: Scope) -> None:
        """Raises Forbidden if the key does not reach so far."""
        if not self.key.allows(scope):
            raise Forbidden(
                code="wrong_scope",
                detail=f"This needs a key with the scope {scope}; yours has {', '.join(self.key.scopes)}.",
            )

    @property
    def has_key(self) -> bool:
        """Not a program or a command that asks Peik in its own process."""
        return self.key.id >= 0

    def own(self, call: "LetterCall") -> "LetterCall":
        """A call as this caller may make it: for a bot of its key, told to its key's webhook. Raises Forbidden."""
        bot_id = self.bot_id_of(call.bot_id)
        hook = self.key.id if call.hook is None and self.key.webhook_url is not None else call.hook
        if (bot_id, hook) == (call.bot_id, call.hook):
            return call
        return msgspec.structs.replace(call, bot_id=bot_id, hook=hook)

    def own_all(self, calls: "list[LetterCall]") -> "list[LetterCall]":
        """The same for many. A key for all bots and without a webhook leaves calls as they are."""
        if self.key.bot_ids is None and self.key.webhook_url is None:
            return calls
        return [self.own(call) for call in calls]

    def bot_id_of(self, asked: int | None) -> int | None:
        """As asked, or the only bot of this key. None leaves it to the service."""
        bot_ids = self.key.bot_ids
        if bot_ids is None:
            return asked
        if asked is not None:
            self.must_serve(asked)
            return asked
        if len(bot_ids) == 1:
            return next(iter(bot_ids))
        raise BadInput(code="which_bot", detail="This key is for several bots: say which with bot_id.")

    def must_serve(self, bot_id: int) -> None:
        """Raises Forbidden for a bot that this key is not for, whether or not there is such a bot."""
        if not self.key.serves(bot_id):
            raise Forbidden(code="wrong_bot", detail=f"This key is not for bot {bot_id}.")

    def must_serve_all(self) -> None:
        """For what concerns Peik as a whole: keys, routes, new bots. Raises Forbidden for a key of some bots only."""
        if self.key.bot_ids is not None:
            raise Forbidden(code="wrong_bot", detail="This is for keys without bot_ids: it concerns all bots.")

    def must_see(self, view: LetterView) -> None:
        """Raises NotFound for another bot's letter, in the words for one that is not there at all."""
        if not self.key.serves(view.bot_id):
            raise NotFound(code="unknown_letter", detail=f"There is no letter {view.id} here (any more).")

    def must_see_arrival(self, view: ArrivalView) -> None:
        """The same for another bot's arrival."""
        if not self.key.serves(view.arrival.bot_id):
            raise NotFound(code="unknown_arrival", detail=f"There is no arrival {view.arrival.id} here (any more).")

    def narrow(self, wanted: F) -> F:
        """The same filter, over the bots of this key only."""
        if self.key.bot_ids is None:
            return wanted
        if wanted.bot_id is not None:
            self.must_serve(wanted.bot_id)
        return msgspec.structs.replace(wanted, bot_ids=self.key.bot_ids)


def caller_named(name: str) -> Caller:
    """Somebody to whom all of Peik belongs, and who needs no key: a program with Peik in its process, a command on the store."""
    return Caller(Key(id=-1, name=name, digest=b"", scopes=("admin",)))
