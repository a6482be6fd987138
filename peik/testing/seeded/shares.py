"""How many leases a node of the model may keep and take: fair shares among those who have lived for a while."""

from collections.abc import Sequence

import msgspec

YOUNG = 0.4  # of a lease: who has lived for less may be about to die again, and what was free for so long is anybody's


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node that takes part, as the one that beats sees it."""

    held: int
    is_old: bool


class Share(msgspec.Struct, frozen=True, kw_only=True):
    keeps: int = 0
    takes: int = 0


def share_of(me: Member, others: Sequence[Member], *, total: int, forsaken: int) -> Share:
    """The share of a node. `others` live, do not drain and have been heard of lately; `forsaken` leases were free for long."""
    elders = [one for one in others if one.is_old]
    keeps = -(-total // (len(elders) + 1))
    least = total // (len(elders) + 1)
    if least <= me.held <= keeps and any(one.held < least for one in elders):
        keeps = max(me.held - 1, least)
    takes = 0
    if me.is_old:
        takes = keeps - me.held
    elif not elders:
        takes = -(-total // (len(others) + 1)) - me.held
    return Share(keeps=keeps, takes=max(takes, forsaken))
