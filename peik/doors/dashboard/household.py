"""The sections of everything around them: bots, nodes, keys, people, accounts, jobs, broadcasts."""

from peik.doors.dashboard.archive_pages import ArchivePages
from peik.doors.dashboard.audit_page import AuditPages
from peik.doors.dashboard.board import Board, Section
from peik.doors.dashboard.bots import BotPages
from peik.doors.dashboard.broadcasts_pages import BroadcastPages
from peik.doors.dashboard.jobs_pages import JobPages
from peik.doors.dashboard.keys import KeyPages
from peik.doors.dashboard.nodes import NodePages
from peik.doors.dashboard.notifications_pages import NotificationPages
from peik.doors.dashboard.people import PeoplePages
from peik.doors.dashboard.sessions_pages import SessionPages


def sections(board: Board) -> tuple[Section, ...]:
    return (
        BotPages(board),
        NodePages(board),
        KeyPages(board),
        PeoplePages(board),
        AuditPages(board),
        SessionPages(board),
        ArchivePages(board),
        JobPages(board),
        BroadcastPages(board, board.peik.broadcasts),
        NotificationPages(board, board.peik.notifications),
    )
