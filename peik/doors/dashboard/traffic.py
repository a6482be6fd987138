"""The sections of letters and arrivals."""

from peik.doors.dashboard.arrivals import ArrivalPages
from peik.doors.dashboard.board import Board, Section
from peik.doors.dashboard.chats import ChatPages
from peik.doors.dashboard.dead import DeadPages
from peik.doors.dashboard.lanes import LanePages
from peik.doors.dashboard.letter import LetterPage
from peik.doors.dashboard.letters import LetterPages


def sections(board: Board) -> tuple[Section, ...]:
    return (
        LetterPages(board),
        LetterPage(board),
        DeadPages(board),
        LanePages(board),
        ArrivalPages(board),
        ChatPages(board),
    )
