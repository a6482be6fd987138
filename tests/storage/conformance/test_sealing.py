"""What is secret is sealed in every store alike: bound to its place, opened by its key alone, and never lost on the way."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from peik.core.token import Token
from peik.errors import NotFound, StartError, StoreUnavailable
from peik.outbox.store import BotRecord
from peik.secrets import service
from peik.secrets.seals import PLAIN, KeptSecret, SealChange, Seals, SealStore, is_sealed, key_id_of, seals_of
from peik.secrets.service import CHECK
from tests.storage.acts import NOW, SENT, accept, attempt, draft, find
from tests.storage.places import BOT, Place
from tests.storage.seal_acts import KEPT_AS_READ, KEY, NEW, OLD, OTHER_TOKEN, SECRETS, TOKEN, fill, opened, read, texts


async def test_without_a_key_everything_is_stored_as_it_is(place: Place) -> None:
    async with opened(place, PLAIN) as store:
        await fill(store)
        assert await texts(store) == SECRETS
        assert await read(store) == KEPT_AS_READ
        assert (await service.standing(store.sealed, PLAIN)).plain == len(SECRETS)


async def test_with_a_key_nothing_that_is_written_lies_open_and_all_is_read_as_before(place: Place) -> None:
    async with opened(place, seals_of(NEW)) as store:
        await fill(store)
        stored = await texts(store)
        assert stored.keys() == SECRETS.keys()
        assert all(is_sealed(text) and SECRETS[where] not in text for where, text in stored.items())
        assert await read(store) == KEPT_AS_READ


async def test_a_webhook_is_signed_with_the_secret_that_its_key_was_given(place: Place) -> None:
    place.seals = seals_of(NEW)
    async with place.open() as store:
        key = await store.add_key(KEY, webhook_secret="whsec_of-the-shop")
        (letter_id,) = await accept(store, draft(hook=key.id))
        await attempt(store, await find(store, letter_id), SENT, at_ms=NOW)
        (hook,) = (await store.hooks_due(at_ms=NOW, after="", endpoints=9, each=9)).hooks
        assert (hook.url, hook.secret) == ("https://a.b/c", "whsec_of-the-shop")


async def test_what_was_plain_is_sealed_once_and_what_was_sealed_can_be_opened_again(place: Place) -> None:
    async with opened(place, PLAIN) as store:
        await fill(store)
    seals = seals_of(NEW)
    async with opened(place, seals) as store:
        assert not await service.admit(store.sealed, seals)
        done = await service.settle(store.sealed, seals, may_rewrite=True)
        assert (done.sealed, done.renewed, done.left) == (len(SECRETS), 0, None)
        sealed = await texts(store)
        assert sealed.keys() == {*SECRETS, CHECK}
        assert all(map(is_sealed, sealed.values()))
        assert await read(store) == KEPT_AS_READ
        assert (await service.settle(store.sealed, seals)).sealed == 0
        assert await texts(store) == sealed
        standing = await service.standing(store.sealed, seals)
        assert (standing.plain, standing.older, standing.foreign, standing.advice) == (0, 0, 0, None)
        assert (await service.unseal(store.sealed, seals)).opened == len(SECRETS) + 1
    async with opened(place, PLAIN) as store:
        assert await texts(store) == SECRETS


async def test_the_mark_of_an_account_is_no_secret(place: Place) -> None:
    seals = seals_of(NEW)
    async with opened(place, seals) as store:
        await store.save_bot(BotRecord(bot_id=99, token=Token.of_account(99)))
        assert await texts(store) == {}
        await service.settle(store.sealed, seals)
        (bot,) = await store.bots()
        assert bot.token.is_account


@pytest.mark.parametrize(("seals", "code"), [(PLAIN, "no_secret_key"), (seals_of(OLD), "wrong_secret_key")])
async def test_who_has_no_key_or_another_is_refused_and_changes_nothing(place: Place, seals: Seals, code: str) -> None:
    async with opened(place, seals_of(NEW)) as store:
        await fill(store)
        await service.settle(store.sealed, seals_of(NEW))
        before = await texts(store)
    async with opened(place, seals) as store:
        with pytest.raises(StartError, match="PEIK_SECRET_KEY"):
            await service.admit(store.sealed, seals)
        for ask in (store.bots, lambda: store.inbox.consumers(BOT), lambda: store.secret("webhook", "another")):
            with pytest.raises(StoreUnavailable, match="PEIK_SECRET_KEY") as refused:
                await ask()
            assert refused.value.code == code
        if seals.has_key:
            with pytest.raises(StoreUnavailable):
                await service.settle(store.sealed, seals)
            with pytest.raises(StoreUnavailable):
                await service.unseal(store.sealed, seals)
        assert (await service.standing(store.sealed, seals)).foreign == len(before)
        assert await texts(store) == before


async def test_a_store_without_a_bot_knows_its_key_too(place: Place) -> None:
    async with opened(place, seals_of(NEW)) as store:
        await service.settle(store.sealed, seals_of(NEW))
        with pytest.raises(StartError, match="another key"):
            await service.admit(store.sealed, seals_of(OLD))


async def test_rows_that_were_swapped_are_refused_and_one_can_be_mended(place: Place) -> None:
    seals = seals_of(NEW)
    async with opened(place, seals) as store:
        await fill(store)
        stored = await texts(store)
        swapped = await store.sealed.change(
            [
                SealChange(place="bot:7", before=stored["bot:7"], after=stored["bot:8"]),
                SealChange(place="secret:webhook", before=stored["secret:webhook"], after=stored["secret:webhook:7"]),
            ]
        )
        assert swapped == 2
        with pytest.raises(StartError, match="bot:7"):
            await service.admit(store.sealed, seals)
        with pytest.raises(StoreUnavailable) as refused:
            await store.bots()
        assert refused.value.code == "broken_seal"
        with pytest.raises(StoreUnavailable):
            await store.secret("webhook", "another")
        await service.mend(store.sealed, seals, Token("7:the-new-token"))
        assert [bot.token.reveal() for bot in await store.bots()] == ["7:the-new-token", OTHER_TOKEN]
        with pytest.raises(NotFound):
            await service.mend(store.sealed, seals, Token("9:of-nobody"))


async def test_a_token_that_was_changed_meanwhile_is_not_overwritten(place: Place) -> None:
    async with opened(place, PLAIN) as store:
        await fill(store)
        await store.save_bot(BotRecord(bot_id=BOT, token=Token("7:a-newer-token")))
        assert await store.sealed.change([SealChange(place="bot:7", before=TOKEN, after="sealed:…")]) == 0
        assert await store.sealed.change([SealChange(place="secret:webhook", before=None, after="mine")]) == 0
        assert await texts(store) == {**SECRETS, "bot:7": "7:a-newer-token"}


# ---- dying in between ----


class Died(Exception):
    pass


class Mortal:
    """A SealStore whose process dies right before a given commit, or right after it."""

    def __init__(self, store: SealStore, commits: int, *, is_after: bool) -> None:
        self._store = store
        self._left = commits
        self._is_after = is_after
        self.kept = store.kept
        self.is_ours = store.is_ours

    async def change(self, changes: Sequence[SealChange]) -> int:
        if self._left == 0 and not self._is_after:
            raise Died
        made = await self._store.change(changes)
        if self._left == 0:
            raise Died
        self._left -= 1
        return made

    async def scrub(self, traces: Sequence[str], *, may_rewrite: bool) -> str | None:
        return await self._store.scrub(traces, may_rewrite=may_rewrite)


Act = Callable[[SealStore, Seals], Awaitable[object]]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(
    ("before", "during", "act"),
    [(None, NEW, service.settle), (OLD, f"{NEW},{OLD}", service.settle), (OLD, OLD, service.unseal)],
    ids=["sealing", "rotating", "opening"],
)
async def test_whoever_dies_at_any_commit_loses_nothing_and_the_next_one_goes_on(
    place: Place, before: str | None, during: str, act: Act, is_after: bool
) -> None:
    first, seals = seals_of(before), seals_of(during)
    async with opened(place, seals) as store:  # one for all: what is done to secrets leaves nothing in memory
        await fill(store)
        for commits in range(20):
            await _begin_anew(store, first)
            try:
                await act(Mortal(store.sealed, commits, is_after=is_after), seals)
            except Died:
                pass
            else:
                break
            await service.admit(store.sealed, seals)
            assert await read(store) == KEPT_AS_READ
            await act(store.sealed, seals)
            stored = await texts(store)
            assert await read(store) == KEPT_AS_READ
            if act is service.unseal:
                assert stored == SECRETS
            else:
                assert {key_id_of(text) for text in stored.values()} == {seals.key_ids[0]}
    assert commits >= 4  # a sign that something is owed, each of the two bots, the rest; then what the store adds


async def _begin_anew(store: Any, seals: Seals) -> None:
    """As `fill` leaves a store with these seals, whatever it is now."""
    kept: list[KeptSecret] = await store.sealed.kept()
    own = [SealChange(place=one.place, before=one.text, after=None) for one in kept if one.place not in SECRETS]
    texts_of = [
        SealChange(place=one.place, before=one.text, after=seals.seal(SECRETS[one.place], place=one.place))
        for one in kept
        if one.place in SECRETS
    ]
    assert await store.sealed.change(own + texts_of) == len(kept)
    if seals.has_key:
        await service.settle(store.sealed, seals)
