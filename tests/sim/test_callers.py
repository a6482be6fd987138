"""What people ask a bot for in newer ways: as guests, at a guarded door, by drafts, boosts, subscriptions, shared people."""

import random

import aiogram.types
import pytest

from peik.errors import BadInput
from peik.testing import Answer, Options, Telegram, UploadedFile
from tests.sim.conftest import TOKEN, Clock

GROUP, CHANNEL, BASIC = -1_000_000_000_777, -1_000_000_000_778, -779
OWNER, ANN, BOB = 7, 8, 9
ARTICLE = {"type": "article", "id": "1", "title": "Tea", "input_message_content": {"message_text": "Tea at five"}}
TOO_OLD = "query is too old and response timeout expired or query ID is invalid"


@pytest.fixture
def telegram(clock: Clock) -> Telegram:
    calm = Options(accept_any_chat=False, anti_busy_loop=False)
    calm.limits.on = False
    telegram = Telegram(now=clock, chance=random.Random(7), options=calm)
    bot = telegram.bot(TOKEN)
    for user_id, name in ((OWNER, "Owner"), (ANN, "Ann"), (BOB, "Bob")):
        telegram.user(user_id, name)
    telegram.chat("supergroup", "Tea", chat_id=GROUP, bots=[TOKEN], guard=TOKEN)
    telegram.chat("channel", "News", chat_id=CHANNEL, bots=[TOKEN])
    telegram.chat("group", "Few", chat_id=BASIC, bots=[TOKEN])
    for chat in (GROUP, BASIC):
        telegram.set_member(chat, bot.user, "administrator")
    telegram.set_member(GROUP, OWNER, "creator")
    bot.queue.clear()
    return telegram


def call(telegram: Telegram, method: str, files: dict[str, UploadedFile] | None = None, **params: object) -> Answer:
    answer = telegram.call(TOKEN, method, params, files or {})
    assert isinstance(answer, Answer)
    return answer


def said(telegram: Telegram, method: str, **params: object) -> str:
    return call(telegram, method, **params).description.removeprefix("Bad Request: ")


def told(telegram: Telegram, kind: str) -> list[dict]:
    """The updates of that kind, as a strict library reads them."""
    found = [one for one in call(telegram, "getUpdates").result if kind in one]
    for one in found:
        aiogram.types.Update.model_validate(one)
    return [one[kind] for one in found]


def test_a_guest_is_answered_once_where_the_bot_is_not(telegram: Telegram):
    place = telegram.chat("supergroup", "Elsewhere")
    query_id = telegram.guest(TOKEN, ANN, "@tea when?", chat=place)
    (asked,) = told(telegram, "guest_message")
    assert (asked["guest_query_id"], asked["text"], asked["chat"]["id"]) == (query_id, "@tea when?", place.id)
    assert said(telegram, "answerGuestQuery", guest_query_id=query_id) == (
        "can't parse InlineQueryResult: expected an Object"
    )
    sent = call(telegram, "answerGuestQuery", guest_query_id=query_id, result=ARTICLE).result
    assert said(telegram, "answerGuestQuery", guest_query_id=query_id, result=ARTICLE) == TOO_OLD
    changed = {"inline_message_id": sent["inline_message_id"], "text": "Tea at six"}
    assert call(telegram, "editMessageText", **changed).result is True
    assert telegram.applied.texts() == ["Tea at five", "Tea at six"]


@pytest.mark.parametrize(
    ("result", "status", "waits"), [("approve", "member", 0), ("decline", "left", 0), ("queue", "left", 1)]
)
def test_a_guard_decides_who_comes_in(telegram: Telegram, result: str, status: str, waits: int):
    assert call(telegram, "getChat", chat_id=GROUP).result["guard_bot"]["id"] == telegram.bot(TOKEN).id
    telegram.join(TOKEN, GROUP, ANN, asks=True)
    (asked,) = told(telegram, "chat_join_request")
    query = {"chat_join_request_query_id": asked["query_id"]}
    assert "only HTTPS links" in said(telegram, "sendChatJoinRequestWebApp", **query, web_app_url="http://tea.example")
    assert call(telegram, "sendChatJoinRequestWebApp", **query, web_app_url="https://tea.example/why").ok
    assert said(telegram, "answerChatJoinRequestQuery", **query, result="perhaps") == "wrong result specified"
    assert call(telegram, "answerChatJoinRequestQuery", **query, result=result).ok
    assert said(telegram, "answerChatJoinRequestQuery", **query, result=result) == TOO_OLD
    assert call(telegram, "getChatMember", chat_id=GROUP, user_id=ANN).result["status"] == status
    assert len(telegram.chats[GROUP].requests) == waits


def test_who_asks_to_join_a_chat_without_a_guard_brings_no_query(telegram: Telegram):
    telegram.join(TOKEN, CHANNEL, ANN, asks=True)
    (asked,) = told(telegram, "chat_join_request")
    assert "query_id" not in asked


def test_a_draft_fades_after_half_a_minute_and_with_the_message(telegram: Telegram, clock: Clock):
    draft = {"chat_id": ANN, "draft_id": 3, "text": "*Tea*", "parse_mode": "MarkdownV2"}
    assert call(telegram, "sendMessageDraft", **draft).result is True
    assert telegram.drafts(TOKEN, ANN)[3]["entities"] == [{"type": "bold", "offset": 0, "length": 3}]
    clock.pass_s(20)
    assert call(telegram, "sendMessageDraft", chat_id=ANN, draft_id=3, text="Tea is").ok
    clock.pass_s(20)
    assert telegram.drafts(TOKEN, ANN) == {3: {"text": "Tea is"}}  # its half minute began anew
    clock.pass_s(11)
    assert telegram.drafts(TOKEN, ANN) == {}
    assert call(telegram, "sendMessageDraft", chat_id=ANN, draft_id=4).ok  # "Thinking…"
    assert call(telegram, "sendMessage", chat_id=ANN, text="Tea is ready").ok
    assert telegram.drafts(TOKEN, ANN) == {}
    assert telegram.sent.total == 1
    assert said(telegram, "sendMessageDraft", chat_id=GROUP, draft_id=3, text="x") == "TEXTDRAFT_PEER_INVALID"
    assert said(telegram, "sendMessageDraft", chat_id=ANN, draft_id=3, text="x" * 4097) == "MESSAGE_TOO_LONG"
    assert "can't parse entities" in said(telegram, "sendMessageDraft", **draft | {"text": "*Tea"})


def test_a_draft_is_stopped_if_its_bot_lets_people(telegram: Telegram):
    draft = {"chat_id": ANN, "text": "Tea"}
    assert call(telegram, "sendMessageDraft", **draft, draft_id=3).ok
    with pytest.raises(BadInput):
        telegram.stop(TOKEN, ANN, 3)
    assert call(telegram, "sendMessageDraft", **draft, draft_id=4, can_stop=True).ok
    assert call(telegram, "sendMessageDraft", **draft, draft_id=5, can_stop=True, keep_on_stop=True).ok
    telegram.stop(TOKEN, ANN, 4)
    telegram.stop(TOKEN, ANN, 5)
    assert [one["draft_id"] for one in told(telegram, "stopped_message_generation")] == [4, 5]
    assert telegram.drafts(TOKEN, ANN).keys() == {3, 5}


def test_boosts_are_listed_told_and_end_with_their_month(telegram: Telegram, clock: Clock):
    made = telegram.boost(CHANNEL, ANN)
    assert [one["boost"]["boost_id"] for one in told(telegram, "chat_boost")] == [made["boost_id"]]
    listed = call(telegram, "getUserChatBoosts", chat_id=CHANNEL, user_id=ANN).result
    assert aiogram.types.UserChatBoosts.model_validate(listed).boosts[0].boost_id == made["boost_id"]
    assert call(telegram, "getUserChatBoosts", chat_id=CHANNEL, user_id=BOB).result == {"boosts": []}
    clock.pass_s(30 * 86_400 + 1)
    assert call(telegram, "getUserChatBoosts", chat_id=CHANNEL, user_id=ANN).result == {"boosts": []}
    telegram.unboost(CHANNEL, ANN)
    assert [one["boost_id"] for one in told(telegram, "removed_chat_boost")] == [made["boost_id"]]
    telegram.set_member(GROUP, telegram.bot(TOKEN).user)
    assert said(telegram, "getUserChatBoosts", chat_id=GROUP, user_id=ANN) == "CHAT_ADMIN_REQUIRED"
    with pytest.raises(BadInput):
        telegram.boost(BASIC, ANN)


def test_nobody_writes_in_the_name_of_a_banned_channel(telegram: Telegram):
    other = telegram.chat("channel", "Ads")
    shown = telegram.write(TOKEN, ANN, "Buy!", chat=GROUP, sender_chat=other)
    assert (shown["from"]["username"], shown["sender_chat"]["id"]) == ("Channel_Bot", other.id)
    assert call(telegram, "banChatSenderChat", chat_id=GROUP, sender_chat_id=other.id).ok
    with pytest.raises(BadInput):
        telegram.write(TOKEN, ANN, "Buy!", chat=GROUP, sender_chat=other)
    assert call(telegram, "unbanChatSenderChat", chat_id=GROUP, sender_chat_id=other.id).ok
    assert telegram.write(TOKEN, ANN, "Buy!", chat=GROUP, sender_chat=other)["text"] == "Buy!"
    assert said(telegram, "banChatSenderChat", chat_id=GROUP, sender_chat_id=-999) == "PARTICIPANT_ID_INVALID"
    assert call(telegram, "banChatSenderChat", chat_id=GROUP, sender_chat_id=ANN).ok  # a person is banned as such
    assert call(telegram, "getChatMember", chat_id=GROUP, user_id=ANN).result["status"] == "kicked"
    assert said(telegram, "banChatSenderChat", chat_id=BASIC, sender_chat_id=other.id) == (
        "can't ban chats in basic groups"
    )
    telegram.set_member(GROUP, telegram.bot(TOKEN).user, "administrator", can_restrict_members=False)
    refused = said(telegram, "unbanChatSenderChat", chat_id=GROUP, sender_chat_id=other.id)
    assert refused == "not enough rights to restrict/unrestrict chat member"


@pytest.fixture
def charge(telegram: Telegram) -> str:
    """A subscription of Ann's, paid by a link."""
    month = {"subscription_period": 2_592_000, "currency": "XTR", "prices": [{"label": "Tea", "amount": 10}]}
    words = {"title": "Tea", "description": "Each day", "payload": "tea"}
    assert said(telegram, "createInvoiceLink", **words, **month | {"subscription_period": 60}) == (
        "SUBSCRIPTION_PERIOD_INVALID"
    )
    link = call(telegram, "createInvoiceLink", **words, **month).result
    telegram.stars(ANN, 15)
    query_id = telegram.pay(TOKEN, ANN, link)
    assert call(telegram, "answerPreCheckoutQuery", pre_checkout_query_id=query_id, ok=True).ok
    payment = told(telegram, "message")[-1]["successful_payment"]
    assert (payment["is_recurring"], payment["is_first_recurring"]) == (True, True)
    telegram.bot(TOKEN).queue.clear()
    return payment["telegram_payment_charge_id"]


def test_a_subscription_is_paid_each_month_until_there_are_no_stars(telegram: Telegram, clock: Clock, charge: str):
    clock.pass_s(2_592_000)
    telegram.run_due()
    (paid,) = (one["successful_payment"] for one in told(telegram, "message"))
    assert "is_first_recurring" not in paid
    assert paid["telegram_payment_charge_id"] != charge
    assert paid["subscription_expiration_date"] == int(clock()) + 2_592_000
    assert call(telegram, "getMyStarBalance").result["amount"] == 20
    clock.pass_s(2_592_000)
    telegram.run_due()
    assert [one["state"] for one in told(telegram, "subscription")] == ["failed"]


def test_a_subscription_is_ended_by_its_bot_or_by_its_person(telegram: Telegram, clock: Clock, charge: str):
    named = {"user_id": ANN, "telegram_payment_charge_id": charge}
    assert (
        said(telegram, "editUserStarSubscription", **named | {"user_id": BOB}, is_canceled=True) == "CHARGE_NOT_FOUND"
    )
    assert call(telegram, "editUserStarSubscription", **named, is_canceled=True).ok
    telegram.subscribe(TOKEN, ANN, charge)
    telegram.subscribe(TOKEN, ANN, charge, is_on=False)
    with pytest.raises(BadInput):
        telegram.subscribe(TOKEN, BOB, charge)
    assert [one["state"] for one in told(telegram, "subscription")] == ["active", "canceled"]
    clock.pass_s(2_592_000)
    telegram.run_due()
    assert told(telegram, "message") == []
    assert said(telegram, "editUserStarSubscription", **named, is_canceled=True) == "CHARGE_NOT_FOUND"


def test_people_and_chats_are_shared_by_a_button(telegram: Telegram):
    button = {"text": "Whom?", "request_users": {"request_id": 1, "max_quantity": 2}}
    made = call(telegram, "savePreparedKeyboardButton", user_id=ANN, button=button).result
    assert telegram.bot(TOKEN).buttons[made["id"]] == button
    assert said(telegram, "savePreparedKeyboardButton", user_id=ANN, button={"text": "x"}) == "BUTTON_TYPE_INVALID"
    telegram.share(TOKEN, ANN, 1, BOB, OWNER)
    telegram.share(TOKEN, ANN, 2, chat=GROUP)
    people, chat = told(telegram, "message")
    assert [one["first_name"] for one in people["users_shared"]["users"]] == ["Bob", "Owner"]
    assert chat["chat_shared"] == {"request_id": 2, "chat_id": GROUP, "title": "Tea"}


def test_only_a_bot_of_an_organization_verifies(telegram: Telegram):
    assert said(telegram, "verifyUser", user_id=ANN) == "BOT_VERIFIER_FORBIDDEN"
    bot = telegram.bot(TOKEN)
    bot.may_verify = True
    assert call(telegram, "verifyUser", user_id=ANN, custom_description="Our baker").ok
    assert call(telegram, "verifyChat", chat_id=CHANNEL).ok
    assert bot.verified == {ANN: "Our baker", CHANNEL: ""}
    assert call(telegram, "removeUserVerification", user_id=ANN).ok
    assert call(telegram, "removeChatVerification", chat_id=CHANNEL).ok
    assert bot.verified == {}
    assert said(telegram, "verifyUser", user_id=ANN, custom_description="x" * 71) == "CUSTOM_DESCRIPTION_TOO_LONG"
    assert said(telegram, "verifyUser", user_id=GROUP) == "user not found"


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        ('"x"', "expected an Array of PassportElementError"),
        ([1], "can't parse PassportElementError: expected an Object"),
        (
            [{"type": "diary", "message": "x"}],
            "can't parse PassportElementError: wrong Telegram Passport element type specified",
        ),
        ([{"type": "passport"}], "can't parse PassportElementError: can't find field \"message\""),
        (
            [{"type": "passport", "message": "x", "source": "smell"}],
            "can't parse PassportElementError: wrong source specified",
        ),
    ],
)
def test_errors_of_a_passport_must_name_what_a_passport_has(telegram: Telegram, errors: object, why: str):
    assert said(telegram, "setPassportDataErrors", user_id=ANN, errors=errors) == why


def test_errors_of_a_passport_are_kept_by_person(telegram: Telegram):
    error = {"type": "passport", "source": "selfie", "file_hash": "x", "message": "Too dark"}
    assert call(telegram, "setPassportDataErrors", user_id=ANN, errors=[error]).ok
    assert telegram.bot(TOKEN).passport_errors == {ANN: [error]}
    assert said(telegram, "setPassportDataErrors", user_id=99, errors=[error]) == "user not found"


def test_a_profile_has_songs_newest_first(telegram: Telegram):
    for name in ("old.mp3", "new.mp3"):
        telegram.song(TOKEN, ANN, UploadedFile(filename=name, content=name.encode()))
    found = call(telegram, "getUserProfileAudios", user_id=ANN, limit=1).result
    assert aiogram.types.UserProfileAudios.model_validate(found).total_count == 2
    assert [one["file_name"] for one in found["audios"]] == ["new.mp3"]
    assert call(telegram, "getFile", file_id=found["audios"][0]["file_id"]).ok


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (
            {"type": "photo", "photo_url": "https://x.example/a.jpg", "thumbnail_url": "https://x.example/b.jpg"},
            "photo",
        ),
        ({"type": "gif", "gif_url": "https://x.example/a.gif", "gif_width": 30, "gif_height": 20}, "animation"),
        ({"type": "document", "document_url": "https://x.example/a.pdf", "title": "Tea", "caption": "Tea"}, "document"),
        ({"type": "audio", "audio_url": "https://x.example/a.mp3", "title": "Tea", "audio_duration": 7}, "audio"),
        ({"type": "location", "latitude": 1, "longitude": 2, "title": "Tea"}, "location"),
        ({"type": "venue", "latitude": 1, "longitude": 2, "title": "Tea", "address": "Here"}, "venue"),
        ({"type": "contact", "phone_number": "1", "first_name": "Ann"}, "contact"),
        ({"type": "game", "game_short_name": "tea"}, "game"),
    ],
)
def test_a_chosen_result_shows_what_it_is(telegram: Telegram, result: dict, shown: str):
    query_id = telegram.ask(TOKEN, ANN, "inline", {"query": "tea"})
    assert telegram.answer(TOKEN, query_id) is None
    answer = {"results": [{"id": "1", **result}], "cache_time": 3, "is_personal": True, "next_offset": "2"}
    assert call(telegram, "answerInlineQuery", inline_query_id=query_id, **answer).ok
    assert telegram.answer(TOKEN, query_id) == answer
    telegram.choose(TOKEN, ANN, "1", "tea", chat=GROUP)
    (sent,) = told(telegram, "message")
    assert shown in sent
    if shown == "animation":
        assert (sent[shown]["width"], sent[shown]["height"]) == (30, 20)
    again = telegram.ask(TOKEN, ANN, "inline")
    refused = said(telegram, "answerInlineQuery", inline_query_id=again, results=[], next_offset="x" * 65)
    assert refused == "NEXT_OFFSET_INVALID"


def test_a_cached_result_is_the_file_that_the_bot_has_sent(telegram: Telegram):
    sent = call(telegram, "sendVoice", {"voice": UploadedFile(filename="a.ogg", content=b"tea")}, chat_id=ANN).result
    results = [{"id": "1", "type": "voice", "voice_file_id": sent["voice"]["file_id"], "title": "Tea"}]
    query_id = telegram.ask(TOKEN, ANN, "inline")
    assert call(telegram, "answerInlineQuery", inline_query_id=query_id, results=results).ok
    telegram.choose(TOKEN, ANN, "1", chat=GROUP)
    assert told(telegram, "message")[0]["voice"]["file_id"] == sent["voice"]["file_id"]


def test_a_prepared_message_goes_where_it_was_meant_to(telegram: Telegram):
    made = call(telegram, "savePreparedInlineMessage", user_id=ANN, result=ARTICLE, allow_channel_chats=True).result
    with pytest.raises(BadInput):
        telegram.choose(TOKEN, ANN, made["id"], chat=GROUP)
    telegram.choose(TOKEN, ANN, made["id"], chat=CHANNEL)
    refused = said(telegram, "savePreparedInlineMessage", user_id=ANN, result=ARTICLE)
    assert refused == "at least one chat type must be allowed"


def test_an_alert_is_what_the_person_is_shown(telegram: Telegram):
    message = call(telegram, "sendMessage", chat_id=ANN, text="Tea?").result
    query_id = telegram.press(TOKEN, ANN, message["message_id"], "yes")
    alert = {"text": "Done", "show_alert": True, "cache_time": 5}
    assert call(telegram, "answerCallbackQuery", callback_query_id=query_id, **alert).ok
    assert telegram.answer(TOKEN, query_id) == alert


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("editMessageText", {"text": "y"}),
        ("stopPoll", {}),
        ("pinChatMessage", {}),
        ("unpinChatMessage", {}),
        ("sendChatAction", {"action": "typing"}),
    ],
)
def test_a_connection_that_is_none_is_refused_everywhere(telegram: Telegram, method: str, params: dict):
    message = call(telegram, "sendMessage", chat_id=ANN, text="x").result
    named = {"chat_id": ANN, "message_id": message["message_id"], "business_connection_id": "none"}
    assert said(telegram, method, **named, **params) == "BUSINESS_CONNECTION_INVALID"


def test_the_best_and_ones_neighbours_are_told(telegram: Telegram):
    message = call(telegram, "sendGame", chat_id=ANN, game_short_name="tea").result["message_id"]
    for user_id, score in zip(range(20, 30), range(100, 0, -10), strict=True):
        telegram.user(user_id)
        where = {"chat_id": ANN, "message_id": message, "user_id": user_id}
        assert call(telegram, "setGameScore", **where, score=score).ok
    places = [one["position"] for one in call(telegram, "getGameHighScores", **where | {"user_id": 27}).result]
    assert places == [1, 2, 3, 6, 7, 8, 9, 10]
    assert said(telegram, "getGameHighScores", **where | {"user_id": 99}) == "user not found"


def test_an_emoji_status_ends_when_it_was_said_to(telegram: Telegram, clock: Clock):
    status = {"user_id": ANN, "emoji_status_custom_emoji_id": "5", "emoji_status_expiration_date": int(clock()) + 60}
    assert call(telegram, "setUserEmojiStatus", **status).ok
    shown = call(telegram, "getChat", chat_id=ANN).result
    assert shown["emoji_status_expiration_date"] == status["emoji_status_expiration_date"]
    clock.pass_s(61)
    assert "emoji_status_custom_emoji_id" not in call(telegram, "getChat", chat_id=ANN).result


def test_an_ephemeral_message_is_named_with_its_reader(telegram: Telegram):
    whisper = {"chat_id": GROUP, "ephemeral_message_parameters": {"receiver_user_id": ANN}}
    sent = call(telegram, "sendMessage", **whisper, text="x").result
    named = {"chat_id": GROUP, "ephemeral_message_id": sent["ephemeral_message_id"], "text": "y"}
    assert said(telegram, "editEphemeralMessageText", **named, receiver_user_id=BOB) == "message to edit not found"
    assert call(telegram, "editEphemeralMessageText", **named, receiver_user_id=ANN).ok


def test_a_copied_video_may_begin_at_another_second(telegram: Telegram):
    video = {"video": UploadedFile(filename="a.mp4", content=b"tea")}
    sent = call(telegram, "sendVideo", video, chat_id=ANN).result["message_id"]
    taken = {"chat_id": BOB, "from_chat_id": ANN, "message_id": sent, "video_start_timestamp": 4}
    assert call(telegram, "forwardMessage", **taken).result["video"]["start_timestamp"] == 4
    copied = call(telegram, "copyMessage", **taken).result["message_id"]
    shown = telegram.message(TOKEN, BOB, copied)
    assert shown is not None
    assert shown["video"]["start_timestamp"] == 4
    assert "start_timestamp" not in telegram.message(TOKEN, ANN, sent)["video"]
