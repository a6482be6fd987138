"""Moves of a broadcast from one phase to another, the same for whoever makes them."""

from msgspec.structs import replace

from peik.broadcasts.records import Broadcast
from peik.core.broadcast import Phase, Step, stepped
from peik.outreach_events import BroadcastMoved

_WITHDRAWN_BY = frozenset({Step.PAUSE, Step.HUSH, Step.STOP, Step.FAIL, Step.CANCEL, Step.RECALL})


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
        case Step.PAUSE | Step.HUSH | Step.STOP if broadcast.phase is not Phase.QUIET:
            new = replace(new, back_to=broadcast.phase)
        case Step.FAIL:  # the slice is judged: who lets it go on knows better
            new = replace(new, back_to=Phase.RUNNING)
        case Step.SCHEDULE:
            new = replace(new, start_at_ms=until_ms)
        case Step.START:
            new = replace(new, started_at_ms=at_ms)
        case Step.RECALL if broadcast.phase.is_final:
            # From the first on, also if a recall was ended before: in letters of its own. One that is only paused goes on under
            # its keys, for a batch of it may be on its way.
            new = replace(new, ended_at_ms=None, recall_next=0, unrecalled=0, recalls=broadcast.recalls + 1)
        case Step.END:
            new = replace(new, ended_at_ms=at_ms)
        case _:
            pass
    if step is Step.HUSH:
        new = replace(new, quiet_until_ms=until_ms)
    return replace(new, is_withdrawing=True) if step in _WITHDRAWN_BY else new


def told(new: Broadcast) -> BroadcastMoved:
    return BroadcastMoved(bot_id=new.bot_id, broadcast_id=new.id, state=new.phase, reason=new.reason)
