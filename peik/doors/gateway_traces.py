"""What a gateway call answers, as well as that can be known: what it says, what it replies to, or what its bot got last."""

from peik.core.problem import BadInput
from peik.core.trace import read_parent, read_trace
from peik.doors.gateway_params import Given
from peik.inbox.handed import Handed
from peik.tracing import current_trace


def trace_in(given: Given, bot_id: int, consumer: str, handed: Handed) -> str | None:
    """In the order of what is surest. A word that cannot be a trace is no reason to turn a message of a bot away."""
    if given.trace is not None:
        try:
            return read_trace(given.trace)
        except BadInput:
            pass
    known = current_trace() or handed.exactly(bot_id, given.params)
    if known is None and given.parent is not None:
        known = read_parent(given.parent)
    return known or handed.likely(bot_id, consumer, given.params)
