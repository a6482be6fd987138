"""Whether a key that a person chose can be guessed. What Peik makes itself is 256 random bits, and always passes."""

import re

CHARS_MIN = 20
KINDS_MIN = 8  # different characters: "aaaaaaaaaaaaaaaaaaaa" is long, too
# In one of twenty characters, a word like these is what is left of an example or a hurry.
_WORDS = re.compile(
    r"change.?me|changeit|password|passw0rd|secret|admin|default|example|letmein|qwerty|test|demo|dummy|placeholder|"
    r"your.?key|replace|peik.?key|token|12345|abcdef|insert",
    re.IGNORECASE,
)
_PREFIX = "peik_"
_RANDOM_CHARS = 40  # as many random ones may hold any word by chance


def weakness_of(key: str) -> str | None:
    """Why it can be guessed, without a part of it. None: it can not, as far as its looks tell."""
    bare = key.removeprefix(_PREFIX)
    if len(bare) < CHARS_MIN:
        return f"it has fewer than {CHARS_MIN} characters"
    if len(set(bare)) < KINDS_MIN:
        return f"it has fewer than {KINDS_MIN} different characters"
    if _is_repeated(bare):
        return "it is one short piece again and again"
    if len(bare) < _RANDOM_CHARS and _WORDS.search(bare):
        return "there is a well-known word in it"
    return None


def _is_repeated(text: str) -> bool:
    """Found within itself, moved by less than half."""
    return 0 < (text + text).find(text, 1) <= len(text) // 2
