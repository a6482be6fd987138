"""A small Telegram that speaks TL: a real TelegramClient's sender is replaced by one without a socket, and everything that
goes through it is written as bytes and read again, as on the wire."""
# ruff: noqa: N802, N815  handlers are named after the requests that they answer

import asyncio
import copy
import datetime
import functools
import inspect
import os
import struct
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from telethon import functions, password, types
from telethon.crypto import AuthKey
from telethon.errors import rpc_message_to_error
from telethon.extensions import BinaryReader
from telethon.network.mtprotosender import MTProtoSender
from telethon.password import check_prime_and_good
from telethon.tl.core.rpcresult import RpcError

from docs.pages.account_errors import ANYWHERE, DOCUMENTED, SLOW_MODE, SPAM, code_of

ME, SARA, NEWS, TEAM, GROUP = 777, 501, 9001, 9002, 44
STRANGERS = 1_000_000  # and so on
INVITE, SARAS_PHONE = "AbCdEf0123456789", "+998907654321"
PHONE, CODE, PASSWORD = "+998901234567", "12345", "correct horse"

# What Telegram answers to a key that nobody is signed in with, and to one that still has to give its password.
_FOR_ANYONE = frozenset({"SendCode", "ResendCode", "SignIn", "GetConfig", "ExportLoginToken", "ImportLoginToken"})
_FOR_HALF_SIGNED = frozenset({"GetPassword", "CheckPassword", "LogOut", "GetConfig", "SendCode", "ResendCode"})

Handler = Callable[[Any], Any]


class TlTelegram:
    """One account, a person (Sara), a channel (News), a supergroup (Team) and a basic group."""

    def __init__(self) -> None:
        self.at = datetime.datetime(2026, 11, 15, 12, 0, tzinfo=datetime.UTC)
        self.signed_in: set[bytes] = set()
        self.half_signed: set[bytes] = set()  # the code was right, the password is not given yet
        self.ended: dict[bytes, str] = {}  # why Telegram ended a key: the name of the error that it answers with
        self.has_password = False
        self.is_down = False  # no way there
        self.is_deaf = False  # pushes get lost
        self.pts = 100
        self.log: list[tuple[int, Any]] = []  # what happened in private chats and the basic group
        self.qts = 1
        self.qts_log: list[tuple[int, Any]] = []  # who joined and left, which has an order of its own
        self.channel_pts = {NEWS: 50, TEAM: 50}
        self.channel_log: dict[int, list[tuple[int, Any]]] = {NEWS: [], TEAM: []}
        self.me_id, self.phone = ME, PHONE
        # Each channel numbers its own, all other chats of an account together (0): there the first is Telegram's greeting.
        self.next_ids: dict[int, int] = {0: 2}
        self.by_random_id: dict[int, int] = {}
        self.requests: list[Any] = []
        self.scripted: dict[str, list[Any]] = defaultdict(list)
        self.always: dict[str, str] = {}  # by method, as Telegram writes it: an error for as long as it stands here
        self.senders: list[FakeSender] = []
        self.token_is_scanned = False
        self.too_long: set[int | None] = set()
        self.joined: set[int] = set()
        self.participants: list[Any] = []  # of Team
        self.contacts: set[int] = set()
        self.slice_max: int | None = None  # so much of a difference at once
        self.files: dict[int, bytes] = {}
        self.reference = b"reference 1"  # of all files; when it changes, what was told before holds no longer
        self.tells_channels = False  # in a difference: which channels have news
        self.strangers = 0  # so many private chats besides, each with one message, older and older
        self.rates: Counter[tuple[int, str]] = Counter()  # how often each method was asked for in each second

    def prepare(self, telegram: Any) -> None:
        sender = FakeSender(telegram, self)
        telegram._sender = sender
        self.senders.append(sender)

    def next(self, request: str, answer: Any) -> None:
        """The answer to the next request of this name: an object, or an error by Telegram's name ("FLOOD_WAIT_30")."""
        self.scripted[request].append(answer)

    def fail(self, method: str, error: str) -> None:
        """Every request of this method, from now on; only with what Telegram documents for it."""
        known = {
            *ANYWHERE.split(),
            SLOW_MODE,
            SPAM,
            *(one for role in DOCUMENTED.values() for one in role.get(method, "").split()),
        }
        assert error in known, f"Telegram does not answer {method} with {error}"
        self.always[method] = error

    def busiest(self) -> dict[str, int]:
        """The most that was asked for in any second, by method."""
        most: Counter[str] = Counter()
        for (_, method), count in self.rates.items():
            most[method] = max(most[method], count)
        return dict(most.most_common())

    def asked(self, name: str) -> list[Any]:
        return [one for one in self.requests if type(one).__name__.lstrip("_").removesuffix("Request") == name]

    # What happens in the world.

    def message(self, peer: Any, text: str, *, number: int | None = None, **more: Any) -> types.Message:
        place = getattr(peer, "channel_id", 0)
        if number is None:
            number = self.next_ids.get(place, 1)
            self.next_ids[place] = number + 1
        return types.Message(id=number, peer_id=peer, date=self.at, message=text, **more)

    def tell(self, update: Any) -> Any:
        """Keep an update, and push it to whoever is connected."""
        if not (self.is_down or self.is_deaf):
            self.push(update)
        return update

    def push(self, update: Any) -> None:
        for sender in self.senders:
            if sender.is_connected():
                sender.receive(types.Updates([update], [self.sara()], self.chats(), self.at, 0))

    def private(self, text: str, *, group: bool = False, **more: Any) -> types.Message:
        self.pts += 1
        message = self.message(types.PeerChat(GROUP) if group else types.PeerUser(SARA), text, **more)
        self.log.append((self.pts, message))
        self.tell(types.UpdateNewMessage(message, self.pts, 1))
        return message

    def post(self, channel: int, text: str, **more: Any) -> types.Message:
        self.channel_pts[channel] += 1
        message = self.message(types.PeerChannel(channel), text, post=channel == NEWS or None, **more)
        self.channel_log[channel].append((self.channel_pts[channel], message))
        self.tell(types.UpdateNewChannelMessage(message, self.channel_pts[channel], 1))
        return message

    def change(self, message: Any, text: str) -> None:
        """Whoever wrote it edits it."""
        edited = copy.copy(message)
        edited.message, edited.edit_date = text, self.at
        self._replace(message, [edited])
        channel = getattr(message.peer_id, "channel_id", None)
        kind = types.UpdateEditMessage if channel is None else types.UpdateEditChannelMessage
        self.happen(lambda pts: kind(edited, pts, 1), channel=channel)

    def remove(self, message: Any) -> None:
        self._replace(message, [])
        channel = getattr(message.peer_id, "channel_id", None)
        if channel is None:
            self.happen(lambda pts: types.UpdateDeleteMessages([message.id], pts, 1))
        else:
            self.happen(lambda pts: types.UpdateDeleteChannelMessages(channel, [message.id], pts, 1), channel=channel)

    def _replace(self, message: Any, others: list[Any]) -> None:
        log = self.channel_log.get(getattr(message.peer_id, "channel_id", 0), self.log)
        place = next(
            index for index, (_, one) in enumerate(log) if isinstance(one, types.Message) and one.id == message.id
        )
        log[place : place + 1] = [(log[place][0], one) for one in others]

    def happen(self, make: Callable[[int], Any], *, channel: int | None = None) -> None:
        """Something else with a place in the account's order, or in a channel's."""
        if channel is None:
            self.pts += 1
        else:
            self.channel_pts[channel] += 1
        pts, log = (self.pts, self.log) if channel is None else (self.channel_pts[channel], self.channel_log[channel])
        update = make(pts)
        log.append((pts, update))
        self.tell(update)

    def happen_to_members(self, make: Callable[[int], Any]) -> Any:
        self.qts += 1
        update = make(self.qts)
        self.qts_log.append((self.qts, update))
        return self.tell(update)

    def me(self) -> types.User:
        return types.User(
            id=self.me_id, access_hash=1, first_name="Ali", phone=self.phone[1:], username="ali", is_self=True
        )

    def sara(self) -> types.User:
        return types.User(id=SARA, access_hash=2, first_name="Sara")

    def stranger(self, number: int) -> types.User:
        return types.User(id=STRANGERS + number, access_hash=6, first_name=f"Stranger {number}")

    def chats(self) -> list[Any]:
        photo = types.ChatPhotoEmpty()
        return [
            types.Channel(id=NEWS, title="News", photo=photo, date=self.at, access_hash=3, broadcast=True),
            types.Channel(id=TEAM, title="Team", photo=photo, date=self.at, access_hash=4, megagroup=True),
            types.Chat(id=GROUP, title="Family", photo=photo, participants_count=3, date=self.at, version=1),
        ]

    # What Telegram answers.

    def answer(self, request: Any, key: bytes) -> Any:
        self.requests.append(request)
        self.rates[int(asyncio.get_running_loop().time()), _method_of(request)] += 1
        name = type(request).__name__.lstrip("_").removesuffix("Request")
        standing = self.always.get(_method_of(request))
        if standing is not None:
            answer = standing
        elif self.scripted[name]:
            answer = self.scripted[name].pop(0)
        else:
            handler: Handler | None = getattr(self, f"on_{name}", None)
            assert handler is not None, f"the test's Telegram has no answer to {name}"
            self._key = key
            answer = self._refusal(name, key) or handler(request)
        if isinstance(answer, str):
            raise rpc_message_to_error(RpcError(code_of(answer), answer), request)
        return answer

    def _refusal(self, name: str, key: bytes) -> str | None:
        """What a key hears that is half signed in, ended, or unknown, whatever it asks for."""
        if key in self.ended:
            return self.ended[key]
        if key in self.half_signed:
            return None if name in _FOR_HALF_SIGNED else "SESSION_PASSWORD_NEEDED"
        return None if name in _FOR_ANYONE or key in self.signed_in else "AUTH_KEY_UNREGISTERED"

    def end_keys(self, why: str) -> None:
        """Revoked, banned or used twice: every key of the account hears it from now on, with whatever it asks for."""
        for key in self.signed_in:
            self.ended[key] = why
        self.signed_in.clear()

    def on_GetConfig(self, request: Any) -> Any:
        needed = {name: _any(one.annotation) for name, one in inspect.signature(types.Config).parameters.items()
                  if one.default is inspect.Parameter.empty}  # fmt: skip
        needed |= {"date": self.at, "expires": self.at, "dc_options": [types.DcOption(4, "149.154.167.91", 443)]}
        return types.Config(**needed)

    def on_GetUsers(self, request: Any) -> Any:
        return [self.me() if isinstance(request.id[0], types.InputUserSelf) else types.UserEmpty(request.id[0].user_id)]

    def on_GetChannels(self, request: Any) -> Any:
        return "CHANNEL_INVALID"  # who does not know the access hash learns nothing

    def on_GetState(self, request: Any) -> Any:
        return self.state()

    def state(self) -> Any:
        return types.updates.State(pts=self.pts, qts=self.qts, date=self.at, seq=0, unread_count=0)

    def on_GetDifference(self, request: Any) -> Any:
        if None in self.too_long and request.pts < self.pts:
            self.too_long.discard(None)
            return types.updates.DifferenceTooLong(self.pts)
        behind = [(pts, what) for pts, what in self.log if pts > request.pts]
        sliced = behind[: self.slice_max]
        missed = [what for _, what in sliced]
        if self.tells_channels and len(sliced) == len(behind):
            missed += [types.UpdateChannelTooLong(channel) for channel, log in self.channel_log.items() if log]
        if len(sliced) == len(behind):
            missed += [what for qts, what in self.qts_log if qts > request.qts]
        if not missed:
            return types.updates.DifferenceEmpty(self.at, 0)
        messages, others = _parted(missed)
        if len(sliced) < len(behind):
            reached = types.updates.State(pts=sliced[-1][0], qts=request.qts, date=self.at, seq=0, unread_count=0)
            return types.updates.DifferenceSlice(messages, [], others, self.chats(), [self.sara()], reached)
        return types.updates.Difference(messages, [], others, self.chats(), [self.sara()], self.state())

    def on_GetChannelDifference(self, request: Any) -> Any:
        channel = request.channel.channel_id
        pts = self.channel_pts[channel]
        if channel in self.too_long:
            self.too_long.discard(channel)
            peer = types.PeerChannel(channel)
            dialog = types.Dialog(peer, 1, 0, 0, 0, 0, 0, 0, types.PeerNotifySettings(), pts=pts)
            return types.updates.ChannelDifferenceTooLong(dialog, [], self.chats(), [], final=True)
        behind = [(at, what) for at, what in self.channel_log[channel] if at > request.pts]
        sliced = behind[: self.slice_max]
        if not sliced:
            return types.updates.ChannelDifferenceEmpty(pts, final=True)
        is_last = len(sliced) == len(behind)
        messages, others = _parted([what for _, what in sliced])
        return types.updates.ChannelDifference(
            pts if is_last else sliced[-1][0], messages, others, self.chats(), [], final=is_last or None
        )

    def on_SendCode(self, request: Any) -> Any:
        return types.auth.SentCode(types.auth.SentCodeTypeApp(5), "hash", types.auth.CodeTypeSms(), 60)

    def on_ResendCode(self, request: Any) -> Any:
        return types.auth.SentCode(types.auth.SentCodeTypeSms(5), "hash2", None, 60)

    def on_SignIn(self, request: Any) -> Any:
        if request.phone_code != CODE:
            return "PHONE_CODE_INVALID"
        return self._let_in(lambda: self._welcome())

    def _let_in(self, welcome: Callable[[], Any]) -> Any:
        if self.has_password:
            self.half_signed.add(self._key)
            return "SESSION_PASSWORD_NEEDED"
        return welcome()

    def on_GetPassword(self, request: Any) -> Any:
        unknown = types.PasswordKdfAlgoUnknown()
        return types.account.Password(
            unknown, types.SecurePasswordKdfAlgoUnknown(), b"", has_password=True, current_algo=_KDF,
            srp_B=password.big_num_for_hash(_srp().b_public), srp_id=1,
        )  # fmt: skip

    def on_CheckPassword(self, request: Any) -> Any:
        return self._welcome() if _srp().proof(request.password.A) == request.password.M1 else "PASSWORD_HASH_INVALID"

    def on_ExportLoginToken(self, request: Any) -> Any:
        if self.token_is_scanned:
            return self._let_in(lambda: types.auth.LoginTokenSuccess(self._welcome()))
        return types.auth.LoginToken(self.at + datetime.timedelta(seconds=30), b"token")

    on_ImportLoginToken = on_ExportLoginToken

    def on_LogOut(self, request: Any) -> Any:
        self.signed_in.discard(self._key)
        self.half_signed.discard(self._key)
        return types.auth.LoggedOut()

    def _welcome(self) -> Any:
        self.half_signed.discard(self._key)
        self.signed_in.add(self._key)
        return types.auth.Authorization(user=self.me())

    def on_SendMessage(self, request: Any) -> Any:
        return self._sent(request.peer, request.random_id, request.message.strip(), None)

    def on_SendMedia(self, request: Any) -> Any:
        return self._sent(request.peer, request.random_id, request.message, types.MessageMediaUnsupported())

    def on_ForwardMessages(self, request: Any) -> Any:
        updates: list[Any] = []
        known = {one.id: one for one in self._in(request.from_peer)}
        for message_id, random_id in zip(request.id, request.random_id, strict=True):
            original = known.get(message_id)
            text, media = ("forwarded", None) if original is None else (original.message, original.media)
            text = "" if media is not None and request.drop_media_captions else text
            head = (
                None if request.drop_author else types.MessageFwdHeader(self.at if original is None else original.date)
            )
            updates += self._made(request.to_peer, random_id, text, media, fwd_from=head)
        return types.Updates(updates, [self.sara()], self.chats(), self.at, 0)

    def _sent(self, peer: Any, random_id: int, text: str, media: Any) -> Any:
        if isinstance(peer, types.InputPeerUser) and random_id not in self.by_random_id:
            self.pts += 1
            message = self.message(
                types.PeerUser(peer.user_id), text, out=True, from_id=types.PeerUser(self.me_id), media=media
            )
            self.by_random_id[random_id] = message.id
            self.log.append((self.pts, message))
            return types.UpdateShortSentMessage(message.id, self.pts, 1, self.at, out=True, media=media)
        return types.Updates(self._made(peer, random_id, text, media), [self.sara()], self.chats(), self.at, 0)

    def _made(self, peer: Any, random_id: int, text: str, media: Any, **more: Any) -> list[Any]:
        is_channel = isinstance(peer, types.InputPeerChannel)
        place = types.PeerChannel(peer.channel_id) if is_channel else types.PeerUser(peer.user_id)
        known = self.by_random_id.get(random_id)
        message = self.message(
            place, text, number=known, out=True, from_id=types.PeerUser(self.me_id), media=media, **more
        )
        self.by_random_id[random_id] = message.id
        count = 0 if known is not None else 1
        if is_channel:
            self.channel_pts[peer.channel_id] += count
            pts = self.channel_pts[peer.channel_id]
            log = self.channel_log[peer.channel_id]
            new: Any = types.UpdateNewChannelMessage(message, pts, count)
        else:
            self.pts += count
            pts, log = self.pts, self.log
            new = types.UpdateNewMessage(message, pts, count)
        if known is None:
            log.append((pts, message))
        return [types.UpdateMessageID(message.id, random_id), new]

    def on_EditMessage(self, request: Any) -> Any:
        self.pts += 1
        message = types.Message(id=request.id, peer_id=types.PeerUser(SARA), date=self.at, message=request.message, out=True,
                                edit_date=self.at)  # fmt: skip
        return types.Updates([types.UpdateEditMessage(message, self.pts, 1)], [], [], self.at, 0)

    def on_DeleteMessages(self, request: Any) -> Any:
        if isinstance(request, functions.channels.DeleteMessagesRequest):
            return types.messages.AffectedMessages(self.channel_pts[request.channel.channel_id], 0)
        self.pts += len(request.id)
        return types.messages.AffectedMessages(self.pts, len(request.id))

    def on_UpdatePinnedMessage(self, request: Any) -> Any:
        return types.Updates([], [], [], self.at, 0)

    on_SendReaction = on_UpdatePinnedMessage

    def on_SaveFilePart(self, request: Any) -> Any:
        return True

    def on_GetHistory(self, request: Any) -> Any:
        below = request.offset_id or 10**9
        found = [one for one in self._in(request.peer)[::-1] if request.min_id < one.id < below]
        if len(found) <= request.limit:
            return types.messages.Messages(found, [], [], [])
        return types.messages.MessagesSlice(len(self._in(request.peer)), found[: request.limit], [], [], [])

    def _in(self, peer: Any) -> list[Any]:
        """The messages of a chat, the oldest first."""
        if isinstance(peer, types.InputPeerChannel | types.PeerChannel):
            return [one for _, one in self.channel_log[peer.channel_id] if isinstance(one, types.Message)]
        wanted = {getattr(peer, "user_id", None), getattr(peer, "chat_id", None)} - {None}
        found = [one for _, one in self.log if isinstance(one, types.Message)]
        return [one for one in found if getattr(one.peer_id, "user_id", getattr(one.peer_id, "chat_id", 0)) in wanted]

    def on_GetDialogs(self, request: Any) -> Any:
        quiet = types.PeerNotifySettings()
        peers = [types.PeerUser(SARA), types.PeerChannel(NEWS), types.PeerChannel(TEAM), types.PeerChat(GROUP)]
        newest = [self._in(peer)[-1:] for peer in peers]
        tops = [found[0] if found else types.Message(id=1, peer_id=peer, date=self.at, message="top")
                for peer, found in zip(peers, newest, strict=True)]  # fmt: skip
        for number in range(self.strangers):
            at = self.at - datetime.timedelta(minutes=1 + number)
            tops.append(
                types.Message(id=1, peer_id=types.PeerUser(STRANGERS + number), date=at, message=f"hello {number}")
            )
        dialogs = [types.Dialog(top.peer_id, top.id, 0, 0, 0, 0, 0, 0, quiet,
                                pts=self.channel_pts.get(getattr(top.peer_id, "channel_id", 0)))
                   for top in tops]  # fmt: skip
        behind = getattr(request.offset_peer, "user_id", None)
        start = next((place + 1 for place, top in enumerate(tops) if getattr(top.peer_id, "user_id", 0) == behind), 0)
        end = start + min(request.limit, 100)
        named = [getattr(top.peer_id, "user_id", 0) - STRANGERS for top in tops[start:end]]
        users = [self.sara(), *(self.stranger(number) for number in named if number >= 0)]
        if start == 0 and end >= len(tops):
            return types.messages.Dialogs(dialogs, tops, self.chats(), users)
        return types.messages.DialogsSlice(len(tops), dialogs[start:end], tops[start:end], self.chats(), users)

    def document(self, data: bytes, *, dc: int = 4) -> Any:
        """A message's media: a file of Telegram's."""
        number = 7_000 + len(self.files)
        self.files[number] = data
        name = types.DocumentAttributeFilename(f"{number}.bin")
        mime = "application/octet-stream"
        return types.MessageMediaDocument(
            document=types.Document(number, 9, self.reference, self.at, mime, len(data), dc, [name])
        )

    def on_GetMessages(self, request: Any) -> Any:
        is_channel = isinstance(request, functions.channels.GetMessagesRequest)
        log = self.channel_log[request.channel.channel_id] if is_channel else self.log
        by_id = {one.id: one for _, one in log if isinstance(one, types.Message)}
        found = [by_id.get(one.id) or types.MessageEmpty(one.id, None) for one in request.id]
        for one in found:
            if getattr(one, "media", None) is not None:
                one.media.document.file_reference = self.reference
        return types.messages.Messages(found, [], self.chats(), [self.sara()])

    def on_GetFile(self, request: Any) -> Any:
        if request.location.file_reference != self.reference:
            return "FILE_REFERENCE_EXPIRED"
        data = self.files[request.location.id][request.offset : request.offset + request.limit]
        return types.upload.File(types.storage.FilePartial(), 0, data)

    def on_GetParticipants(self, request: Any) -> Any:
        listed = self.participants[request.offset : request.offset + request.limit]
        users = [types.User(id=one.user_id, access_hash=5, first_name=f"U{one.user_id}") for one in listed]
        return types.channels.ChannelParticipants(len(self.participants), listed, [], users)

    def on_GetFullChat(self, request: Any) -> Any:
        mine = types.ChatParticipant(self.me_id, SARA, self.at)
        listed = types.ChatParticipants(GROUP, [types.ChatParticipantCreator(SARA), mine], 1)
        full = types.ChatFull(GROUP, "", listed, types.PeerNotifySettings())
        return types.messages.ChatFull(full, self.chats(), [self.me(), self.sara()])

    def on_ImportChatInvite(self, request: Any) -> Any:
        if request.hash != INVITE:
            return "INVITE_HASH_EXPIRED"
        if TEAM in self.joined:
            return "USER_ALREADY_PARTICIPANT"
        self.joined.add(TEAM)
        return types.Updates([], [], [self.chats()[1]], self.at, 0)

    def on_CheckChatInvite(self, request: Any) -> Any:
        return types.ChatInviteAlready(self.chats()[1])

    def on_JoinChannel(self, request: Any) -> Any:
        return types.Updates([], [], [self.chats()[0]], self.at, 0)

    def on_GetContacts(self, request: Any) -> Any:
        users = [self.sara()] if SARA in self.contacts else []
        return types.contacts.Contacts([types.Contact(one.id, True) for one in users], len(users), users)

    def on_ImportContacts(self, request: Any) -> Any:
        found = [one for one in request.contacts if one.phone == SARAS_PHONE]
        self.contacts.update(SARA for _ in found)
        later = [one.client_id for one in request.contacts if one.phone.startswith("+77")]
        imported = [types.ImportedContact(SARA, one.client_id) for one in found]
        return types.contacts.ImportedContacts(imported, [], later, [self.sara()] if found else [])

    def on_ResolveUsername(self, request: Any) -> Any:
        if request.username == "news":
            return types.contacts.ResolvedPeer(types.PeerChannel(NEWS), [self.chats()[0]], [])
        return types.contacts.ResolvedPeer(types.PeerUser(SARA), [], [self.sara()])


def _parted(missed: list[Any]) -> tuple[list[Any], list[Any]]:
    """New messages, and whatever else happened."""
    kinds = types.Message | types.MessageService
    return [one for one in missed if isinstance(one, kinds)], [one for one in missed if not isinstance(one, kinds)]


_PRIME = bytes(
    next(one for one in check_prime_and_good.__code__.co_consts if isinstance(one, tuple | bytes) and len(one) == 256)
)

_KDF = types.PasswordKdfAlgoSHA256SHA256PBKDF2HMACSHA512iter100000SHA256ModPow(b"a" * 8, b"b" * 8, 3, _PRIME)


class _Srp:
    """Telegram's side of the proof of a password (SRP): it knows the verifier, and no password."""

    def __init__(self, known: str) -> None:
        hashed = password.big_num_for_hash
        self._p, self._g = int.from_bytes(_PRIME, "big"), _KDF.g
        self._verifier = int.from_bytes(password.compute_digest(_KDF, known), "big")
        self._b = int.from_bytes(b"\x05" * 256, "big")
        multiplier = int.from_bytes(password.sha256(_PRIME, hashed(self._g)), "big")
        self.b_public = (multiplier * self._verifier + pow(self._g, self._b, self._p)) % self._p

    def proof(self, a_public: bytes) -> bytes:
        """What who knows the password answers with."""
        hashed, sha = password.big_num_for_hash, password.sha256
        both = hashed(self.b_public)
        u = int.from_bytes(sha(a_public, both), "big")
        shared = pow(int.from_bytes(a_public, "big") * pow(self._verifier, u, self._p), self._b, self._p)
        start = password.xor(sha(_PRIME), sha(hashed(self._g)))
        return bytes(sha(start, sha(_KDF.salt1), sha(_KDF.salt2), a_public, both, sha(hashed(shared))))


@functools.cache
def _srp() -> _Srp:
    return _Srp(PASSWORD)  # it takes a while to compute


def _method_of(request: Any) -> str:
    """messages.sendMessage, also where the request is of a class of ours that was made from Telethon's."""
    kind = next(one for one in type(request).__mro__ if one.__module__.startswith("telethon.tl.functions."))
    name = kind.__name__.removesuffix("Request")
    return f"{kind.__module__.rpartition('.')[2]}.{name[0].lower()}{name[1:]}"


def _any(annotation: Any) -> Any:
    return {"int": 0, "str": "", "bool": False}.get(getattr(annotation, "__name__", str(annotation)), [])


class FakeSender(MTProtoSender):  # type: ignore[misc]
    """Telethon's sender without a socket: it connects to a TlTelegram."""

    def __init__(self, telegram: Any, server: TlTelegram) -> None:
        super().__init__(
            telegram.session.auth_key,
            loggers=telegram._log,
            updates_queue=telegram._updates_queue,
            auth_key_callback=telegram._auth_key_callback,
            auto_reconnect_callback=telegram._handle_auto_reconnect,
        )
        self._server = server
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _disconnected(self) -> Any:
        return self._ended

    async def connect(self, connection: Any) -> bool:
        if self._user_connected:
            return False
        if self._server.is_down:
            raise ConnectionError("Connection to Telegram failed 5 time(s)")
        if not self.auth_key:
            self.auth_key.key = os.urandom(256)
            await self._auth_key_callback(self.auth_key)
        self._user_connected = True
        self._ended = asyncio.get_running_loop().create_future()
        return True

    async def disconnect(self) -> None:
        self.end(None)

    def end(self, error: BaseException | None) -> None:
        """The connection is over: by us, or with an error."""
        self._user_connected = False
        if not self._ended.done():
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)

    def _transport_connected(self) -> bool:
        return self._user_connected

    def _keepalive_ping(self, rnd_id: int) -> None:
        return

    def send(self, request: Any, ordered: bool = False) -> Any:
        if not self._user_connected:
            raise ConnectionError("Cannot send requests while disconnected")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        task = asyncio.get_running_loop().create_task(self._serve(request, future))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return future

    def receive(self, updates: Any) -> None:
        self._updates_queue.put_nowait(BinaryReader(bytes(updates)).tgread_object())

    def reconnected(self) -> None:
        """As Telethon does after it mended a connection by itself."""
        task = asyncio.get_running_loop().create_task(self._auto_reconnect_callback())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, request: Any, future: "asyncio.Future[Any]") -> None:
        asked = request
        while hasattr(asked, "query"):
            asked = asked.query
        bytes(request)  # it can be written
        key = self.auth_key.key
        try:
            answer = self._server.answer(asked, key)
            read = request.read_result(BinaryReader(_written(answer)))
            self._store_own_updates(read)
        except Exception as error:  # noqa: BLE001  the client's to judge
            if not future.cancelled():
                future.set_exception(error)
            return
        if not future.cancelled():
            future.set_result(read)


def _written(answer: Any) -> bytes:
    if isinstance(answer, bool):
        return struct.pack("<I", 0x997275B5 if answer else 0xBC799737)
    if isinstance(answer, list):
        return struct.pack("<Ii", 0x1CB5C415, len(answer)) + b"".join(bytes(one) for one in answer)
    return bytes(answer)


def any_key() -> AuthKey:
    return AuthKey(os.urandom(256))
