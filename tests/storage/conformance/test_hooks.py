"""Hooks: the duty to tell how a letter ended is stored with that end, whatever the end, and stays until it is settled."""

import pytest

from peik.admin.model import Key
from peik.core.letter import OnUncertain, State
from peik.core.lifecycle import Move, end_unsent, settle
from peik.outbox.store import Hook, HookContent, HookDeferred, HooksDue, Retention, Store
from tests.storage.acts import (
    BROKE_OFF,
    HOUR,
    LATER,
    NEVER,
    NOW,
    SENT,
    accept,
    advance,
    attempt,
    draft,
    edit,
    find,
    left_in_flight,
    mark,
)
from tests.storage.places import Place

URL = "https://shop.example/hook?order=5"


async def due(store: Store, at_ms: int = NOW, after: str = "", endpoints: int = 100, each: int = 100) -> HooksDue:
    return await store.hooks_due(at_ms=at_ms, after=after, endpoints=endpoints, each=each)


async def told(store: Store, at_ms: int = NOW) -> list[tuple[int, State]]:
    return [(hook.letter_id, hook.state) for hook in (await due(store, at_ms)).hooks]


async def test_a_letter_that_ended_is_to_be_told_with_all_that_is_known_of_it(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(hook=URL, metadata='{"order":5}'))
        assert await told(store) == []
        await attempt(store, await find(store, letter_id), SENT, at_ms=NOW)
        (hook,) = (await due(store)).hooks
        assert (hook.endpoint, hook.url, hook.secret) == ("https://shop.example", URL, None)
        assert (hook.letter_id, hook.state, hook.at_ms, hook.tries) == (letter_id, State.COMPLETED, NOW, 0)
        content = await store.hook_content(hook)
        assert content.body is None
        assert content.letter is not None
        assert (content.letter.result, content.letter.metadata) == ('{"message_id":11}', '{"order":5}')


async def test_letters_without_a_hook_are_not_told(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft())
        await attempt(store, await find(store, letter_id), SENT)
        assert await told(store) == []


async def test_every_way_to_an_end_is_told_and_nothing_before_it(place: Place) -> None:
    async with place.open() as store:
        sent, refused, expired, shut, cancelled, old = await accept(
            store,
            *(draft(chat, hook=URL) for chat in (1, 2)),
            draft(3, hook=URL, expires_at_ms=NOW + 1),
            *(draft(chat, hook=URL) for chat in (4, 5)),
            edit(hook=URL),
        )
        await attempt(store, await find(store, sent), LATER)
        assert await told(store) == []
        again = await find(store, sent)
        await attempt(store, again, SENT)
        await attempt(store, await find(store, refused), NEVER)
        await store.expire(at_ms=NOW + 1, limit=10)
        await advance(store, [end_unsent(await find(store, shut), Move.SHUT_OUT, reason="blocked", at_ms=NOW)], [])
        await store.cancel(cancelled, at_ms=NOW)
        (newer,) = await accept(store, edit())
        await attempt(store, await find(store, newer), SENT)
        assert sorted(await told(store, NOW + 1)) == [
            (sent, State.COMPLETED),
            (refused, State.FAILED),
            (expired, State.FAILED),
            (shut, State.FAILED),
            (cancelled, State.CANCELLED),
            (old, State.COMPLETED),
        ]


async def test_a_letter_that_is_retried_or_resolved_ends_once_more(place: Place) -> None:
    async with place.open() as store:
        retried, resolved = await accept(store, draft(1, hook=URL), draft(2, hook=URL, on_uncertain=OnUncertain.HOLD))
        await attempt(store, await find(store, retried), NEVER)
        await attempt(store, await find(store, resolved), BROKE_OFF)
        await store.retry(retried, at_ms=NOW)
        await store.resolve(resolved, arrived=True, at_ms=NOW)
        await attempt(store, await find(store, retried), SENT)
        assert await told(store) == [
            (retried, State.FAILED),
            (resolved, State.FAILED),
            (resolved, State.COMPLETED),
            (retried, State.COMPLETED),
        ]


async def test_a_crash_after_the_end_leaves_the_hook_and_one_before_leaves_neither(place: Place) -> None:
    async with place.open() as store:
        sent, marked = await accept(store, draft(1, hook=URL), draft(2, hook=URL))
        await attempt(store, await find(store, sent), SENT)
        await mark(store, await find(store, marked))
        await place.crash(store)
    async with place.open() as store:
        assert await told(store) == [(sent, State.COMPLETED)]


async def test_a_late_settlement_of_somebody_elses_letter_tells_nothing(place: Place) -> None:
    async with place.open() as old:
        (letter_id,) = await accept(old, draft(hook=URL))
        letter = await find(old, letter_id)
        await mark(old, letter)
        place.unseat()
        async with place.open() as new:
            await left_in_flight(new, letter.bot_id)
            await advance(old, [settle(letter, SENT, at_ms=NOW)], [])
            assert await told(new) == []


async def test_a_keys_letters_are_told_to_its_webhook_even_after_it_was_revoked(place: Place) -> None:
    async with place.open() as store:
        plain = Key(id=0, name="shop", digest=b"d" * 32, scopes=("send",), webhook_url="https://shop.example/all")
        key = await store.add_key(plain, webhook_secret="whsec_c2VjcmV0")
        (letter_id,) = await accept(store, draft(hook=key.id))
        await store.revoke_key(key.id, at_ms=NOW)
        await attempt(store, await find(store, letter_id), SENT)
        (hook,) = (await due(store)).hooks
        assert (hook.endpoint, hook.url, hook.secret) == (f"key:{key.id}", "https://shop.example/all", "whsec_c2VjcmV0")


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://a/", "http://a"),
        ("https://a/", "https://a"),
        ("http://shop.example:8080/x/y", "http://shop.example:8080"),
        ("https://[2606:4700::1111]:8443/?q=/", "https://[2606:4700::1111]:8443"),
    ],
)
async def test_the_endpoint_of_an_address_is_its_scheme_host_and_port(place: Place, url: str, endpoint: str) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(hook=url))
        await attempt(store, await find(store, letter_id), SENT)
        assert [hook.endpoint for hook in (await due(store)).hooks] == [endpoint]


async def ended_for(store: Store, *hosts: str) -> list[Hook]:
    ids = await accept(store, *(draft(chat, hook=f"https://{host}/") for chat, host in enumerate(hosts, start=1)))
    for number, letter_id in enumerate(ids):
        await attempt(store, await find(store, letter_id), SENT, at_ms=NOW + number)
    return (await due(store, NOW + HOUR)).hooks


async def test_settled_hooks_are_gone_and_deferred_ones_come_back_with_their_body(place: Place) -> None:
    async with place.open() as store:
        first, second = await ended_for(store, "a", "b")
        deferred = HookDeferred(hook_id=second.id, due_at_ms=NOW + HOUR, tries=1, body='{"as":"it was"}')
        await store.settle_hooks([first.id], [deferred])
        found = await due(store, NOW + HOUR - 1)
        assert (found.hooks, found.next_at_ms) == ([], NOW + HOUR)
        (again,) = (await due(store, NOW + HOUR)).hooks
        assert (again.id, again.tries) == (second.id, 1)
        assert await store.hook_content(again) == HookContent(body='{"as":"it was"}')
        assert again.at_ms == second.at_ms


async def test_one_endpoint_with_many_hooks_does_not_hide_another(place: Place) -> None:
    async with place.open() as store:
        await ended_for(store, *["dead"] * 50, "well", *["dead"] * 50)
        found = await due(store, NOW + HOUR, each=3)
        assert [hook.endpoint for hook in found.hooks] == ["https://dead"] * 3 + ["https://well"]
        assert [hook.at_ms for hook in found.hooks[:3]] == [NOW, NOW + 1, NOW + 2]


async def test_endpoints_are_shown_page_by_page(place: Place) -> None:
    async with place.open() as store:
        await ended_for(store, *"abcde")
        seen, after = [], ""
        while after is not None:
            page = await due(store, NOW + HOUR, after=after, endpoints=2)
            seen += [hook.endpoint for hook in page.hooks]
            after = page.last
        assert seen == [f"https://{host}" for host in "abcde"]


async def test_a_hook_outlives_its_letter(place: Place) -> None:
    async with place.open() as store:
        await ended_for(store, "a")
        await store.clean(Retention(completed_ms=0, dead_ms=0, log_ms=HOUR), at_ms=NOW + 1, limit=10)
        (hook,) = (await due(store, NOW + 1)).hooks
        assert hook.state is State.COMPLETED
        assert await store.hook_content(hook) == HookContent()
