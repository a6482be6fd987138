"""Members, rights, invite links, topics; stickers; media as their bytes say; bots' own words; games, polls, payments."""

import asyncio
import random
import struct

import pytest

from peik.errors import BadInput
from peik.testing import Answer, Options, SimServer, Telegram, UploadedFile
from peik.testing.media import look
from tests.sim.conftest import TOKEN, Clock

GROUP, SLOW = -1_000_000_000_777, -1_000_000_000_778
OWNER, ANN = 7, 8


@pytest.fixture
def telegram(clock: Clock) -> Telegram:
    calm = Options(accept_any_chat=False, anti_busy_loop=False)
    calm.limits.on = False
    telegram = Telegram(now=clock, chance=random.Random(7), options=calm)
    telegram.bot(TOKEN)
    for user_id, name in ((OWNER, "Owner"), (ANN, "Ann")):
        telegram.user(user_id, name)
    telegram.chat("supergroup", "Tea", chat_id=GROUP, is_forum=True, bots=[TOKEN])
    telegram.set_member(GROUP, telegram.bot(TOKEN).user, "administrator")
    telegram.set_member(GROUP, OWNER, "creator")
    telegram.set_member(GROUP, ANN)
    telegram.bot(TOKEN).queue.clear()
    return telegram


def call(telegram: Telegram, method: str, files: dict[str, UploadedFile] | None = None, **params: object) -> Answer:
    answer = telegram.call(TOKEN, method, params, files or {})
    assert isinstance(answer, Answer)
    return answer


def said(telegram: Telegram, method: str, **params: object) -> str:
    return call(telegram, method, **params).description.removeprefix("Bad Request: ")


def png(width: int, height: int) -> UploadedFile:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)
    return UploadedFile(filename="tea.png", content=head + bytes(20), content_type="image/png")


def updates(telegram: Telegram, kind: str) -> list[dict]:
    return [one[kind] for one in call(telegram, "getUpdates").result if kind in one]


# Members and rights


def test_a_right_that_the_bot_lacks_is_refused(telegram: Telegram):
    me = telegram.bot(TOKEN).user
    telegram.set_member(GROUP, me, "administrator", can_restrict_members=False, can_promote_members=False)
    ban = said(telegram, "banChatMember", chat_id=GROUP, user_id=ANN)
    assert ban == "not enough rights to restrict/unrestrict chat member"
    assert said(telegram, "promoteChatMember", chat_id=GROUP, user_id=ANN, can_pin_messages=True) == "not enough rights"
    telegram.set_member(GROUP, me, "member")
    assert call(telegram, "setChatTitle", chat_id=GROUP, title="Coffee").ok  # what all members may
    telegram.chats[GROUP].more["permissions"] = {"can_change_info": False}
    assert said(telegram, "setChatTitle", chat_id=GROUP, title="Tea") == "not enough rights to change chat title"


def test_a_ban_is_seen_and_told_and_the_owner_cannot_be_banned(telegram: Telegram):
    call(telegram, "getUpdates", allowed_updates=["chat_member"])
    assert call(telegram, "banChatMember", chat_id=GROUP, user_id=ANN, until_date=1_700_000_500).ok
    member = call(telegram, "getChatMember", chat_id=GROUP, user_id=ANN).result
    assert (member["status"], member["until_date"]) == ("kicked", 1_700_000_500)
    (told,) = updates(telegram, "chat_member")
    assert told["new_chat_member"]["status"] == "kicked"
    assert said(telegram, "banChatMember", chat_id=GROUP, user_id=OWNER) == "can't remove chat owner"
    assert call(telegram, "getChatMemberCount", chat_id=GROUP).result == 2


def test_promoted_members_have_the_rights_they_were_given(telegram: Telegram):
    assert call(telegram, "promoteChatMember", chat_id=GROUP, user_id=ANN, can_pin_messages=True).ok
    assert call(telegram, "setChatAdministratorCustomTitle", chat_id=GROUP, user_id=ANN, custom_title="Teapot").ok
    member = call(telegram, "getChatMember", chat_id=GROUP, user_id=ANN).result
    assert (member["can_pin_messages"], member["can_delete_messages"], member["custom_title"]) == (
        True,
        False,
        "Teapot",
    )
    assert call(telegram, "promoteChatMember", chat_id=GROUP, user_id=ANN).ok
    assert call(telegram, "getChatMember", chat_id=GROUP, user_id=ANN).result["status"] == "member"


def test_permissions_imply_one_another(telegram: Telegram):
    given = {"can_send_photos": True}
    assert call(telegram, "restrictChatMember", chat_id=GROUP, user_id=ANN, permissions=given).ok
    member = call(telegram, "getChatMember", chat_id=GROUP, user_id=ANN).result
    assert (member["can_send_messages"], member["can_send_photos"], member["can_send_videos"]) == (True, True, False)


def test_a_join_request_is_decided_once(telegram: Telegram):
    telegram.user(9, "Zoe")
    link = call(telegram, "createChatInviteLink", chat_id=GROUP, creates_join_request=True, name="tea").result
    telegram.join(TOKEN, GROUP, 9, link=link["invite_link"])
    (request,) = updates(telegram, "chat_join_request")
    assert request["invite_link"]["name"] == "tea"
    assert call(telegram, "approveChatJoinRequest", chat_id=GROUP, user_id=9).ok
    assert said(telegram, "approveChatJoinRequest", chat_id=GROUP, user_id=9) == "USER_ALREADY_PARTICIPANT"
    call(telegram, "banChatMember", chat_id=GROUP, user_id=9)
    assert said(telegram, "declineChatJoinRequest", chat_id=GROUP, user_id=9) == "HIDE_REQUESTER_MISSING"


def test_an_invite_link_has_limits_and_is_changed_whole(telegram: Telegram):
    link = call(telegram, "createChatInviteLink", chat_id=GROUP, expire_date=2_000_000_000, member_limit=5).result
    assert (link["expire_date"], link["member_limit"]) == (2_000_000_000, 5)
    changed = call(telegram, "editChatInviteLink", chat_id=GROUP, invite_link=link["invite_link"], name="x").result
    assert "member_limit" not in changed
    assert said(telegram, "createChatInviteLink", chat_id=GROUP, member_limit=1, creates_join_request=True).startswith(
        "member limit can't be specified"
    )
    first = call(telegram, "exportChatInviteLink", chat_id=GROUP).result
    second = call(telegram, "exportChatInviteLink", chat_id=GROUP).result
    assert call(telegram, "getChat", chat_id=GROUP).result["invite_link"] == second != first


def test_a_link_lets_in_as_many_as_it_may_and_until_it_ends(telegram: Telegram, clock: Clock):
    terms = {"expire_date": int(clock.now) + 60, "member_limit": 1}
    link = call(telegram, "createChatInviteLink", chat_id=GROUP, **terms).result["invite_link"]
    telegram.join(TOKEN, GROUP, 21, link=link)
    with pytest.raises(BadInput):
        telegram.join(TOKEN, GROUP, 22, link=link)
    asking = call(telegram, "createChatInviteLink", chat_id=GROUP, creates_join_request=True).result["invite_link"]
    telegram.join(TOKEN, GROUP, 23, link=asking)
    assert telegram.chats[GROUP].links[asking]["pending_join_request_count"] == 1
    call(telegram, "declineChatJoinRequest", chat_id=GROUP, user_id=23)
    assert "pending_join_request_count" not in telegram.chats[GROUP].links[asking]
    call(telegram, "revokeChatInviteLink", chat_id=GROUP, invite_link=asking)
    with pytest.raises(BadInput):
        telegram.join(TOKEN, GROUP, 24, link=asking)


def test_a_ban_ends_when_it_was_said_to(telegram: Telegram, clock: Clock):
    until = int(clock.now) + 60
    call(telegram, "banChatMember", chat_id=GROUP, user_id=ANN, until_date=until)
    with pytest.raises(BadInput):
        telegram.join(TOKEN, GROUP, ANN)
    clock.pass_s(61)
    assert call(telegram, "getChatMember", chat_id=GROUP, user_id=ANN).result["status"] == "left"
    telegram.join(TOKEN, GROUP, ANN)
    call(telegram, "banChatMember", chat_id=GROUP, user_id=ANN, until_date=int(clock.now) + 5)
    assert call(telegram, "getChatMember", chat_id=GROUP, user_id=ANN).result["until_date"] == 0


def test_what_members_may_not_send_a_bot_may_not_send_either_unless_it_rules(telegram: Telegram):
    me = telegram.bot(TOKEN).user
    allowed = {"can_send_messages": True, "can_send_polls": True}
    assert call(telegram, "setChatPermissions", chat_id=GROUP, permissions=allowed).ok
    picture = {"photo": png(10, 10)}
    assert call(telegram, "sendPhoto", picture, chat_id=GROUP).ok
    telegram.set_member(GROUP, me)
    assert said(telegram, "sendPhoto", files=picture, chat_id=GROUP) == "not enough rights to send photos to the chat"
    assert said(telegram, "sendDice", chat_id=GROUP) == "not enough rights to send dice to the chat"
    assert call(telegram, "sendMessage", chat_id=GROUP, text="x").ok
    telegram.set_member(GROUP, me, "restricted", can_send_polls=False)
    poll = {"question": "?", "options": ["a", "b"]}
    assert said(telegram, "sendPoll", chat_id=GROUP, **poll) == "not enough rights to send polls to the chat"


def test_slow_mode_is_for_members_and_not_for_administrators(telegram: Telegram, clock: Clock):
    telegram.chat("supergroup", "Slow", chat_id=SLOW, bots=[TOKEN], slow_mode_s=30)
    assert call(telegram, "getChat", chat_id=SLOW).result["slow_mode_delay"] == 30
    assert call(telegram, "sendMessage", chat_id=SLOW, text="1").ok
    assert call(telegram, "sendMessage", chat_id=SLOW, text="2").json()["parameters"] == {"retry_after": 31}
    clock.pass_s(30)
    assert call(telegram, "sendMessage", chat_id=SLOW, text="2").ok
    telegram.set_member(SLOW, telegram.bot(TOKEN).user, "administrator")
    assert call(telegram, "sendMessage", chat_id=SLOW, text="3").ok


def test_changes_of_a_chat_are_shown_and_told(telegram: Telegram):
    other = "700043:AAE-other"
    telegram.bot(other)
    telegram.set_member(GROUP, telegram.bot(other).user, "administrator")
    telegram.bot(other).queue.clear()
    assert call(telegram, "setChatTitle", chat_id=GROUP, title="Coffee").ok
    assert call(telegram, "setChatPhoto", {"photo": png(640, 640)}, chat_id=GROUP).ok
    assert call(telegram, "setChatDescription", chat_id=GROUP, description="hot").ok
    assert said(telegram, "setChatDescription", chat_id=GROUP, description="hot") == "chat description is not modified"
    chat = call(telegram, "getChat", chat_id=GROUP).result
    assert (chat["title"], chat["description"], len(chat["photo"])) == ("Coffee", "hot", 4)
    told = telegram.call(other, "getUpdates", {}).result
    assert [sorted(one["message"].keys() & {"new_chat_title", "new_chat_photo"}) for one in told] == [
        ["new_chat_title"],
        ["new_chat_photo"],
    ]
    assert call(telegram, "getUpdates").result == []  # a bot does not hear of its own deeds


def test_topics_have_icons_and_the_general_one_can_be_hidden(telegram: Telegram):
    icon = call(telegram, "getForumTopicIconStickers").result[0]["custom_emoji_id"]
    made = call(telegram, "createForumTopic", chat_id=GROUP, name="News", icon_custom_emoji_id=icon).result
    assert made["icon_custom_emoji_id"] == icon
    opened = telegram.message(TOKEN, GROUP, made["message_thread_id"])
    assert opened["forum_topic_created"]["name"] == "News"
    assert said(telegram, "editForumTopic", chat_id=GROUP, message_thread_id=made["message_thread_id"]) == (
        "TOPIC_NOT_MODIFIED"
    )
    assert call(telegram, "hideGeneralForumTopic", chat_id=GROUP).ok
    assert said(telegram, "hideGeneralForumTopic", chat_id=GROUP) == "TOPIC_NOT_MODIFIED"
    assert call(telegram, "reopenGeneralForumTopic", chat_id=GROUP).ok
    assert said(telegram, "unhideGeneralForumTopic", chat_id=GROUP) == "TOPIC_NOT_MODIFIED"


# Media and stickers


def test_a_photo_has_sizes_and_the_largest_is_the_file(telegram: Telegram):
    sizes = call(telegram, "sendPhoto", {"photo": png(1920, 1080)}, chat_id=ANN).result["photo"]
    assert [(size["width"], size["height"]) for size in sizes] == [(90, 50), (320, 180), (800, 450), (1280, 720)]
    again = call(telegram, "sendPhoto", chat_id=ANN, photo=sizes[-1]["file_id"]).result["photo"]
    assert again == sizes


def test_a_document_that_can_be_seen_has_a_thumbnail_and_its_type(telegram: Telegram):
    shown = call(telegram, "sendDocument", {"document": png(640, 320)}, chat_id=ANN).result["document"]
    assert (shown["mime_type"], shown["thumbnail"]["width"], shown["thumbnail"]["height"]) == ("image/png", 320, 160)


def test_a_thumbnail_that_comes_with_a_song_is_its_thumbnail(telegram: Telegram):
    song = UploadedFile(filename="tea.mp3", content=b"\xff\xfb\x90\x00" + bytes(32_000))
    shown = call(telegram, "sendAudio", {"audio": song, "thumbnail": png(50, 50)}, chat_id=ANN, title="Tea").result
    audio = shown["audio"]
    assert (audio["duration"], audio["mime_type"], audio["title"]) == (2, "audio/mpeg", "Tea")
    assert audio["thumbnail"]["width"] == 50


def test_what_lies_at_an_address_is_the_testers_to_say(telegram: Telegram):
    telegram.web = lambda url: png(200, 100) if url.endswith(".png") else None
    sizes = call(telegram, "sendPhoto", chat_id=ANN, photo="https://x.example/a.png").result["photo"]
    assert sizes[-1]["width"] == 200
    assert call(telegram, "sendPhoto", chat_id=ANN, photo="https://x.example/b").ok


@pytest.mark.parametrize(
    ("content", "mime", "sides"),
    [
        (b"GIF89a\x10\x00\x08\x00" + bytes(8), "image/gif", (16, 8)),
        (b"RIFF\0\0\0\0WEBPVP8X\n\0\0\0\0\0\0\0\xff\1\0\x2c\1\0", "image/webp", (512, 301)),
        (b"\xff\xd8\xff\xc0\0\x11\x08\0\x64\0\xc8\x03" + bytes(9), "image/jpeg", (200, 100)),
        (b"%PDF-1.7", "application/pdf", (0, 0)),
        (b"\x89PNG\r\n\x1a\n\0", "", (0, 0)),  # cut short
        (b"", "", (0, 0)),
    ],
)
def test_bytes_say_what_a_file_is(content: bytes, mime: str, sides: tuple[int, int]):
    seen = look(content)
    assert (seen.mime, (seen.width, seen.height)) == (mime, sides)


def test_only_a_square_video_is_a_video_note(telegram: Telegram):
    def film(width: int, height: int) -> UploadedFile:
        head = bytes(76) + struct.pack(">II", width << 16, height << 16)
        tkhd = struct.pack(">I4s", len(head) + 8, b"tkhd") + head
        trak = struct.pack(">I4s", len(tkhd) + 12, b"trak") + tkhd + b"vide"
        moov = struct.pack(">I4s", len(trak) + 8, b"moov") + trak
        return UploadedFile(filename="a.mp4", content=b"\0\0\0\x10ftypisom\0\0\0\0" + moov)

    assert "video_note" in call(telegram, "sendVideoNote", {"video_note": film(240, 240)}, chat_id=ANN).result
    assert "video" in call(telegram, "sendVideoNote", {"video_note": film(640, 360)}, chat_id=ANN).result


def test_a_sticker_set_is_made_filled_ordered_and_emptied(telegram: Telegram):
    name = f"tea_by_{telegram.bot(TOKEN).user.username}"
    files = {"one": png(512, 512)}
    one = {"sticker": "attach://one", "format": "static", "emoji_list": ["🫖"]}
    made = call(telegram, "createNewStickerSet", files, user_id=ANN, name=name, title="Tea", stickers=[one])
    assert made.ok, made.description
    assert call(telegram, "addStickerToSet", files, user_id=ANN, name=name, sticker=one | {"emoji_list": ["☕"]}).ok
    shown = call(telegram, "getStickerSet", name=name).result
    assert [sticker["emoji"] for sticker in shown["stickers"]] == ["🫖", "☕"]
    last = shown["stickers"][1]
    assert call(telegram, "setStickerPositionInSet", sticker=last["file_id"], position=0).ok
    assert call(telegram, "getStickerSet", name=name).result["stickers"][0]["file_id"] == last["file_id"]
    sent = call(telegram, "sendSticker", chat_id=ANN, sticker=last["file_id"]).result["sticker"]
    assert (sent["set_name"], sent["emoji"]) == (name, "☕")
    assert call(telegram, "deleteStickerFromSet", sticker=last["file_id"]).ok
    assert said(telegram, "deleteStickerFromSet", sticker=last["file_id"]) == "STICKERSET_NOT_MODIFIED"
    again = call(telegram, "createNewStickerSet", files, user_id=ANN, name=name, title="Tea", stickers=[one])
    assert again.description.endswith("sticker set name is already occupied")
    assert call(telegram, "deleteStickerSet", name=name).ok
    assert said(telegram, "getStickerSet", name=name) == "STICKERSET_INVALID"
    assert said(telegram, "createNewStickerSet", user_id=ANN, name="tea", title="Tea", stickers=[one]) == (
        "invalid sticker set name is specified"
    )


# Bots, games, polls, payments


def test_commands_are_kept_by_scope_and_language(telegram: Telegram):
    tea, coffee = ([{"command": name, "description": name}] for name in ("tea", "coffee"))
    chat = '{"type":"chat","chat_id":7}'
    assert call(telegram, "setMyCommands", commands=tea).ok
    assert call(telegram, "setMyCommands", commands=coffee, scope=chat, language_code="en").ok
    assert call(telegram, "getMyCommands").result == tea
    assert call(telegram, "getMyCommands", scope=chat, language_code="en").result == coffee
    assert call(telegram, "getMyCommands", scope=chat).result == []
    assert said(telegram, "setMyCommands", commands=[{"command": "Tea", "description": "x"}]) == "BOT_COMMAND_INVALID"


def test_a_description_is_given_in_the_language_or_else_the_general_one(telegram: Telegram):
    assert call(telegram, "setMyDescription", description="tea").ok
    assert call(telegram, "setMyDescription", description="Tee", language_code="de").ok
    assert call(telegram, "getMyDescription", language_code="de").result == {"description": "Tee"}
    assert call(telegram, "getMyDescription", language_code="fa").result == {"description": "tea"}


def test_a_score_only_rises_unless_it_is_forced(telegram: Telegram):
    telegram.game(TOKEN, "chess", "A game")
    message = call(telegram, "sendGame", chat_id=ANN, game_short_name="chess").result
    where = {"chat_id": ANN, "message_id": message["message_id"], "user_id": ANN}
    assert call(telegram, "setGameScore", **where, score=5).result["game"]["text"] == "1. Ann - 5"
    assert said(telegram, "setGameScore", **where, score=5) == "BOT_SCORE_NOT_MODIFIED"
    assert call(telegram, "setGameScore", **where, score=3, force=True).ok
    assert call(telegram, "getGameHighScores", **where).result[0]["score"] == 3


def test_a_poll_counts_votes_and_closes_by_itself(telegram: Telegram, clock: Clock):
    sent = call(telegram, "sendPoll", chat_id=ANN, question="Tea?", options=["yes", "no"], open_period=10).result
    telegram.vote(TOKEN, ANN, sent["poll"]["id"], 0)
    assert updates(telegram, "poll")[0]["options"][0]["voter_count"] == 1
    clock.now += 11
    assert updates(telegram, "poll")[-1]["is_closed"] is True
    assert said(telegram, "stopPoll", chat_id=ANN, message_id=sent["message_id"]) == "poll has already been closed"


def test_a_checkout_that_the_bot_agrees_to_is_paid_and_can_be_given_back_once(telegram: Telegram):
    prices = [{"label": "tea", "amount": 3}]
    terms = {"title": "Tea", "description": "d", "payload": "pot", "currency": "XTR", "prices": prices}
    message = call(telegram, "sendInvoice", chat_id=ANN, **terms).result
    assert message["reply_markup"]["inline_keyboard"][0][0]["pay"] is True
    query = telegram.pay(TOKEN, ANN, message)
    assert updates(telegram, "pre_checkout_query")[0]["invoice_payload"] == "pot"
    assert call(telegram, "answerPreCheckoutQuery", pre_checkout_query_id=query, ok=True).ok
    paid = updates(telegram, "message")[0]["successful_payment"]
    assert call(telegram, "getMyStarBalance").result == {"amount": 3}
    back = {"user_id": ANN, "telegram_payment_charge_id": paid["telegram_payment_charge_id"]}
    assert call(telegram, "refundStarPayment", **back).ok
    assert said(telegram, "refundStarPayment", **back) == "CHARGE_ALREADY_REFUNDED"
    assert call(telegram, "getMyStarBalance").result == {"amount": 0}


def test_a_business_connection_must_exist(telegram: Telegram):
    hello = {"chat_id": ANN, "text": "x", "business_connection_id": "shop"}
    assert said(telegram, "sendMessage", **hello) == "BUSINESS_CONNECTION_INVALID"
    telegram.connect(TOKEN, OWNER, "shop")
    assert call(telegram, "sendMessage", **hello).ok
    assert call(telegram, "getBusinessConnection", business_connection_id="shop").result["user"]["id"] == OWNER


def test_an_ephemeral_message_has_no_number_and_can_be_changed_and_taken_back(telegram: Telegram):
    sent = call(telegram, "sendMessage", chat_id=GROUP, text="psst", receiver_user_id=ANN).result
    where = {"chat_id": GROUP, "receiver_user_id": ANN, "ephemeral_message_id": sent["ephemeral_message_id"]}
    assert sent["message_id"] == 0
    assert call(telegram, "editEphemeralMessageText", **where, text="hush").result is True
    assert call(telegram, "deleteEphemeralMessage", **where).ok
    assert said(telegram, "deleteEphemeralMessage", **where) == "message to delete not found"


async def closes_by_the_clock() -> bool:
    async with SimServer(seed=7) as sim:
        answer = sim.telegram.call(TOKEN, "sendPoll", {"chat_id": 7, "question": "?", "options": ["a", "b"]})
        assert isinstance(answer, Answer)
        poll = sim.telegram.polls[answer.result["poll"]["id"]][1]
        sim.telegram.schedule(sim.telegram.now() + 0.01, lambda: poll.update(is_closed=True))
        await sim.until(lambda: bool(poll["is_closed"]))
        return bool(poll["is_closed"])


def test_a_server_lets_things_happen_without_being_asked():
    assert asyncio.run(closes_by_the_clock())


def test_a_profile_shows_the_newest_messages_of_a_persons_channel(telegram: Telegram):
    telegram.chat("channel", "Ann's", chat_id=SLOW, bots=[TOKEN])
    telegram.user(ANN, personal_chat=SLOW)
    for number in range(3):
        telegram.write(TOKEN, ANN, str(number), chat=SLOW)
    newest = call(telegram, "getUserPersonalChatMessages", user_id=ANN, limit=2).result
    assert [one["text"] for one in newest] == ["2", "1"]
    assert call(telegram, "getChat", chat_id=ANN).result["personal_chat"]["title"] == "Ann's"
