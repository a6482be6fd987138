"""Tells webhooks how letters ended: at least once, signed, in parallel, and patiently where nobody answers.

When a letter with a hook ends, the store itself writes the hook in the same commit, so no kind of end can forget it.
What waits is in the store, so a crash loses nothing; what was on its way then is told again. Endpoints are apart: one that
has not answered well (yet) gets one try at a time, and never takes a place from those that have.
"""

import asyncio
import base64
import enum
import hashlib
import hmac
import itertools
import secrets
from collections import deque
from collections.abc import Sequence

import msgspec

from peik.clock import Clock
from peik.core.events import Event, Events, HookDropped, HookFailed, HookTold, Settled, StoreFailed, Surprise
from peik.core.units import rfc3339
from peik.errors import StoreUnavailable
from peik.outbox.answers import LetterAnswer
from peik.outbox.store import Hook, HookDeferred, HookStore, LetterView, Posted, Poster
from peik.wakeup import Wakeup

# What a webhook message is: its type, its signature by the Standard Webhooks rules, and when to try again. Pure.


SECRET_PREFIX = "whsec_"  # noqa: S105  a prefix, not a secret
SECRET_BYTES = 32

_S = 1000
# After the nth failed try. Then every ten hours, for three days in all.
SCHEDULE_MS = (5 * _S, 30 * _S, 120 * _S, 600 * _S, 3600 * _S, 3 * 3600 * _S, 10 * 3600 * _S)
GIVE_UP_MS = 3 * 24 * 3600 * _S


class HookVerdict(enum.Enum):
    DONE = "done"
    AGAIN = "again"
    STOP = "stop"


def judge(status: int) -> HookVerdict:
    """What an answer means; 0 is no answer. A redirect is not followed: it could lead where the address may not."""
    if 200 <= status < 300:
        return HookVerdict.DONE
    return HookVerdict.STOP if status == 410 else HookVerdict.AGAIN


def next_wait_ms(*, tries: int, began_at_ms: int, now_ms: int) -> int | None:
    """How long to wait after a number of failed tries, or None: it has been tried for three days."""
    wait_ms = SCHEDULE_MS[min(tries, len(SCHEDULE_MS)) - 1]
    return wait_ms if now_ms + wait_ms <= began_at_ms + GIVE_UP_MS else None


def secret_of(entropy: bytes) -> str:
    """A signing secret in the form that receivers' libraries take."""
    return SECRET_PREFIX + base64.b64encode(entropy).decode()


async def own_secret(store: HookStore) -> str:
    """What letters with an address of their own are signed with. Made at the first use, and kept."""
    return await store.secret(OWN_SECRET, secret_of(secrets.token_bytes(SECRET_BYTES)))


def signed_headers(*, secret: str, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """The three headers of Standard Webhooks. The time is that of the try, so that receivers can refuse old ones."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signature = hmac.digest(key, f"{message_id}.{at_s}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


TRY_S = 15.0  # Standard Webhooks recommends 15 to 30 s
WIDTH_MAX = 8  # at once to one endpoint; it begins with one, and every success doubles it
WELL_MAX = 64  # at once to all whose last try went well
OTHER_MAX = 32  # at once to all others: new ones and failing ones
IN_HAND_MAX = 4096
EACH = 64  # read of one endpoint at a time
OTHER_EACH = 2  # in hand of one that has not answered well: a thousand of those must not fill the hand
REMEMBERED_MAX = 4096  # endpoints of which it is known how the last try went
ENDPOINTS = 256  # looked at in one read
LOOK_S_MIN = 0.05  # letters may end thousands of times a second; looks are far between
LOOK_S_MAX = 60.0  # look again at the latest after so long, whatever the store said
RETRY_S = 2.0
OWN_SECRET = "webhook"  # noqa: S105  its name in the store


class _Endpoint:
    """What is known of one endpoint, and what waits for it here."""

    __slots__ = ("busy", "has_more", "is_well", "waiting", "width")

    def __init__(self) -> None:
        self.waiting: deque[Hook] = deque()
        self.busy = 0
        self.width = 1
        self.is_well = False
        self.has_more = False  # in the store

    def note(self, *, is_well: bool) -> None:
        self.is_well = is_well
        self.width = min(self.width * 2, WIDTH_MAX) if is_well else 1

    @property
    def may_begin(self) -> bool:
        return bool(self.waiting) and self.busy < self.width

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.busy


class Hooks:
    def __init__(self, *, store: HookStore, poster: Poster, clock: Clock, settled: Clock, events: Events) -> None:
        self._store = store
        self._poster = poster
        self._clock = clock
        self._settled = settled
        self._events = events
        self._bell = Wakeup()
        self._endpoints: dict[str, _Endpoint] = {}
        self._ready: dict[str, _Endpoint] = {}  # those for which something waits here
        self._in_hand: set[int] = set()
        self._left_hand: set[int] = set()  # since the look that is under way began: it may still show them as due
        self._busy = {True: 0, False: 0}  # tries on their way, by whether their endpoint was well
        self._is_stale = True  # something may be due that was not when the store was last asked
        self._is_cut = False  # the hand was full before the store had shown all
        self._is_draining = False
        self._looked_at = -LOOK_S_MIN
        self._look_at = 0.0
        self._cursor = ""
        self._task: asyncio.Task[None] | None = None
        self._came_back: asyncio.Future[None] | None = None
        self._secret: str | None = None
        events.listen(self._listen, Settled)

    def _listen(self, events: Sequence[Event]) -> None:
        """A letter ended, perhaps with a hook: only the store knows, and is asked soon."""
        if not self._is_stale and any(isinstance(event, Settled) and event.state.is_final for event in events):
            self.look()

    async def own_secret(self) -> str:
        if self._secret is None:
            self._secret = await own_secret(self._store)
        return self._secret

    # ---- running ----

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to tell. One node does this for all, under the lease of the chores."""
        self._is_draining = False
        self._task = group.create_task(self.run())
        self.look()

    def stop(self) -> None:
        """End at once. What waits here is in the store, and told by the next one who does this."""
        if self._task is not None:
            self._task.cancel()
            self._task = None  # once: a second cancel would keep a reading from ending its transaction
        for endpoint in self._endpoints.values():
            self._in_hand.difference_update(hook.id for hook in endpoint.waiting)
            endpoint.waiting.clear()
        self._ready.clear()

    def look(self) -> None:
        """Another process wrote to the store, and may have ended letters."""
        self._is_stale = True
        self._bell.ring()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                if not self._is_draining and self._clock.mono() >= self._next_look():
                    await self._look_or_wait()
                self._start(group)
                await self._bell.wait(None if self._is_draining else self._next_look())

    def _next_look(self) -> float:
        return self._looked_at + LOOK_S_MIN if self._is_stale else self._look_at

    async def drain(self, grace_s: float) -> None:
        """Begin nothing more, and let what is on its way come back. What does not in time is told again later."""
        self._is_draining = True
        deadline = self._clock.mono() + grace_s
        while any(self._busy.values()) and self._clock.mono() < deadline:
            self._came_back = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._came_back], timeout=deadline - self._clock.mono())

    async def _look_or_wait(self) -> None:
        try:
            await self._look()
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(what="webhooks", why=error.detail))
            self._is_stale = False
            self._look_at = self._clock.mono() + RETRY_S

    async def _look(self) -> None:
        """Take in hand what is due, endpoint after endpoint, as far as there is room."""
        self._is_stale = False
        self._left_hand.clear()
        self._looked_at = self._clock.mono()
        self._look_at = self._looked_at + LOOK_S_MAX  # what is put off while the store is read makes it sooner
        at_ms = self._clock.wall_ms()
        is_last_round = self._cursor == ""
        while len(self._in_hand) < IN_HAND_MAX:
            page = await self._store.hooks_due(at_ms=at_ms, after=self._cursor, endpoints=ENDPOINTS, each=EACH)
            self._take(page.hooks)
            if page.next_at_ms is not None and page.next_at_ms > at_ms + SCHEDULE_MS[-1]:
                at_ms = page.next_at_ms  # nobody is put off for so long: the wall clock was put back, and it is due
                self._cursor, is_last_round = "", True
                continue
            if page.next_at_ms is not None:
                self._look_at = min(self._look_at, self._looked_at + (page.next_at_ms - at_ms) / 1000)
            self._cursor = page.last or ""
            if page.last is None and is_last_round:
                break
            is_last_round = is_last_round or page.last is None  # on from where a look was cut, then all around
        self._is_cut = len(self._in_hand) >= IN_HAND_MAX

    def _take(self, hooks: Sequence[Hook]) -> None:
        for name, group in itertools.groupby(hooks, key=lambda hook: hook.endpoint):
            found = list(group)
            endpoint = self._endpoints.setdefault(name, _Endpoint())
            fresh = [hook for hook in found if hook.id not in self._in_hand and hook.id not in self._left_hand]
            taken = fresh if endpoint.is_well else fresh[: max(0, OTHER_EACH - endpoint.busy - len(endpoint.waiting))]
            endpoint.has_more = len(found) >= EACH or len(taken) < len(fresh)
            if taken:
                endpoint.waiting.extend(taken)
                self._in_hand.update(hook.id for hook in taken)
                self._ready[name] = endpoint

    def _start(self, group: asyncio.TaskGroup) -> None:
        """Round robin over the endpoints, one of each at a turn, until none may begin another."""
        is_any = not self._is_draining
        while is_any:
            is_any = False
            for name, endpoint in list(self._ready.items()):
                is_well = endpoint.is_well
                if endpoint.may_begin and self._busy[is_well] < (WELL_MAX if is_well else OTHER_MAX):
                    endpoint.busy += 1
                    self._busy[is_well] += 1
                    group.create_task(self._carry(endpoint, endpoint.waiting.popleft(), was_well=is_well))
                    is_any = True
                if not endpoint.waiting:
                    del self._ready[name]

    async def _carry(self, endpoint: _Endpoint, hook: Hook, *, was_well: bool) -> None:
        try:
            await self._tell(endpoint, hook)
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(what="webhooks", why=error.detail))
            await asyncio.sleep(RETRY_S)
            self._is_stale = True
        except Exception as error:  # noqa: BLE001  one hook's surprise is told, and the others go on
            self._events.tell(Surprise(where="webhook", error=f"{type(error).__name__}: {error}"))
            await asyncio.sleep(LOOK_S_MAX)  # it is still due, and must not be told without end
        finally:
            endpoint.busy -= 1
            self._busy[was_well] -= 1
            self._in_hand.discard(hook.id)
            self._left_hand.add(hook.id)
            self._after(hook.endpoint, endpoint)

    def _after(self, name: str, endpoint: _Endpoint) -> None:
        """A place is free again."""
        while not endpoint.is_well and len(endpoint.waiting) > OTHER_EACH:
            self._in_hand.discard(endpoint.waiting.pop().id)  # it waits in the store
            endpoint.has_more = True
        is_cut = self._is_cut and len(self._in_hand) < IN_HAND_MAX // 2
        if is_cut or (endpoint.has_more and len(endpoint.waiting) <= endpoint.width):
            self._is_stale = True
        if endpoint.is_idle and len(self._endpoints) > REMEMBERED_MAX:
            del self._endpoints[name]
        if self._came_back is not None and not self._came_back.done():
            self._came_back.set_result(None)
        self._bell.ring()

    # ---- one hook: send, judge, settle, tell ----

    async def _tell(self, endpoint: _Endpoint, hook: Hook) -> None:
        body = await self._body(hook)
        posted = await self._post(hook, body.encode())
        verdict = judge(posted.status)
        endpoint.note(is_well=verdict is not HookVerdict.AGAIN)
        now_ms = self._clock.wall_ms()
        wait_ms = next_wait_ms(tries=hook.tries + 1, began_at_ms=hook.at_ms, now_ms=self._settled.wall_ms())
        why = f"it answered {posted.status}" if posted.status else posted.why
        told: Event
        if verdict is HookVerdict.DONE:
            told = HookTold(letter_id=hook.letter_id, endpoint=hook.endpoint, tries=hook.tries + 1)
            await self._settle([hook.id], [])
        elif verdict is HookVerdict.STOP or wait_ms is None:
            told = HookDropped(letter_id=hook.letter_id, endpoint=hook.endpoint, tries=hook.tries + 1, why=why)
            await self._settle([hook.id], [])
        else:
            wait_s = wait_ms / 1000
            told = HookFailed(letter_id=hook.letter_id, endpoint=hook.endpoint, why=why, wait_s=wait_s)
            deferred = HookDeferred(hook_id=hook.id, due_at_ms=now_ms + wait_ms, tries=hook.tries + 1, body=body)
            await self._settle([], [deferred])
            self._look_at = min(self._look_at, self._clock.mono() + wait_s)
        self._events.tell(told)

    async def _body(self, hook: Hook) -> str:
        content = await self._store.hook_content(hook)
        return content.body or _body(hook, content.letter)

    async def _post(self, hook: Hook, body: bytes) -> Posted:
        secret = hook.secret or await self.own_secret()
        headers = signed_headers(
            secret=secret,
            message_id=f"msg_{hook.id}_{hook.at_ms:x}",
            at_s=self._clock.wall_ms() // 1000,
            body=body,
        )
        return await self._poster.post(hook.url, headers, body, timeout_s=TRY_S)

    async def _settle(self, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
        """Until the store takes it: a hook that was told must not be told again because a disk was full for a while."""
        while True:
            try:
                return await self._store.settle_hooks(over, deferred)
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="webhooks", why=error.detail))
                await asyncio.sleep(RETRY_S)


def _body(hook: Hook, letter: LetterView | None) -> str:
    """The message. If the letter itself is gone by now, what is known of it without."""
    if letter is None:
        data: object = {"id": str(hook.letter_id), "state": hook.state, "finished_at": rfc3339(hook.at_ms)}
    else:
        # As it ended: somebody may have retried it since.
        data = LetterAnswer.of(msgspec.structs.replace(letter, state=hook.state, settled_at_ms=hook.at_ms))
    message = {"type": f"letter.{hook.state}", "timestamp": rfc3339(hook.at_ms), "data": data}
    return msgspec.json.encode(message).decode()
