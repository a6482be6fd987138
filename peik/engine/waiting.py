"""Why a letter is still waiting, as a sentence. Asked by people; it reads what the sender knows and changes nothing."""

from peik.core.letter import State
from peik.core.pace import Pace
from peik.engine.chatbook import ChatBook
from peik.ports import BotRecord, LetterView


def why(
    view: LetterView,
    *,
    bot: BotRecord,
    chats: ChatBook,
    pace: Pace,
    route_why: str | None,
    head: int | None,
    now: float,
    at_ms: int,
) -> str:
    """The first thing that keeps this letter from being sent, from the widest to the narrowest."""
    if view.state is State.ACTIVE:
        return "It is being sent right now; Telegram has not answered yet."
    if bot.paused:
        return f"Its bot is paused: {bot.paused}."
    if route_why is not None:
        return f"Telegram cannot be reached ({route_why}); it goes out as soon as Telegram is back."
    if pace.bot_held_until > now:
        return f"Telegram asked the whole bot to wait; {_for(pace.bot_held_until - now)} are left."
    return _of_itself(view, at_ms) or _of_its_chat(view, chats, pace, head, now, at_ms)


def _of_itself(view: LetterView, at_ms: int) -> str | None:
    if view.state is not State.DELAYED:
        return None
    if view.merged_into is not None:
        return f"A newer edit took its place: it ends as letter {view.merged_into} ends."
    if view.due_at_ms is None:
        return "It refers to another letter that has not been sent yet."
    left = _for((view.due_at_ms - at_ms) / 1000)
    if view.attempts_made or view.uncertain_tries:
        return f"Its last try did not succeed; the next one is in {left}."
    return f"It is scheduled; it joins its lane in {left}."


def _of_its_chat(view: LetterView, chats: ChatBook, pace: Pace, head: int | None, now: float, at_ms: int) -> str:
    if chats.is_moving(view.chat):
        return "Its chat has got another id; its letters are being re-addressed."
    if chats.is_shut(view.chat, at_ms):
        return "Its chat cannot be reached; it will fail in a moment."
    held_until = pace.chat_held_until(view.chat)
    if held_until > now:
        return f"Its chat is held, by Telegram or by hand; {_for(held_until - now)} are left."
    if head is not None and head != view.id:
        return f"Letter {head} goes before it in the same lane."
    ready_at = pace.chat_ready_at(view.chat, now)
    if ready_at > now:
        return f"The pace of its chat lets it go in {_for(ready_at - now)}."
    return "It is next in its lane; the bot's own pace or its places in flight let it go in a moment."


def _for(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 0.0):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
