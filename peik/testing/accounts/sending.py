"""What an account sends to the simulated Telegram, and how that answers: as the Bot API would."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from peik.carrier_ports import Request
from peik.core.reply import Reply
from peik.sessions.client import ClientError
from peik.sessions.formatting import BadMarkup, parse, units
from peik.testing.accounts.boxes import Chat, Person, Post

if TYPE_CHECKING:
    from peik.testing.accounts.telegram import Accounts

TEXT_MAX = 4096
_MEDIA = {
    "sendPhoto": "photo",
    "sendDocument": "document",
    "sendVideo": "video",
    "sendAnimation": "animation",
    "sendAudio": "audio",
    "sendVoice": "voice",
    "sendLocation": "location",
}


class _Refused(Exception):
    def __init__(self, words: str, code: int = 400) -> None:
        super().__init__(words)
        self.code = code


def send(telegram: "Accounts", person: Person, request: Request, *, random_id: int) -> Reply:
    """One try. The same random id of the same person is the same message."""
    try:
        telegram.check_flood(request.method)
        call = _Call(telegram, person, request, random_id)
        act = _ACTS.get(request.method)
        if act is not None:
            result = act(call)
        elif request.method in _MEDIA:
            result = call.say("caption", _MEDIA[request.method])
        else:
            raise _Refused(f"{request.method} is not possible as an account")
    except ClientError as flood:
        seconds = int(-(-flood.wait_s // 1))
        return _answer(429, f"Too Many Requests: retry after {seconds}", parameters={"retry_after": seconds})
    except BadMarkup as error:
        return _answer(400, f"Bad Request: can't parse entities: {error}")
    except _Refused as error:
        return _answer(error.code, f"{'Forbidden' if error.code == 403 else 'Bad Request'}: {error}")
    return Reply(status=200, body=msgspec.json.encode({"ok": True, "result": result}))


def _answer(code: int, words: str, **more: object) -> Reply:
    body = {"ok": False, "error_code": code, "description": words, **more}
    return Reply(status=code, body=msgspec.json.encode(body))


class _Call:
    def __init__(self, telegram: "Accounts", person: Person, request: Request, random_id: int) -> None:
        self._telegram = telegram
        self._person = person
        self._params: dict[str, Any] = msgspec.json.decode(request.params)
        self._random_id = random_id

    def say(self, field: str, kind: str) -> dict[str, Any]:
        chat = self._chat("chat_id")
        text, _ = parse(str(self._params.get(field) or ""), self._params.get("parse_mode"))
        if kind == "text" and not text.strip():
            raise _Refused("message text is empty")
        if units(text) > TEXT_MAX:
            raise _Refused("message is too long")
        reply = self._params.get("reply_parameters") or {}
        return self._shown(chat, self._sent(chat, text, kind, self._random_id, reply.get("message_id")))

    def forward(self, *, is_many: bool, is_copy: bool) -> Any:
        source, chat = self._chat("from_chat_id"), self._chat("chat_id")
        ids = self._params["message_ids"] if is_many else [self._params["message_id"]]
        made = []
        for index, message_id in enumerate(ids):
            post = self._post(source, int(message_id))
            made.append(self._sent(chat, post.text, post.kind, self._random_id + index, None))
        if is_many or is_copy:
            found = [{"message_id": one.message_id} for one in made]
            return found if is_many else found[0]
        return self._shown(chat, made[0])

    def edit(self) -> dict[str, Any]:
        chat = self._chat("chat_id")
        post = self._post(chat, int(self._params["message_id"]))
        if post.sender_id not in (self._person.user_id, chat.chat_id):
            raise _Refused("message can't be edited")
        text, _ = parse(str(self._params.get("text") or ""), self._params.get("parse_mode"))
        if text == post.text:
            raise _Refused("message is not modified")
        self._telegram.edit(chat, post, text)
        return self._shown(chat, self._post(chat, post.message_id))

    def delete(self, *, is_many: bool) -> bool:
        chat = self._chat("chat_id")
        ids = self._params["message_ids"] if is_many else [self._params["message_id"]]
        box = chat.box_of(self._person)
        self._telegram.delete(chat, *(box.posts[int(one)] for one in ids if int(one) in box.posts))
        return True

    def note(self, event_type: str) -> bool:
        chat = self._chat("chat_id")
        post = self._post(chat, int(self._params["message_id"]))
        self._telegram.happen(chat, event_type, number=post.number, by=self._person.user_id)
        return True

    def _sent(self, chat: Chat, text: str, kind: str, random_id: int, reply_to: int | None) -> Post:
        if not chat.may_write(self._person):
            raise _Refused("CHAT_WRITE_FORBIDDEN", 403)
        known = self._person.sent.get(random_id)
        if known is not None:
            post = chat.box_of(self._person).posts.get(known[1])
            if post is None:
                raise _Refused("the message was deleted since")
            return post
        post = self._telegram.say(chat, self._person, text, kind=kind, reply_to=reply_to)
        self._person.sent[random_id] = (post.chat_id, post.message_id)
        self._telegram.deliveries.append(post)
        return post

    def _chat(self, field: str) -> Chat:
        value = self._params.get(field)
        if isinstance(value, str) and value.startswith("@"):
            person = self._telegram.named(value[1:])
        else:
            try:
                chat_id = int(value)  # type: ignore[arg-type]  # what is no number is caught
            except (TypeError, ValueError):
                raise _Refused("chat_id is empty") from None
            known = self._person.chats.get(chat_id)
            if known is not None:
                return known
            person = self._telegram.by_id(chat_id)
        if person is None:
            raise _Refused("chat not found")
        return self._telegram.private(self._person, person)

    def _post(self, chat: Chat, message_id: int) -> Post:
        post = chat.box_of(self._person).posts.get(message_id)
        if post is None or post.chat_id != chat.id_for(self._person):
            raise _Refused("MESSAGE_ID_INVALID")
        return post

    def _shown(self, chat: Chat, post: Post) -> dict[str, Any]:
        shown = {
            "message_id": post.message_id,
            "chat": {"id": post.chat_id, "type": chat.kind},
            "date": post.at_ms // 1000,
        }
        if post.text:
            shown["text" if post.kind == "text" else "caption"] = post.text
        return shown


_ACTS: dict[str, Callable[[_Call], Any]] = {
    "sendMessage": lambda call: call.say("text", "text"),
    "forwardMessage": lambda call: call.forward(is_many=False, is_copy=False),
    "forwardMessages": lambda call: call.forward(is_many=True, is_copy=False),
    "copyMessage": lambda call: call.forward(is_many=False, is_copy=True),
    "copyMessages": lambda call: call.forward(is_many=True, is_copy=True),
    "editMessageText": _Call.edit,
    "deleteMessage": lambda call: call.delete(is_many=False),
    "deleteMessages": lambda call: call.delete(is_many=True),
    "pinChatMessage": lambda call: call.note("pinned"),
    "setMessageReaction": lambda call: call.note("reaction"),
}
