"""Lines of the log about accounts, and the archive of what they see."""

import logging

from peik import events, session_events
from peik.ops.log_pen import Pen


def write_session(pen: Pen, event: events.Event) -> None:
    """Accounts and their connections."""
    match event:
        case session_events.SessionUp(bot_id=bot_id, session_id=session_id):
            pen.book.info("-> session is up", session=session_id, bot=bot_id)
        case session_events.SessionDown(bot_id=bot_id, session_id=session_id, why=why, retry_s=retry_s):
            if pen.is_news(session_events.SessionDown, session_id, why):
                pen.book.warning(
                    "~ session is down", session=session_id, bot=bot_id, why=why, retry_s=round(retry_s, 1)
                )
        case session_events.SessionFlooded(bot_id=bot_id, session_id=session_id, wait_s=wait_s):
            if pen.is_news(session_events.SessionFlooded, session_id):
                pen.book.warning(
                    "# Telegram asks the account to wait", session=session_id, bot=bot_id, wait_s=round(wait_s, 1)
                )
        case session_events.SessionRevoked(bot_id=bot_id, session_id=session_id, why=why):
            pen.book.error("! session revoked; sign in again", session=session_id, bot=bot_id, why=why)
        case session_events.SessionUnfit(bot_id=bot_id, session_id=session_id, why=why):
            if pen.is_news(event):
                pen.book.error("! session cannot run", session=session_id, bot=bot_id, why=why)
        case session_events.SessionLockLost(bot_id=bot_id, session_id=session_id):
            pen.book.warning("! this node left a session that it could not hold", session=session_id, bot=bot_id)
        case session_events.SessionNotice(words=words):
            pen.book.warning(f"! {words}")


def write_archive(pen: Pen, event: events.Event) -> None:
    """What accounts see, and where it is kept. `SessionFed` has no line: there may be thousands a second."""
    match event:
        case session_events.ArchiveGap(session_id=session_id, chat_id=chat_id):
            if pen.is_news(event):
                chat = "private and groups" if chat_id is None else chat_id
                pen.book.info("# Telegram cannot replay; the history is read", session=session_id, chat=chat)
        case session_events.HolesFilled(session_id=session_id, chat_id=chat_id, found=found, deleted=deleted):
            pen.book.info("+ history read", session=session_id, chat=chat_id, found=found, deleted=deleted)
        case session_events.ChatUnread(session_id=session_id, chat_id=chat_id, why=why):
            if pen.is_news(event):
                pen.book.warning("! history cannot be read", session=session_id, chat=chat_id, why=why)
        case session_events.CrawlAdvanced(session_id=session_id, chat_id=chat_id, crawled=crawled):
            words = "+ crawl is done" if event.is_done else "+ crawled"
            level = logging.INFO if event.is_done else logging.DEBUG
            pen.book.log(level, words, session=session_id, chat=chat_id, crawled=crawled, to=event.crawled_to)
        case session_events.ArchiveAway(why=why):
            if pen.is_news(event):
                pen.book.warning("! the archive does not answer; accounts wait", why=why)
        case session_events.ArchiveBack():
            pen.book.info("-> the archive is open")
        case session_events.PushFailed(endpoint=endpoint, why=why):
            pen.book.warning("~ the webhook of accounts fails; lines are kept", endpoint=endpoint, why=why)
        case session_events.PushBack(endpoint=endpoint, away_s=away_s, is_left=is_left):
            words = "# another node posts to the webhook of accounts" if is_left else "-> the webhook answers again"
            pen.book.info(words, endpoint=endpoint, away_s=round(away_s, 1))
        case session_events.PushRefused(endpoint=endpoint, count=count):
            if pen.is_news(session_events.PushRefused, endpoint):
                pen.book.error("! the webhook does not want lines (410)", endpoint=endpoint, count=count)
        case session_events.LogDropped(count=count):
            pen.book.warning("! lines of the log are not in the archive", count=count)
