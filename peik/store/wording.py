"""JSON knows several ways to write a text, and what was accepted is kept as it came: a text is looked for in all of them."""

import json


def ways_of(text: str) -> list[str]:
    """A text as it may stand within JSON: as it is, or with its characters as \\uXXXX, as Python writes them by default.

    Stores compare without regard to the case of ASCII alone, so words of other alphabets are looked for as they were given, in
    small letters, and with a capital.
    """
    spelled = {text} if text.isascii() else {text, text.lower(), text.capitalize(), text.upper()}
    written = {json.dumps(one, ensure_ascii=is_ascii)[1:-1] for one in spelled for is_ascii in (False, True)}
    return sorted(written | {one.replace("/", "\\/") for one in written})
