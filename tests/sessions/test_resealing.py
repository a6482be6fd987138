"""A new key in front: everything is sealed anew, and what nobody can open is named."""

import msgspec

from peik.sessions.registry import Registry
from peik.sessions.resealing import reseal
from peik.sessions.signing_in import SigningIn, proxy_context, secret_context
from peik.testing.accounts import Accounts
from peik.testing.virtual import VirtualClock, run_virtual
from peik.vault import Vault
from tests.sessions.memory_archive import MemoryBook

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
        await SigningIn(registry, old, telegram.clients, clock).begin(half)

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
        signing = SigningIn(registry, new, telegram.clients, clock)
        assert (await signing.give_code(half, telegram.code_of("+998901234567"))).state == "active"

    run_virtual(story)
