"""Which node runs which session: every node works out the same answer from the same names. Pure."""

import hashlib
from collections.abc import Sequence


def shared_out(session_ids: Sequence[str], nodes: Sequence[str]) -> dict[str, set[str]]:
    """By node, as many sessions each, give or take one. When a node comes or goes, few others move: each session goes to the
    node that suits it best (by hash) of those that have room."""
    shares: dict[str, set[str]] = {node: set() for node in sorted(nodes)}
    if not shares:
        return shares
    floor, extra = divmod(len(session_ids), len(shares))
    for session_id in sorted(session_ids):
        for node in sorted(shares, key=lambda one: _rank(one, session_id)):
            if len(shares[node]) < floor or (len(shares[node]) == floor and extra > 0):
                extra -= len(shares[node]) == floor
                shares[node].add(session_id)
                break
    return shares


def _rank(node: str, session_id: str) -> bytes:
    return hashlib.blake2b(f"{node}|{session_id}".encode(), digest_size=8).digest()
