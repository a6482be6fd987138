"""Keys that people choose: those that can be guessed are told, without a part of them, and random ones never are."""

import random
import secrets
import string

import pytest

from peik.admin.model import weakness_of

WEAK = {
    "short": "fewer than 20",
    "peik_tooshort": "fewer than 20",
    "a" * 40: "different",
    "abababababababababababab": "different",
    "xK7p-Qm2vxK7p-Qm2vxK7p-Qm2v": "again and again",
    "change-me-before-launch": "well-known",
    "MySuperSecretKey-2026!": "well-known",
    "my-company-password-9x7": "well-known",
}


@pytest.mark.parametrize("key", WEAK)
def test_a_key_that_can_be_guessed_is_told_without_its_text(key: str) -> None:
    said = weakness_of(key)
    assert said is not None
    assert WEAK[key] in said
    assert key not in said


def test_random_keys_pass() -> None:
    chance = random.Random(5)
    assert all(weakness_of(f"peik_{secrets.token_urlsafe(32)}") is None for _ in range(2000))
    for _ in range(2000):
        key = "".join(chance.choices(string.ascii_letters + string.digits, k=24))
        assert weakness_of(key) is None, key
