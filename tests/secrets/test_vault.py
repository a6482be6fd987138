"""What is sealed can be opened with the right key, in the right place, and not otherwise."""

import base64
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.errors import StartError, Unavailable
from peik.secrets.vault import Vault, kept_key, keys_of, vault_of

OLD, NEW = b"o" * 32, b"n" * 32


@given(st.text(), st.text(max_size=50))
def test_what_is_sealed_is_opened_again(text: str, context: str) -> None:
    vault = Vault([NEW])
    sealed = vault.seal(text, context=context)
    assert vault.open(sealed, context=context) == text
    assert sealed != vault.seal(text, context=context), "never twice the same"


def test_it_opens_only_where_it_belongs() -> None:
    vault = Vault([NEW])
    sealed = vault.seal("1BVtsOK…", context="secret:a")
    assert b"BVts" not in sealed
    with pytest.raises(Unavailable) as caught:
        vault.open(sealed, context="secret:b")
    assert caught.value.code == "broken_seal"


@given(st.integers(0, 60), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, flip: int) -> None:
    vault = Vault([NEW])
    sealed = bytearray(vault.seal("a secret of some length, really", context="x"))
    sealed[at % len(sealed)] ^= flip
    with pytest.raises(Unavailable):
        vault.open(bytes(sealed), context="x")


def test_a_short_or_strange_seal_is_refused() -> None:
    for sealed in (b"", b"\x01", b"\x02" + b"x" * 40, os.urandom(60)):
        with pytest.raises(Unavailable):
            Vault([NEW]).open(sealed, context="x")


def test_keys_are_rotated_by_putting_a_new_one_in_front() -> None:
    sealed = Vault([OLD]).seal("text", context="x")
    both = Vault([NEW, OLD])
    assert both.open(sealed, context="x") == "text"
    renewed = both.renewed(sealed, context="x")
    assert renewed is not None
    assert both.renewed(renewed, context="x") is None
    assert Vault([NEW]).open(renewed, context="x") == "text"
    with pytest.raises(Unavailable) as caught:
        Vault([NEW]).open(sealed, context="x")
    assert caught.value.code == "wrong_secret_key"


def test_without_a_key_nothing_is_kept_unless_plain_text_is_allowed() -> None:
    with pytest.raises(Unavailable) as caught:
        Vault([]).seal("text", context="x")
    assert caught.value.code == "no_secret_key"
    plain = Vault([], allows_plain=True)
    sealed = plain.seal("text", context="x")
    assert sealed == b"plain:text"
    assert plain.renewed(sealed, context="x") is None
    renewed = Vault([NEW]).renewed(sealed, context="x")
    assert renewed is not None
    assert Vault([NEW]).open(renewed, context="x") == "text"


def test_a_key_is_32_bytes_in_base64_or_a_passphrase() -> None:
    key = bytes(range(200, 232))
    texts = [base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode().rstrip("=")]
    assert keys_of(", ".join(texts)) == [key, key]
    first, second = keys_of("correct horse battery,another long phrase")
    assert len(first) == len(second) == 32
    assert first != second
    assert keys_of("correct horse battery") == [first], "the same everywhere"
    for bad in ("", " , ", "short"):
        with pytest.raises(StartError) as caught:
            keys_of(bad)
        assert "short" not in str(caught.value).replace("too short", "")


def test_a_key_is_made_once_in_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "peik.accounts.key"
    key, is_new = kept_key(path)
    assert is_new
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept_key(path) == (key, False)
    path.chmod(0o644)
    with pytest.raises(StartError, match="chmod 600"):
        kept_key(path)


def test_a_vault_shows_nothing() -> None:
    assert "nnnn" not in repr(Vault([NEW]))


def test_the_vault_of_an_installation_says_what_its_owner_must_know(tmp_path: Path) -> None:
    path = tmp_path / "key"
    vault, notice = vault_of(None, path)
    assert notice is not None
    assert str(path) in notice
    sealed = vault.seal("text", context="x")
    again, silence = vault_of(None, path)
    assert silence is None
    assert again.open(sealed, context="x") == "text"
    _, warning = vault_of(None, tmp_path / "other", allows_plain=True)
    assert warning is not None
    assert not (tmp_path / "other").exists()
    named, silence = vault_of("a long enough phrase", tmp_path / "other")
    assert silence is None
    assert named.open(named.seal("text", context="x"), context="x") == "text"


def test_accounts_that_were_sealed_with_the_kept_key_open_after_a_key_is_set(tmp_path: Path) -> None:
    path = tmp_path / "peik.secret"
    before, _ = vault_of(None, path)
    sealed = before.seal("text", context="x")
    after, _ = vault_of(base64.b64encode(NEW).decode(), path)
    assert after.open(sealed, context="x") == "text"
    assert Vault([NEW]).open(after.seal("more", context="x"), context="x") == "more"
