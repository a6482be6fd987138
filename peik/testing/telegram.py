"""The simulated Telegram: a Bot API without sockets, clock or chance of its own, driven by calls, judged by its ledger."""

import random
import re
from collections.abc import Callable

from peik.errors import BadInput
from peik.testing import business, chats, edits, media, methods, stickers, webhooks, wire
from peik.testing.answer import Answer, Json, Params, Pending, Refusal, UploadedFile, failure, integer, success
from peik.testing.business import add_tasks, buy, connect, pay, receive, subscribe, tick
from peik.testing.entities import formatted, may_have_links
from peik.testing.faults import PLAIN, Exchange, Fault, How, Kind, Options, planned
from peik.testing.media import described, kept
from peik.testing.posting import USUAL, ask, check_connection, told_by, visible
from peik.testing.updates import PushResult, UpdateEvent
from peik.testing.world import (
    SUPERGROUP_BASE,
    ChatType,
    Game,
    Push,
    SimBot,
    SimCall,
    SimChat,
    SimMember,
    SimQuery,
    SimUser,
    Status,
    StickerSet,
    Topic,
    World,
)

BotRef = SimBot | int | str
UserRef = SimUser | int
ChatRef = SimChat | int | str
_NO_FILES: dict[str, UploadedFile] = {}


class Telegram(World):
    """`call` is the bots' side; the verbs below it are the people's; `faults`, `sent` and `counters` are the tester's."""

    def __init__(
        self, *, now: Callable[[], float], chance: random.Random | None = None, options: Options | None = None
    ) -> None:
        super().__init__(now=now, chance=chance if chance is not None else random.Random(0), options=options)

    # The bots' side

    def call(
        self, token_text: str, method: str, params: Params, files: dict[str, UploadedFile] = _NO_FILES
    ) -> Answer | Pending:
        """Carry out one request, without faults. Only a long poll that finds nothing (and a 409 held back) is Pending."""
        try:
            name, handler = methods.find(method)
            self.counters.requests[name] += 1
            bot = self.enter(token_text)
            now = self.now()
            if self.agenda and self.agenda[0][0] <= now:
                self.run_due()
            if now < bot.logged_out_until:
                raise Refusal(400, "Logged out")
            result = handler(self, SimCall(bot=bot, method=name, params=params, files=files, now=now))
            if isinstance(result, Pending):
                return result
            answer = success(result)
        except Refusal as refusal:
            answer = failure(refusal)
        self.counters.answers[answer.status] += 1
        return answer

    def ripe(self, pending: Pending) -> Answer | None:
        """The answer of a parked call, once it is due; None before."""
        self.run_due()
        answer = pending.take(self.now())
        if answer is not None:
            self.counters.answers[answer.status] += 1
        return answer

    def connected(self, check: webhooks.WebhookCheck, error: str) -> None:
        """Tell how the TCP connect of a setWebhook went; "" is well."""
        check.settle(check.end(error), due_at=self.now())

    def exchange(self, token_text: str, method: str, params: Params) -> Exchange:
        """What the faults make of a request. Carry it out with `call` in between; `PLAIN` is the common case."""
        if not self.faults.any_request:
            return PLAIN
        bot_id = int(token_text.partition(":")[0]) if token_text.partition(":")[0].isdecimal() else 0
        fault, slow_s = self.faults.strike(bot_id=bot_id, method=method, chat=params.get("chat_id"))
        if fault is None:
            return planned(None, late_s=0.0, slow_s=slow_s)
        self.counters.faults[fault.kind.value] += 1
        late_s = fault.delay_s(self.chance) if fault.kind is Kind.LATE else 0.0
        plan = planned(fault, late_s=late_s, slow_s=slow_s)
        if plan.how is not How.ANSWER:
            if plan.processes:
                self.counters.lost_after += 1
            else:
                self.counters.lost_before += 1
        return plan

    def download(self, token_text: str, path: str, *, span: bytes = b"") -> Answer:
        """What `/file/bot<token>/<path>` gives; with a Range header `bytes=n-` or `bytes=n-m`, the part."""
        try:
            stored = self.enter(token_text).files.by_path.get(path)
        except Refusal as refusal:
            return failure(refusal)
        if stored is None or stored.content is None:
            return failure(Refusal(404, "Not Found"))
        self.counters.downloads += 1
        headers = (("Content-Type", stored.content_type), ("Accept-Ranges", "bytes"))
        content = stored.content
        asked = re.fullmatch(rb"bytes=(\d+)-(\d*)", span)
        if asked is None:
            return Answer(200, content, headers)
        first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
        if first > last:
            return Answer(416, b"", (("Content-Range", f"bytes */{len(content)}"),))
        part = ("Content-Range", f"bytes {first}-{last}/{len(content)}")
        return Answer(206, content[first : last + 1], (*headers, part))

    # Webhook pushes: ask what is due, carry it out, tell how it went.

    def pushes_due(self, bot: BotRef | None = None) -> list[Push]:
        """The pushes to make now. Each must be given to `push_done`."""
        now = self.now()
        due = []
        for one in [self.bot(bot)] if bot is not None else list(self.bots.values()):
            hook = one.webhook
            if hook is not None:
                due += [Push(bot_id=one.id, webhook=hook, event=event) for event in hook.deliveries.take(now)]
        return due

    def push_done(self, push: Push, result: PushResult) -> Answer | Pending | None:
        """Take in how a push went; the answer to the method in its body, if there was one (Telegram throws it away)."""
        now = self.now()
        push.webhook.deliveries.done(push.event, result, now=now)
        bot = self.bots.get(push.bot_id)
        is_current = bot is not None and bot.webhook is push.webhook
        self.counters.pushes["ok" if result.is_ok else "refused" if result.status else "failed"] += 1
        if bot is None or not is_current:
            return None
        if not result.is_ok:
            webhooks.note_failure(bot, result.reason, now=now)
            if push.webhook.deliveries.should_delete:
                bot.webhook = None
            return None
        try:
            params, files = wire.read(b"", result.content_type.encode(), result.body)
        except wire.UnreadableRequest:
            return None
        method = webhooks.method_in_answer(params)
        return self.call(bot.token_text, method, params, files) if method else None

    def next_push_at(self, bot: BotRef | None = None) -> float | None:
        """When `pushes_due` may next find something, if no update and no `push_done` comes before."""
        now = self.now()
        bots = [self.bot(bot)] if bot is not None else list(self.bots.values())
        instants = [one.webhook.deliveries.next_at(now) for one in bots if one.webhook is not None]
        return min((instant for instant in instants if instant is not None), default=None)

    # Bots, people and chats

    def bot(self, which: BotRef) -> SimBot:
        """A bot by itself, its id or its token; a new token makes a new bot."""
        if isinstance(which, SimBot):
            return which
        if isinstance(which, str) and not which.isdecimal():
            return self.by_token.get(which) or self.add_bot(which)
        if int(which) not in self.bots:
            raise BadInput(code="no_bot", detail=f"There is no bot {which}; make it with its token first.")
        return self.bots[int(which)]

    def revoke(self, bot: BotRef) -> str:
        """Make the bot's token worthless, as @BotFather does; the new one."""
        one = self.bot(bot)
        fresh = f"{one.id}:{self.chance.getrandbits(200):050x}"
        self.add_bot(fresh)
        return fresh

    def user(
        self, user_id: int, first_name: str = "", language_code: str | None = None, username: str | None = None,
        *, last_name: str | None = None, is_reachable: bool | None = None, is_deactivated: bool | None = None,
        personal_chat: int | None = None,
    ) -> SimUser:  # fmt: skip
        """A person, made or changed. Not reachable: bots must not write first."""
        user = add_user(self, user_id, first_name=first_name, username=username, language_code=language_code)
        if last_name is not None:
            user.last_name = last_name
        if is_reachable is not None:
            user.is_reachable = is_reachable
        if is_deactivated is not None:
            user.is_deactivated = is_deactivated
        if personal_chat is not None:
            user.personal_chat = personal_chat
        return user

    def chat(
        self, kind: ChatType, title: str = "", *, chat_id: int | None = None, username: str | None = None,
        is_forum: bool = False, bots: list[BotRef] | None = None, slow_mode_s: int = 0, parent: int = 0,
        guard: BotRef | None = None,
    ) -> SimChat:  # fmt: skip
        """A new group, supergroup or channel with these bots in it; with `parent` the direct messages of that channel.

        The `guard` is asked about each who wants to come in.
        """
        members = [self.bot(bot) for bot in bots or []]
        made = add_chat(self, kind, chat_id=chat_id, title=title, username=username, is_forum=is_forum, bots=members)
        if parent:
            made.parent = parent
            made.refresh()
        if guard is not None:
            made.guard = self.bot(guard).id
        if slow_mode_s:
            made.more["slow_mode_delay"] = slow_mode_s
        return made

    def topic(self, chat: SimChat | int, name: str) -> Topic:
        """A new topic in a forum."""
        return chats.add_topic(self, self._place(chat), name)

    def write(
        self, bot: BotRef, user: UserRef, text: str = "", *, chat: ChatRef | None = None, thread_id: int | None = None,
        reply_to: int | None = None, date: float | None = None, content: Json | None = None, connection: str = "",
        sender_chat: SimChat | int | None = None,
    ) -> Json:  # fmt: skip
        """A person writes, to the bot or in a chat; the message. `content` is any other content than text.

        With `connection` the person writes to that business account, and the bot sees it; with `sender_chat` in the name of
        that channel.
        """
        one = self.bot(bot)
        body: Json = content if content is not None else {"text": text}
        if connection:
            body = {**body, "business_connection_id": connection}
        return write(
            self, one, self._user(user), body,
            chat=self._chat(one, chat), thread_id=thread_id, reply_to=reply_to, date=date,
            sender_chat=None if sender_chat is None else self._place(sender_chat),
        )  # fmt: skip

    def upload(
        self,
        bot: BotRef,
        user: UserRef,
        kind: str,
        file: UploadedFile,
        *,
        caption: str = "",
        chat: ChatRef | None = None,
    ) -> Json:
        """A person sends a file; the message."""
        content = upload(self, self.bot(bot), kind, file) | ({"caption": caption} if caption else {})
        return self.write(bot, user, chat=chat, content=content)

    def set_member(
        self, chat: SimChat | int, user: UserRef, status: Status = "member", *, title: str = "", **rights: bool
    ) -> SimMember:
        """Somebody's standing in a group or channel, as it is from now on. A right or permission that is not named is given."""
        place, person = self._place(chat), self._user(user)
        after = SimMember(status=status, title=title)
        if status == "restricted":
            after.permissions = rights
        else:
            after.rights = rights
        chats.change_member(self, place, person, after, by=person)
        return after

    def join(self, bot: BotRef, chat: ChatRef, user: UserRef, *, link: str | None = None, asks: bool = False) -> None:
        """A person comes in by a link of the bot's or without one, or asks to be let in."""
        one, person = self.bot(bot), self._user(user)
        place = self._known(one, chat)
        if link is not None and link not in place.links:
            raise BadInput(code="no_link", detail=f"There is no invite link {link} of chat {place.id}.")
        chats.join(self, one, place, person, link=place.links[link] if link is not None else None, asks=asks)

    def vote(self, bot: BotRef, user: UserRef, poll_id: str, *options: int) -> None:
        """A person votes, or takes the vote back; the bot is told by poll_answer, or by poll if the poll is anonymous."""
        vote(self, self.bot(bot), self._user(user), poll_id, list(options))

    def choose(
        self, bot: BotRef, user: UserRef, result_id: str, query: str = "", *, chat: ChatRef | None = None
    ) -> str | None:
        """A person sends a result of an inline query, or a prepared one; the bot is told. The inline id of the message.

        A message has one if there are buttons under it. With `chat` the bot also sees the message there.
        """
        one = self.bot(bot)
        return choose(self, one, self._user(user), result_id, query, chat=self._chat(one, chat))

    def web_app(self, bot: BotRef, user: UserRef) -> str:
        """A person opens a Mini App by a button that lets it answer; the id for answerWebAppQuery."""
        query_id = str(self.chance.getrandbits(62))
        chat = self.dialog(self.bot(bot), self._user(user))
        self.bot(bot).queries["web_app", query_id] = SimQuery(kind="web_app", asked_at=self.now(), chat_id=chat.id)
        return query_id

    def web_app_data(self, bot: BotRef, user: UserRef, data: str, *, button: str = "") -> Json:
        """A Mini App that a keyboard button has opened sends data; the message."""
        return self.write(bot, user, content={"web_app_data": {"data": data, "button_text": button}})

    def react(
        self, bot: BotRef, user: UserRef, message_id: int, *emojis: str, chat: ChatRef | None = None
    ) -> None:  # fmt: skip
        """What a person thinks of a message from now on; without emojis nothing any more."""
        one, person = self.bot(bot), self._user(user)
        place = self._chat(one, chat) or self.dialog(one, person)
        fresh: list[Json] = [{"type": "emoji", "emoji": emoji} for emoji in emojis]
        edits.set_reactions(self, place, message_id, person, fresh)

    def tick(
        self, bot: BotRef, user: UserRef, message_id: int, *tasks: int, chat: ChatRef | None = None, undo: bool = False
    ) -> Json:  # fmt: skip
        """A person marks tasks of a checklist as done, or as not done; the message that tells it."""
        one, person = self.bot(bot), self._user(user)
        return tick(self, one, person, self._chat(one, chat) or self.dialog(one, person), message_id, tasks, undo=undo)

    def add_tasks(
        self, bot: BotRef, user: UserRef, message_id: int, *texts: str, chat: ChatRef | None = None
    ) -> Json:  # fmt: skip
        """A person adds tasks to a checklist; the message that tells it."""
        one, person = self.bot(bot), self._user(user)
        return add_tasks(self, one, person, self._chat(one, chat) or self.dialog(one, person), message_id, texts)

    def buy(self, bot: BotRef, user: UserRef, message: Json) -> None:
        """A person pays for paid media; the bot has the Stars, and is told if it has sent a payload with them."""
        buy(self, self.bot(bot), self._user(user), message)

    def erase(self, bot: BotRef, chat: ChatRef, *message_ids: int) -> None:
        """People delete messages. Of a business account's the bot is told."""
        one = self.bot(bot)
        erase(self, one, self._known(one, chat), list(message_ids))

    def timer(self, bot: BotRef, chat: ChatRef, seconds: int, *, by: UserRef = 1) -> None:
        """What is written in a chat from now on is deleted after that time; 0 ends it."""
        one = self.bot(bot)
        set_timer(self, one, self._known(one, chat), seconds, self._user(by))

    def manage(self, bot: BotRef, user: UserRef, bot_id: int) -> None:
        """A person makes a bot that this one manages; it is told."""
        one = self.bot(bot)
        made = self.bots.get(bot_id) or self.add_bot(f"{bot_id}:{self.chance.getrandbits(140):035x}")
        one.managed[bot_id] = {"is_access_restricted": False}
        self.push(one, "managed_bot", {"user": self._user(user).as_json(), "bot": made.user.as_json()})

    def pay(self, bot: BotRef, user: UserRef, message: Json | str) -> str:
        """A person presses Pay under an invoice, or opens its link; the id of the query. What the bot agrees to is paid.

        A flexible invoice asks for shipping first; the first option is taken, and the pre-checkout query follows.
        """
        return pay(self, self.bot(bot), self._user(user), message)

    def subscribe(self, bot: BotRef, user: UserRef, charge_id: str, *, is_on: bool = True) -> None:
        """A person ends a subscription that they pay in Stars, or takes it up again; the bot is told."""
        subscribe(self, self.bot(bot), self._user(user), charge_id, is_on=is_on)

    def boost(self, chat: SimChat | int, user: UserRef) -> Json:
        """A person with Premium boosts a chat for a month; the boost. Bots that are administrators are told."""
        return business.boost(self, self._place(chat), self._user(user))

    def unboost(self, chat: SimChat | int, user: UserRef) -> None:
        """All boosts of that person end."""
        business.unboost(self, self._place(chat), self._user(user))

    def guest(self, bot: BotRef, user: UserRef, text: str, *, chat: ChatRef) -> str:
        """A person calls the bot in a chat that it is not in; the id for answerGuestQuery."""
        one, person = self.bot(bot), self._user(user)
        return guest(self, one, person, self._known(one, chat), text)

    def share(
        self, bot: BotRef, user: UserRef, request_id: int, *users: int, chat: SimChat | int | None = None
    ) -> Json:  # fmt: skip
        """A person picks people, or a chat, by a keyboard button; the message that tells it."""
        one, person = self.bot(bot), self._user(user)
        place = None if chat is None else self._place(chat)
        return share(self, one, person, request_id, [self._user(who) for who in users], place)

    def drafts(self, bot: BotRef, user: UserRef) -> dict[int, Json]:
        """What the bot is writing to a person just now, by its own ids."""
        self.run_due()
        return dict(self.dialog(self.bot(bot), self._user(user)).drafts)

    def stop(self, bot: BotRef, user: UserRef, draft_id: int) -> None:
        """A person stops a draft, if its bot lets them; the bot is told."""
        stop(self, self.bot(bot), self._user(user), draft_id)

    def song(self, bot: BotRef, user: UserRef, file: UploadedFile) -> None:
        """A person's newest profile audio, with ids for this bot."""
        one = self.bot(bot)
        face = described(kept(one, file, "audio", {}), {})["audio"]
        assert isinstance(face, dict)
        self._user(user).audios.insert(0, face)

    def connect(
        self, bot: BotRef, user: UserRef, connection_id: str, *, is_enabled: bool = True, **rights: bool
    ) -> Json:
        """A person connects the bot to their business account, or ends that; the connection. A right not named is given."""
        one, person = self.bot(bot), self._user(user)
        return connect(self, one, person, connection_id, is_enabled=is_enabled, rights=rights)

    def stars(self, who: UserRef, amount: int) -> None:
        """A person or a bot gets Stars from elsewhere."""
        person = self._user(who)
        if person.is_bot:
            receive(self, self.bots[person.id], amount, type="other")
        else:
            person.stars += amount

    def game(self, bot: BotRef, name: str, description: str = "", *, photo: UploadedFile | None = None) -> Game:
        """A game of the bot's, as made with @BotFather. One that nobody has made is made by its first use."""
        one = self.bot(bot)
        made = one.games[name] = Game(title=name, description=description)
        if photo is not None:
            made.photo = media.kept(one, photo, "photo", {}).sizes
        return made

    def sticker_set(
        self, bot: BotRef, name: str, files: list[UploadedFile], *, title: str = "", kind: str = "regular",
        emoji_ids: list[str] | None = None,
    ) -> StickerSet:  # fmt: skip
        """A sticker set of a person's, which every bot sees and none may change; with `emoji_ids` the stickers have those ids."""
        return stickers.add_set(self, self.bot(bot), name, files, title=title, kind=kind, emoji_ids=emoji_ids or [])

    def picture(self, bot: BotRef, user: UserRef, file: UploadedFile) -> None:
        """A person's newest profile photo, with ids for this bot."""
        self._user(user).photos.insert(0, media.kept(self.bot(bot), file, "photo", {}).sizes)

    def edit(self, bot: BotRef, chat: ChatRef, message_id: int, text: str) -> Json:
        one = self.bot(bot)
        return edit(self, one, self._known(one, chat), message_id, {"text": text})

    def press(self, bot: BotRef, user: UserRef, message_id: int, data: str, *, chat: ChatRef | None = None) -> str:
        """A person presses a button under a message; the id of the callback query."""
        one, person = self.bot(bot), self._user(user)
        return press(self, one, person, self._chat(one, chat) or self.dialog(one, person), message_id, data)

    def ask(self, bot: BotRef, user: UserRef, kind: str, payload: Json | None = None) -> str:
        """A person's inline, pre_checkout or shipping query; its id. The payload may leave out what is not in question."""
        return ask(self, self.bot(bot), self._user(user), kind, {**USUAL.get(kind, {}), **(payload or {})})

    def answer(self, bot: BotRef, query_id: str) -> Json | None:
        """What the bot has answered to a query, as the person is shown it; None if it has not yet."""
        return self.bot(bot).answers.get(query_id)

    def update(self, bot: BotRef, kind: str, payload: Json, *, date: float | None = None) -> UpdateEvent | None:
        """Any other update, as it is."""
        return self.push(self.bot(bot), kind, payload, date=date)

    def block(self, bot: BotRef, user: UserRef) -> None:
        one, person = self.bot(bot), self._user(user)
        set_standing(self, one, self.dialog(one, person), person, "kicked")

    def unblock(self, bot: BotRef, user: UserRef) -> None:
        one, person = self.bot(bot), self._user(user)
        set_standing(self, one, self.dialog(one, person), person, "member")

    def kick(self, bot: BotRef, chat: ChatRef, *, by: UserRef = 1, status: Status = "kicked") -> None:
        """The bot is thrown out of a chat, or its standing there becomes another."""
        one = self.bot(bot)
        set_standing(self, one, self._known(one, chat), self._user(by), status)

    def migrate(self, chat: SimChat | int, *, by: UserRef = 1) -> int:
        """Upgrade a group; the id of the supergroup."""
        return migrate(self, self._place(chat), self._user(by)).id

    def message(self, bot: BotRef, chat: ChatRef, message_id: int) -> Json | None:
        """One message as the chat shows it now."""
        one = self.bot(bot)
        found = self._known(one, chat).messages.get(message_id)
        return None if found is None else visible(found)

    # Trouble

    def outage(self, seconds: float) -> Fault:
        return self.faults.outage(seconds)

    def dark(self, on: bool) -> None:
        self.faults.dark(on)

    def _user(self, user: UserRef) -> SimUser:
        return user if isinstance(user, SimUser) else self.users.get(user) or self.user(user)

    def _chat(self, bot: SimBot, chat: ChatRef | None) -> SimChat | None:
        return None if chat is None else self._known(bot, chat)

    def _place(self, chat: SimChat | int) -> SimChat:
        """A group or channel, whoever looks at it."""
        found = chat if isinstance(chat, SimChat) else self._group(chat) if chat < 0 else None
        if found is None:
            raise BadInput(code="no_chat", detail=f"There is no group or channel {chat}.")
        return found

    def _known(self, bot: SimBot, chat: ChatRef) -> SimChat:
        found = chat if isinstance(chat, SimChat) else self.find_chat(bot, chat)
        if found is None:
            raise BadInput(code="no_chat", detail=f"There is no chat {chat}.")
        return found


# What people do: write, press, block, leave. Each deed becomes the update that Telegram would send.


def add_user(
    world: World, user_id: int, *, first_name: str, username: str | None, language_code: str | None
) -> SimUser:
    user = world.users.get(user_id)
    if user is None:
        user = world.users[user_id] = SimUser(id=user_id, first_name=first_name or f"User {user_id}")
    user.first_name = first_name or user.first_name
    user.username = username or user.username
    user.language_code = language_code or user.language_code
    if username:
        world.by_username[username.lower()] = user
    return user


def add_chat(
    world: World,
    kind: ChatType,
    *,
    chat_id: int | None,
    title: str,
    username: str | None,
    is_forum: bool,
    bots: list[SimBot],
) -> SimChat:
    if chat_id is None:
        base = SUPERGROUP_BASE if kind != "group" else 0
        chat_id = base - world.chance.randint(1_000_000, 999_999_999)
    if chat_id >= 0 or kind == "private":
        raise BadInput(
            code="wrong_chat", detail="A group or channel has a negative id; a private chat comes with its user."
        )
    chat = SimChat(id=chat_id, type=kind, title=title or f"{kind} {chat_id}", username=username, is_forum=is_forum)
    for bot in bots:
        chat.members[bot.id] = SimMember(status="administrator" if kind == "channel" else "member")
    world.chats[chat_id] = chat
    if username:
        world.by_username[username.lower()] = chat
    return chat


def write(
    world: World,
    bot: SimBot,
    user: SimUser,
    content: Json,
    *,
    chat: SimChat | None,
    thread_id: int | None,
    reply_to: int | None,
    date: float | None,
    sender_chat: SimChat | None = None,
) -> Json:
    """A person's message: to the bot, or in a group to all bots in it. In a channel it is a post."""
    now = world.now()
    chat = chat or world.dialog(bot, user)
    chat.active_at = now
    if chat.is_blocked:
        # Who writes to a bot again has unblocked it, and the bot is told so first.
        set_standing(world, bot, chat, user, "member")
    message_id = chat.next_message_id()
    at = int(now if date is None else date)
    message: Json = {"message_id": message_id, **_sender(chat, user, sender_chat)}
    message |= {"chat": chat.as_json(), "date": at}
    if not chat.is_private and chat.members.get(user.id, _NOBODY).tag:
        message["sender_tag"] = chat.members[user.id].tag
    if chat.parent:
        message["direct_messages_topic"] = {"topic_id": user.id, "user": user.as_json()}
    if thread_id:
        message |= {"message_thread_id": thread_id, "is_topic_message": True}
    if reply_to in chat.messages:
        message["reply_to_message"] = visible(chat.messages[reply_to])
    message |= content
    message |= _found(content)
    world.keep(chat, message_id, message)
    world.let_expire(chat, message_id)
    kind = "channel_post" if chat.type == "channel" else "message"
    if "business_connection_id" in message:
        check_connection(world, bot, str(message["business_connection_id"]))
        kind = "business_message"
    for listener in listeners(world, bot, chat):
        world.push(listener, kind, message, date=at)
    return message


def _sender(chat: SimChat, user: SimUser, sender_chat: SimChat | None) -> Json:
    """Whose message it is."""
    if sender_chat is None:
        return {"sender_chat": chat.as_json()} if chat.type == "channel" else {"from": user.as_json()}
    if sender_chat.id in chat.banned:
        raise BadInput(code="banned", detail=f"Chat {sender_chat.id} is banned in chat {chat.id}.")
    return {"from": CHANNEL_BOT, "sender_chat": sender_chat.as_json()}


def _found(content: Json) -> Json:
    """The links, names and commands in what a person writes."""
    found: Json = {}
    for field, entities_field in (("text", "entities"), ("caption", "caption_entities")):
        text = content.get(field)
        if isinstance(text, str) and entities_field not in content and may_have_links(text):
            entities = formatted(text, "", None)[1]
            if entities:
                found[entities_field] = entities
    return found


_NOBODY = SimMember(status="left")
# Whom Telegram names as the sender of what is written in the name of a channel.
CHANNEL_BOT: Json = {"id": 136_817_688, "is_bot": True, "first_name": "Channel", "username": "Channel_Bot"}


def guest(world: World, bot: SimBot, user: SimUser, chat: SimChat, text: str) -> str:
    query_id = str(world.chance.getrandbits(62))
    bot.queries["guest", query_id] = SimQuery(kind="guest", asked_at=world.now(), chat_id=chat.id, user_id=user.id)
    now = int(world.now())
    message: Json = {"message_id": chat.next_message_id(), "from": user.as_json(), "chat": chat.as_json(), "date": now}
    world.push(bot, "guest_message", {**message, "text": text, "guest_query_id": query_id}, date=now)
    return query_id


def share(
    world: World, bot: SimBot, user: SimUser, request_id: int, users: list[SimUser], chat: SimChat | None
) -> Json:
    if chat is not None:
        content: Json = {"chat_shared": {"request_id": request_id, "chat_id": chat.id, "title": chat.title}}
    else:
        people = [{"user_id": one.id, "first_name": one.first_name} for one in users]
        content = {"users_shared": {"request_id": request_id, "users": people, "user_ids": [one.id for one in users]}}
        if len(users) == 1:
            content["user_shared"] = {"request_id": request_id, "user_id": users[0].id}
    return told_by(world, bot, world.dialog(bot, user), content, user)


def stop(world: World, bot: SimBot, user: SimUser, draft_id: int) -> None:
    chat = world.dialog(bot, user)
    draft = chat.drafts.get(draft_id)
    if draft is None or not draft.get("can_stop"):
        raise BadInput(code="no_draft", detail=f"Bot {bot.id} writes no draft {draft_id} that user {user.id} can stop.")
    if not draft.get("keep_on_stop"):
        del chat.drafts[draft_id]
    thread: Json = {name: draft[name] for name in ("message_thread_id",) if name in draft}
    told: Json = {"chat": chat.as_json(), "draft_id": draft_id, **thread}
    world.push(bot, "stopped_message_generation", told)


def erase(world: World, bot: SimBot, chat: SimChat, message_ids: list[int]) -> None:
    """Messages are gone; a business account's are told of."""
    by_connection: dict[str, list[int]] = {}
    for message_id in message_ids:
        gone = chat.messages.pop(message_id, None)
        if gone is not None and "business_connection_id" in gone:
            by_connection.setdefault(str(gone["business_connection_id"]), []).append(message_id)
    for connection_id, ids in by_connection.items():
        told: Json = {"business_connection_id": connection_id, "chat": chat.as_json(), "message_ids": ids}
        world.push(bot, "deleted_business_messages", told)


def set_timer(world: World, bot: SimBot, chat: SimChat, seconds: int, user: SimUser) -> None:
    chat.more.pop("message_auto_delete_time", None)
    if seconds:
        chat.more["message_auto_delete_time"] = seconds
    content: Json = {"message_auto_delete_timer_changed": {"message_auto_delete_time": seconds}}
    told_by(world, bot, chat, content, user)


def choose(world: World, bot: SimBot, user: SimUser, result_id: str, query: str, *, chat: SimChat | None) -> str | None:
    result = bot.results.get(result_id)
    if result is None and not world.options.accept_any_chat:
        raise BadInput(code="no_result", detail=f"The bot has answered with no result {result_id}.")
    if chat is not None and chat.type not in bot.prepared.get(result_id, {chat.type}):
        raise BadInput(code="not_there", detail=f"The result {result_id} may not be sent to a {chat.type} chat.")
    content = methods.inline_content(world, bot, result or {})
    inline_id = methods.keep_inline(world, bot, content) if "reply_markup" in content else None
    payload: Json = {"result_id": result_id, "from": user.as_json(), "query": query}
    if inline_id is not None:
        payload["inline_message_id"] = inline_id
    world.push(bot, "chosen_inline_result", payload)
    if chat is not None:
        sent = {**content, "via_bot": bot.user.as_json()}
        write(world, bot, user, sent, chat=chat, thread_id=None, reply_to=None, date=None)
    return inline_id


def edit(world: World, bot: SimBot, chat: SimChat, message_id: int, content: Json) -> Json:
    """A person changes his own message."""
    message = chat.messages.get(message_id)
    if message is None:
        raise BadInput(code="no_message", detail=f"There is no message {message_id} in chat {chat.id}.")
    now = int(world.now())
    message |= {**content, "edit_date": now}
    kind = "edited_channel_post" if chat.type == "channel" else "edited_message"
    if "business_connection_id" in message:
        kind = "edited_business_message"
    for listener in listeners(world, bot, chat):
        world.push(listener, kind, message, date=now)
    return message


def upload(world: World, bot: SimBot, kind: str, file: UploadedFile) -> Json:
    """The content of a message that carries a file."""
    return described(kept(bot, file, kind, {}), {})


def listeners(world: World, bot: SimBot, chat: SimChat) -> list[SimBot]:
    if chat.is_private:
        return [bot]
    world.member(chat, bot)
    return [
        world.bots[user_id] for user_id, member in chat.members.items() if member.is_inside and user_id in world.bots
    ]


def press(world: World, bot: SimBot, user: SimUser, chat: SimChat, message_id: int, data: str) -> str:
    """A button under a message is pressed; the query's id."""
    message = chat.messages.get(message_id)
    if message is None:
        raise BadInput(code="no_message", detail=f"There is no message {message_id} in chat {chat.id}.")
    chat.active_at = world.now()
    payload: Json = {"message": visible(message), "chat_instance": str(chat.id), "data": data}
    return ask(world, bot, user, "callback", payload, chat_id=chat.id)


def vote(world: World, bot: SimBot, user: SimUser, poll_id: str, options: list[int]) -> None:
    """A vote; no options take it back."""
    _, poll = world.polls.get(poll_id, (0, None))
    if poll is None or poll["is_closed"]:
        raise BadInput(code="no_poll", detail=f"There is no open poll {poll_id}.")
    rows = poll["options"]
    assert isinstance(rows, list)
    if any(not 0 <= one < len(rows) for one in options) or (len(options) > 1 and not poll["allows_multiple_answers"]):
        raise BadInput(code="no_option", detail=f"Poll {poll_id} cannot be answered with {options}.")
    votes = world.votes.setdefault(poll_id, {})
    for one in votes.pop(user.id, []):
        rows[one]["voter_count"] -= 1
    if options:
        votes[user.id] = options
        for one in options:
            rows[one]["voter_count"] += 1
    poll["total_voter_count"] = len(votes)
    if poll["is_anonymous"]:
        world.push(bot, "poll", poll)
        return
    ids = [rows[one]["persistent_id"] for one in options]
    answer: Json = {"poll_id": poll_id, "user": user.as_json(), "option_ids": options, "option_persistent_ids": ids}
    world.push(bot, "poll_answer", answer)


def set_standing(world: World, bot: SimBot, chat: SimChat, user: SimUser, status: Status) -> UpdateEvent | None:
    """The bot's standing in a chat changes, and my_chat_member tells it."""
    now = int(world.now())
    if chat.is_private:
        before: Status = "kicked" if chat.is_blocked else "member"
        chat.is_blocked = status == "kicked"
    else:
        member = world.member(chat, bot)
        before = member.status
        chat.members[bot.id] = SimMember(status=status)
    if before == status:
        return None
    change: Json = {
        "chat": chat.as_json(),
        "from": user.as_json(),
        "date": now,
        "old_chat_member": SimMember(status=before).as_json(bot.user),
        "new_chat_member": SimMember(status=status).as_json(bot.user),
    }
    return world.push(bot, "my_chat_member", change, date=now)


def migrate(world: World, chat: SimChat, user: SimUser) -> SimChat:
    """A group becomes a supergroup with another id; both tell their bots (docs/telegram.md, Chats that close or move)."""
    if chat.type != "group" or chat.migrated_to is not None:
        raise BadInput(code="not_a_group", detail=f"{chat.id} is no basic group, or was upgraded before.")
    fresh_id = SUPERGROUP_BASE - world.chance.randint(1_000_000_000, 2_147_483_647)
    fresh = SimChat(id=fresh_id, type="supergroup", title=chat.title, is_lenient=chat.is_lenient, members=chat.members)
    world.chats[fresh_id] = fresh
    for one, content in ((chat, {"migrate_to_chat_id": fresh_id}), (fresh, {"migrate_from_chat_id": chat.id})):
        message: Json = {
            "message_id": one.next_message_id(),
            "from": user.as_json(),
            "chat": one.as_json(),
            "date": int(world.now()),
            **content,
        }
        for user_id in one.members:
            if user_id in world.bots:
                world.push(world.bots[user_id], "message", message, date=integer(message, "date"))
    chat.migrated_to = fresh_id
    return fresh
