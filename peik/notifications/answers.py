"""Users, templates and notifications as REST and the dashboard show them. Ids are strings, times are RFC 3339."""

from peik.core.letter import State
from peik.core.units import rfc3339
from peik.notifications.model import NoticeView, Template, User
from peik.outbox.store import LetterView

WAITING = "waiting"
CLEARED = "cleared"


def user_view(user: User) -> dict[str, object]:
    link, quiet = user.link, user.quiet
    return {
        "user_id": user.user_id,
        "linked": link is not None,
        "bot_id": None if link is None else str(link.bot_id),
        "chat_id": None if link is None else str(link.chat_id),
        "linked_at": None if link is None else rfc3339(link.since_ms),
        "language": user.language,
        "quiet": None if quiet is None else {"start": quiet.start, "end": quiet.end, "tz": quiet.tz},
        "code_expires_at": rfc3339(user.code_expires_at_ms),
    }


def template_view(template: Template) -> dict[str, object]:
    return {"type": template.type, "language": template.language, "text": template.text}


def notification_view(view: NoticeView) -> dict[str, object]:
    notice, request = view.notice, view.notice.request
    state = state_of(view)
    return {
        "id": notice.id,
        "user_id": request.user_id,
        "chat_id": None if request.chat_id is None else str(request.chat_id),
        "bot_id": None if request.bot_id is None else str(request.bot_id),
        "type": request.type,
        "title": request.title,
        "message": request.message,
        "priority": request.priority,
        "state": state,
        "failed_reason": _reason(view),
        "letter_id": str(notice.letter_ids[0]) if notice.letter_ids else None,
        "letter_ids": [str(one) for one in notice.letter_ids],
        "due_at": None if notice.is_over else rfc3339(notice.due_at_ms),
        "created_at": rfc3339(notice.created_at_ms),
        "metadata": request.metadata or None,
    }


def state_of(view: NoticeView) -> str:
    """waiting, then as its letters stand: failed if one of them is, completed once all are. cleared: they are kept no more."""
    if view.notice.failed_reason is not None:
        return State.FAILED
    if not view.notice.letter_ids:
        return WAITING
    if not view.letters:
        return CLEARED
    order = (State.FAILED, State.CANCELLED, State.ACTIVE, State.WAITING, State.DELAYED, State.COMPLETED)
    return min((letter.state for letter in view.letters), key=order.index)


def _reason(view: NoticeView) -> str | None:
    failed = (letter.failed_reason for letter in view.letters if _is_dead(letter))
    return view.notice.failed_reason or next(failed, None)


def _is_dead(letter: LetterView) -> bool:
    return letter.state is State.FAILED
