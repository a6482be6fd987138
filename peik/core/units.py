"""Durations and sizes as people write them: 5m, 24h, 100M."""

import re

CHARS_MAX = 64  # nobody writes more, and strangers may write these
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?\s*")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SECONDS_MAX = 100 * 366 * 86400.0
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_BYTES_MAX = 2**60
_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def parse_duration_s(text: str) -> float:
    """Seconds of "90", "90s", "1m30s", "500ms", "24h", "7d". Raises ValueError with a hint."""
    written = text.strip().lower() if len(text) <= CHARS_MAX else ""
    if not written:
        raise ValueError("a duration looks like 500ms, 10s, 5m, 24h or 7d")
    total, at = 0.0, 0
    while at < len(written):
        match = _PART.match(written, at)
        if match is None:
            raise ValueError(f"{text!r} is not a duration; write 500ms, 10s, 5m, 24h or 7d")
        total += float(match[1]) * _SECONDS[match[2] or "s"]
        at = match.end()
    if total > _SECONDS_MAX:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return total


def parse_size_bytes(text: str) -> int:
    """Bytes of "100M", "2G", "512k", "1000". Raises ValueError with a hint."""
    match = _SIZE.fullmatch(text.strip()) if len(text) <= CHARS_MAX else None
    if match is None:
        raise ValueError(f"{text[:CHARS_MAX]!r} is not a size; write 512k, 100M or 2G")
    size = float(match[1]) * _BYTES[match[2].lower()]
    if size > _BYTES_MAX:
        raise ValueError(f"{text!r} is more than any disk holds")
    return int(size)
