"""A new key in front: everything is sealed again, and what nobody can open is named."""

import msgspec

from peik.accounts.events import SessionNotice
from peik.accounts.registry import Registry, proxy_context, secret_context
from peik.accounts.sign_in import SignInSteps
from peik.accounts.upkeep import Renewal, reseal, unseal
from peik.core.events import Event, Events
from peik.secrets.vault import Vault
from peik.testing.accounts import Accounts
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.memory_archive import MemoryBook

OLD, NEW, GONE = b"o" * 32, b"n" * 32, b"g" * 32


def test_all_seals_are_renewed_and_the_lost_are_named() -> None:
    async def story(clock: VirtualClock) -> None:
        book = MemoryBook()
        registry = Registry(book, clock)
        telegram = Accounts(clock)
        telegram.register("+998901234567")
        whole = (await registry.create_session("a")).session_id
        half = (await registry.create_session("a", phone="+998901234567")).session_id
        lost = (await registry.create_session("a")).session_id
        await registry.create_session("a")
        old = Vault([OLD])
        await registry.change(
            whole,
            lambda one: msgspec.structs.replace(
                one,
                secret=old.seal("string", context=secret_context(whole)),
                proxy=old.seal("socks5://h", context=proxy_context(whole)),
            ),
        )
        sealed = Vault([GONE]).seal("string", context=secret_context(lost))
        await registry.change(lost, lambda one: msgspec.structs.replace(one, secret=sealed))
        await SignInSteps(registry, old, telegram.clients, clock).begin(half)

        both = Vault([NEW, OLD])
        result = await reseal(registry, both)
        assert (result.renewed, result.lost) == (2, (lost,))
        assert (await reseal(registry, both)).renewed == 0

        new = Vault([NEW])
        kept = book.kept[whole]
        assert kept.secret is not None
        assert kept.proxy is not None
        assert new.open(kept.secret, context=secret_context(whole)) == "string"
        assert new.open(kept.proxy, context=proxy_context(whole)) == "socks5://h"
        signing = SignInSteps(registry, new, telegram.clients, clock)
        assert (await signing.give_code(half, telegram.code_of("+998901234567"))).state == "active"

    run_virtual(story)


def test_a_start_with_the_old_key_renews_and_tells_and_opening_needs_no_key_after() -> None:
    async def story(clock: VirtualClock) -> None:
        book = MemoryBook()
        registry = Registry(book, clock)
        whole, lost = [(await registry.create_session("a")).session_id for _ in range(2)]
        for session_id, key in ((whole, OLD), (lost, GONE)):
            sealed = Vault([key]).seal("string", context=secret_context(session_id))
            await registry.change(session_id, lambda one, sealed=sealed: msgspec.structs.replace(one, secret=sealed))
        told: list[Event] = []
        events = Events()
        events.listen(told.extend)

        await Renewal(registry, Vault([NEW, OLD]), events).run()
        words = [one.words for one in told if isinstance(one, SessionNotice)]
        assert len(words) == 2
        assert "1 sealed again" in words[0]
        assert lost in words[1]

        opened = await unseal(registry, Vault([NEW]))
        assert (opened.renewed, opened.lost) == (1, (lost,))
        kept = book.kept[whole].secret
        assert kept is not None
        assert Vault([b"a" * 32]).open(kept, context=secret_context(whole)) == "string"
        assert (await unseal(registry, Vault([NEW]))).renewed == 0

    run_virtual(story)
