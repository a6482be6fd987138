"""Moves of a broadcast from one phase to another, the same for whoever makes them."""

from msgspec.structs import replace

from peik.broadcasts.records import Broadcast
from peik.core.broadcast import Phase, Step, stepped
from peik.outreach_events import BroadcastMoved

_WITHDRAWN_BY = frozenset({Step.PAUSE, Step.HUSH, Step.STOP, Step.CANCEL, Step.RECALL})


def moved(
    broadcast: Broadcast, step: Step, *, at_ms: int, reason: str | None = None, until_ms: int | None = None
) -> Broadcast | None:
    """The broadcast after this step. None: it cannot be made from where it stands. `until_ms` is the end of quiet hours, or
    the time of its start."""
    phase = stepped(step, broadcast.phase, back_to=broadcast.back_to)
    if phase is None:
        return None
    new = replace(broadcast, phase=phase, reason=reason, moved_at_ms=at_ms, quiet_until_ms=None)
    match step:
        case Step.PAUSE | Step.HUSH if broadcast.phase is not Phase.QUIET:
            new = replace(new, back_to=broadcast.phase)
        case Step.SCHEDULE:
            new = replace(new, start_at_ms=until_ms)
        case Step.START:
            new = replace(new, started_at_ms=at_ms)
        case Step.GO | Step.RESUME if phase is Phase.RUNNING:
            new = replace(new, is_canary_over=True)
        case Step.RECALL if broadcast.phase.is_final:  # from the first on, also if a recall was ended before
            new = replace(new, ended_at_ms=None, recall_next=0, unrecalled=0)
        case Step.END:
            new = replace(new, ended_at_ms=at_ms)
        case _:
            pass
    if step is Step.HUSH:
        new = replace(new, quiet_until_ms=until_ms)
    return replace(new, is_withdrawing=True) if step in _WITHDRAWN_BY else new


def told(new: Broadcast) -> BroadcastMoved:
    return BroadcastMoved(bot_id=new.bot_id, broadcast_id=new.id, state=new.phase, reason=new.reason)
