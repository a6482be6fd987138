"""How far a visitor reaches: one who signed in with a key of some bots sees these, and nothing that concerns them all."""

from peik.doors.dashboard.board import Visitor
from peik.errors import NotFound


def must_see(visitor: Visitor, bot_id: int) -> None:
    """Raises NotFound for a bot that this visitor does not see, in the words for one that is not there."""
    if not visitor.sees(bot_id):
        raise NotFound(code="unknown_bot", detail=f"Bot {bot_id} is not known here.")


def must_see_all(visitor: Visitor) -> None:
    """For what concerns Peik as a whole. Raises Forbidden for the key of some bots only."""
    visitor.caller.must_serve_all()
