"""Stars, gifts, stories, and what a bot does for a business account: kept, paid for, and refused without the right to it."""

import random

import aiogram.types
import pytest

from peik.errors import BadInput
from peik.testing import Answer, Options, Telegram, UploadedFile
from tests.sim.conftest import TOKEN, Clock

OWNER, ANN = 7, 8
CHANNEL = -1_000_000_000_777
BEAR, TROPHY = "5170250947678437525", "5168043875654172773"
PHOTO = {"photo": UploadedFile(filename="tea.png", content=b"tea")}


@pytest.fixture
def telegram(clock: Clock) -> Telegram:
    calm = Options(accept_any_chat=False, anti_busy_loop=False)
    calm.limits.on = False
    telegram = Telegram(now=clock, chance=random.Random(7), options=calm)
    bot = telegram.bot(TOKEN)
    telegram.user(OWNER, "Owner")
    telegram.user(ANN, "Ann", username="ann")
    telegram.chat("channel", "News", chat_id=CHANNEL, bots=[TOKEN])
    telegram.connect(TOKEN, OWNER, "shop")
    telegram.connect(TOKEN, ANN, "shy", can_edit_bio=False, can_manage_stories=False, can_transfer_stars=False)
    telegram.stars(bot.user, 500)
    return telegram


def call(telegram: Telegram, method: str, files: dict[str, UploadedFile] | None = None, **params: object) -> Answer:
    answer = telegram.call(TOKEN, method, params, files or {})
    assert isinstance(answer, Answer)
    return answer


def said(telegram: Telegram, method: str, **params: object) -> str:
    return call(telegram, method, **params).description


def gifts(telegram: Telegram, method: str = "getBusinessAccountGifts", **params: object) -> list[dict]:
    given = params or {"business_connection_id": "shop"}
    result = call(telegram, method, **given).result
    aiogram.types.OwnedGifts.model_validate(result)
    assert result["total_count"] >= len(result["gifts"])
    return result["gifts"]


def test_a_gift_is_paid_for_and_belongs_to_whom_it_was_given(telegram: Telegram):
    shop = call(telegram, "getAvailableGifts").result
    prices = {gift.id: gift.star_count for gift in aiogram.types.Gifts.model_validate(shop).gifts}
    assert prices[BEAR] == 25
    assert call(telegram, "sendGift", gift_id=BEAR, user_id=ANN, text="*For* you", text_parse_mode="MarkdownV2").ok
    (held,) = gifts(telegram, "getUserGifts", user_id=ANN)
    assert (held["text"], held["entities"][0]["type"], held["gift"]["id"]) == ("For you", "bold", BEAR)
    assert call(telegram, "getMyStarBalance").result["amount"] == 475
    spent = call(telegram, "getStarTransactions").result["transactions"][-1]
    assert (spent["amount"], spent["receiver"]["user"]["id"], spent["receiver"]["gift"]["id"]) == (25, ANN, BEAR)
    aiogram.types.StarTransaction.model_validate(spent)
    assert call(telegram, "sendGift", gift_id=BEAR, chat_id=CHANNEL).ok
    assert len(gifts(telegram, "getChatGifts", chat_id=CHANNEL)) == 1


def test_what_cannot_be_paid_or_is_not_sold_is_refused_and_nothing_is_given(telegram: Telegram):
    assert said(telegram, "sendGift", gift_id="1", user_id=ANN) == "Bad Request: STARGIFT_INVALID"
    premium = {"user_id": ANN, "month_count": 3}
    assert said(telegram, "giftPremiumSubscription", **premium, star_count=1000) == "Bad Request: BALANCE_TOO_LOW"
    assert "star count" in said(telegram, "giftPremiumSubscription", **premium, star_count=1).lower()
    unrisen = said(telegram, "sendGift", gift_id=BEAR, user_id=ANN, pay_for_upgrade=True)
    assert unrisen == "Bad Request: STARGIFT_UPGRADE_UNAVAILABLE"
    assert gifts(telegram, "getUserGifts", user_id=ANN) == []
    telegram.stars(telegram.bot(TOKEN).user, 1000)
    assert call(telegram, "giftPremiumSubscription", **premium, star_count=1000).ok
    assert telegram.write(TOKEN, ANN, "Thanks")["from"]["is_premium"] is True


def test_limited_gifts_sell_out(telegram: Telegram):
    telegram.gifts_sold["5170521118301225164"] = 999
    assert call(telegram, "sendGift", gift_id="5170521118301225164", user_id=ANN).ok
    refused = said(telegram, "sendGift", gift_id="5170521118301225164", user_id=ANN)
    assert refused == "Bad Request: STARGIFT_USAGE_LIMITED"
    assert "5170521118301225164" not in {gift["id"] for gift in call(telegram, "getAvailableGifts").result["gifts"]}


def test_gifts_of_an_account_are_converted_upgraded_and_handed_on(telegram: Telegram):
    for gift_id, rises in ((BEAR, False), (TROPHY, True)):
        assert call(telegram, "sendGift", gift_id=gift_id, user_id=OWNER, pay_for_upgrade=rises).ok
    trophy, bear = gifts(telegram)
    own = {"business_connection_id": "shop"}
    assert call(telegram, "convertGiftToStars", **own, owned_gift_id=bear["owned_gift_id"]).ok
    assert call(telegram, "getBusinessAccountStarBalance", **own).result["amount"] == bear["convert_star_count"] == 21
    again = said(telegram, "convertGiftToStars", **own, owned_gift_id=bear["owned_gift_id"])
    assert again == "Bad Request: STARGIFT_NOT_FOUND"
    named = {**own, "owned_gift_id": trophy["owned_gift_id"]}
    assert said(telegram, "transferGift", **named, new_owner_chat_id=ANN) == "Bad Request: STARGIFT_INVALID"
    assert call(telegram, "upgradeGift", **named).ok
    assert said(telegram, "upgradeGift", **named) == "Bad Request: STARGIFT_ALREADY_UPGRADED"
    (unique,) = gifts(telegram)
    assert (unique["type"], unique["gift"]["gift_id"]) == ("unique", TROPHY)
    assert call(telegram, "transferGift", **named, new_owner_chat_id=ANN).ok
    assert (gifts(telegram), len(gifts(telegram, "getUserGifts", user_id=ANN))) == ([], 1)


def test_gifts_are_listed_in_pages_by_price_and_by_kind(telegram: Telegram):
    for gift_id in (BEAR, TROPHY, BEAR):
        assert call(telegram, "sendGift", gift_id=gift_id, user_id=OWNER).ok
    page = call(telegram, "getUserGifts", user_id=OWNER, sort_by_price=True, limit=1).result
    assert (page["gifts"][0]["gift"]["id"], page["next_offset"], page["total_count"]) == (TROPHY, "1", 3)
    rest = call(telegram, "getUserGifts", user_id=OWNER, sort_by_price=True, offset=page["next_offset"]).result
    assert [one["gift"]["id"] for one in rest["gifts"]] == [BEAR, BEAR]
    assert "next_offset" not in rest
    assert gifts(telegram, "getUserGifts", user_id=OWNER, exclude_unlimited=True) == []


def test_stars_of_an_account_come_to_the_bot_as_far_as_there_are_any(telegram: Telegram):
    telegram.stars(OWNER, 40)
    own = {"business_connection_id": "shop"}
    assert said(telegram, "transferBusinessAccountStars", **own, star_count=41) == "Bad Request: BALANCE_TOO_LOW"
    assert call(telegram, "transferBusinessAccountStars", **own, star_count=30).ok
    assert call(telegram, "getBusinessAccountStarBalance", **own).result["amount"] == 10
    assert call(telegram, "getMyStarBalance").result["amount"] == 530


def test_a_bot_does_for_an_account_what_it_has_the_right_to(telegram: Telegram):
    shy = {"business_connection_id": "shy"}
    assert said(telegram, "setBusinessAccountBio", **shy, bio="Tea") == "Forbidden: BOT_ACCESS_FORBIDDEN"
    assert said(telegram, "deleteStory", **shy, story_id=1) == "Forbidden: BOT_ACCESS_FORBIDDEN"
    assert said(telegram, "transferBusinessAccountStars", **shy, star_count=1) == "Forbidden: BOT_ACCESS_FORBIDDEN"
    assert (
        said(telegram, "getBusinessAccountGifts", business_connection_id="x")
        == "Bad Request: BUSINESS_CONNECTION_INVALID"
    )


def test_the_page_of_an_account_shows_what_the_bot_has_set(telegram: Telegram):
    own = {"business_connection_id": "shop"}
    assert call(telegram, "setBusinessAccountName", **own, first_name="Tea", last_name="Shop").ok
    assert call(telegram, "setBusinessAccountBio", **own, bio="All teas").ok
    assert said(telegram, "setBusinessAccountUsername", **own, username="ann") == "Bad Request: USERNAME_OCCUPIED"
    assert call(telegram, "setBusinessAccountUsername", **own, username="teashop").ok
    takes = dict.fromkeys(
        ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels"), False
    )
    assert call(telegram, "setBusinessAccountGiftSettings", **own, show_gift_button=True, accepted_gift_types=takes).ok
    photo = {"type": "static", "photo": "attach://photo"}
    assert call(telegram, "setBusinessAccountProfilePhoto", PHOTO, **own, photo=photo).ok
    page = call(telegram, "getChat", chat_id=OWNER).result
    shown = (page["first_name"], page["last_name"], page["bio"], page["username"], page["accepted_gift_types"])
    assert shown == ("Tea", "Shop", "All teas", "teashop", takes)
    assert call(telegram, "getUserProfilePhotos", user_id=OWNER).result["total_count"] == 1
    assert call(telegram, "removeBusinessAccountProfilePhoto", **own).ok
    assert call(telegram, "getUserProfilePhotos", user_id=OWNER).result["total_count"] == 0


def test_a_story_is_posted_changed_posted_again_and_ends(telegram: Telegram, clock: Clock):
    own = {"business_connection_id": "shop"}
    content = {"type": "photo", "photo": "attach://photo"}
    assert said(telegram, "postStory", **own, content=content, active_period=5) != ""
    refused = call(telegram, "postStory", PHOTO, **own, content=content, active_period=5)
    assert refused.description == "Bad Request: STORY_PERIOD_INVALID"
    story = call(
        telegram, "postStory", PHOTO, **own, content=content, active_period=21_600, caption="<b>Tea</b>"
    ).result
    assert story["chat"]["id"] == OWNER
    edited = call(telegram, "editStory", PHOTO, **own, story_id=story["id"], content=content, caption="New")
    assert edited.result == story
    telegram.connect(TOKEN, ANN, "shy")
    again = {"business_connection_id": "shy", "from_chat_id": OWNER, "from_story_id": story["id"]}
    assert call(telegram, "repostStory", **again, active_period=86_400).result["chat"]["id"] == ANN
    clock.pass_s(21_601)
    telegram.run_due()
    assert said(telegram, "deleteStory", **own, story_id=story["id"]) == "Bad Request: STORY_ID_INVALID"
    assert call(telegram, "deleteStory", business_connection_id="shy", story_id=1).ok


# What people do, and what the bot is told of it


def told(telegram: Telegram, kind: str) -> list[dict]:
    """The updates of that kind, as a strict library reads them."""
    allowed = ["message", "message_reaction", "message_reaction_count", "managed_bot", "purchased_paid_media",
               "pre_checkout_query", kind]  # fmt: skip
    found = [one for one in call(telegram, "getUpdates", allowed_updates=allowed).result if kind in one]
    for one in found:
        aiogram.types.Update.model_validate(one)
    return [one[kind] for one in found]


def test_messages_to_an_account_are_told_changed_and_deleted(telegram: Telegram):
    message = telegram.write(TOKEN, ANN, "Open?", connection="shop")
    telegram.edit(TOKEN, ANN, message["message_id"], "Open today?")
    own = {"business_connection_id": "shop"}
    reply = call(telegram, "sendMessage", **own, chat_id=ANN, text="Yes").result
    assert call(telegram, "readBusinessMessage", **own, chat_id=ANN, message_id=message["message_id"]).ok
    assert call(telegram, "deleteBusinessMessages", **own, message_ids=[reply["message_id"]]).ok
    telegram.erase(TOKEN, ANN, message["message_id"], reply["message_id"])
    assert [one["text"] for one in told(telegram, "business_message")] == ["Open?"]
    assert [one["text"] for one in told(telegram, "edited_business_message")] == ["Open today?"]
    (gone,) = told(telegram, "deleted_business_messages")
    assert gone["message_ids"] == [message["message_id"]]


def test_tasks_of_a_checklist_are_done_and_added_as_far_as_others_may(telegram: Telegram):
    tasks = [{"id": 1, "text": "<b>water</b>", "parse_mode": "HTML"}, {"id": 2, "text": "leaves"}]
    own = {"business_connection_id": "shop", "chat_id": ANN}
    terms = {"title": "Tea", "tasks": tasks, "others_can_mark_tasks_as_done": True}
    sent = call(telegram, "sendChecklist", **own, checklist=terms).result
    bold = {"type": "bold", "offset": 0, "length": 5}
    assert sent["checklist"]["tasks"][0] == {"id": 1, "text": "water", "text_entities": [bold]}
    telegram.tick(TOKEN, ANN, sent["message_id"], 1)
    with pytest.raises(BadInput):
        telegram.add_tasks(TOKEN, ANN, sent["message_id"], "sugar")
    more = {**terms, "tasks": [*tasks, {"id": 3, "text": "cups"}], "others_can_add_tasks": True}
    changed = call(telegram, "editMessageChecklist", **own, message_id=sent["message_id"], checklist=more).result
    assert [task.get("completed_by_user", {}).get("id") for task in changed["checklist"]["tasks"]] == [ANN, None, None]
    telegram.add_tasks(TOKEN, ANN, sent["message_id"], "sugar")
    telegram.tick(TOKEN, ANN, sent["message_id"], 1, undo=True)
    done, added, undone = told(telegram, "business_message")
    assert done["checklist_tasks_done"]["marked_as_done_task_ids"] == [1]
    assert added["checklist_tasks_added"]["tasks"] == [{"id": 4, "text": "sugar"}]
    assert undone["checklist_tasks_done"]["marked_as_not_done_task_ids"] == [1]
    twice = {**terms, "tasks": [tasks[0], tasks[0]]}
    assert said(telegram, "sendChecklist", **own, checklist=twice) == "Bad Request: TODO_ITEM_DUPLICATE"
    plain = call(telegram, "sendMessage", chat_id=ANN, text="x").result["message_id"]
    refused = said(telegram, "editMessageChecklist", **own, message_id=plain, checklist=terms)
    assert refused == "Bad Request: message can't be edited"


@pytest.fixture
def letters(telegram: Telegram) -> int:
    """The direct messages of the channel."""
    chat = telegram.chat("supergroup", "News: letters", parent=CHANNEL, bots=[TOKEN])
    assert call(telegram, "getChat", chat_id=chat.id).result["parent_chat"]["id"] == CHANNEL
    return chat.id


def suggest(telegram: Telegram, chat: int, **info: object) -> dict:
    return telegram.write(
        TOKEN, ANN, chat=chat, content={"text": "Read this", "suggested_post_info": {"state": "pending", **info}}
    )


def test_a_suggested_post_appears_in_time_and_is_paid_a_day_later(telegram: Telegram, clock: Clock, letters: int):
    telegram.set_member(CHANNEL, telegram.bot(TOKEN).user, "administrator")
    telegram.stars(ANN, 100)
    price = {"currency": "XTR", "amount": 80}
    post = suggest(telegram, letters, price=price, send_date=int(clock.now) + 600)
    named = {"chat_id": letters, "message_id": post["message_id"]}
    assert call(telegram, "approveSuggestedPost", **named).ok
    again = said(telegram, "approveSuggestedPost", **named)
    assert again == "Bad Request: SUGGESTED_POST_ALREADY_PROCESSED"
    assert telegram.chats[CHANNEL].last_message_id == 0
    clock.pass_s(601)
    telegram.run_due()
    (shown,) = told(telegram, "channel_post")
    assert (shown["text"], shown["is_paid_post"], "suggested_post_info" in shown) == ("Read this", True, False)
    clock.pass_s(86_401)
    telegram.run_due()
    services = [one for one in telegram.chats[letters].messages.values() if one["message_id"] > post["message_id"]]
    assert services[0]["suggested_post_approved"]["price"] == price
    assert services[1]["suggested_post_paid"]["star_amount"] == {"amount": 80}
    assert telegram.users[ANN].stars == 20


def test_a_suggested_post_is_declined_or_cannot_be_paid(telegram: Telegram, letters: int):
    telegram.set_member(CHANNEL, telegram.bot(TOKEN).user, "administrator")
    named = {"chat_id": letters, "message_id": suggest(telegram, letters)["message_id"]}
    assert call(telegram, "declineSuggestedPost", **named, comment="Not today").ok
    dear = suggest(telegram, letters, price={"currency": "XTR", "amount": 80})["message_id"]
    assert call(telegram, "approveSuggestedPost", chat_id=letters, message_id=dear).ok
    kinds = [
        next(key for key in one if key.startswith("suggested_post_"))
        for one in telegram.chats[letters].messages.values()
    ]
    assert kinds == [
        "suggested_post_info",
        "suggested_post_declined",
        "suggested_post_info",
        "suggested_post_approval_failed",
    ]
    terms = {"price": {"currency": "XTR", "amount": 5}}
    own = call(telegram, "sendMessage", chat_id=letters, text="Ours", suggested_post_parameters=terms).result
    assert own["suggested_post_info"] == {"state": "pending", **terms}
    refused = said(telegram, "sendMessage", chat_id=ANN, text="x", suggested_post_parameters=terms)
    assert refused == "Bad Request: SUGGESTED_POST_PEER_INVALID"


def test_a_chosen_result_can_be_changed_by_its_inline_id(telegram: Telegram):
    buttons = {"inline_keyboard": [[{"text": "More", "callback_data": "more"}]]}
    content = {"message_text": "*Tea*", "parse_mode": "MarkdownV2"}
    results = [
        {"type": "article", "id": "1", "title": "Tea", "input_message_content": content, "reply_markup": buttons}
    ]
    query_id = telegram.ask(TOKEN, ANN, "inline", {"query": "tea"})
    assert call(telegram, "answerInlineQuery", inline_query_id=query_id, results=results).ok
    inline_id = telegram.choose(TOKEN, ANN, "1", "tea", chat=ANN)
    assert told(telegram, "chosen_inline_result") == [
        {"result_id": "1", "from": telegram.users[ANN].as_json(), "query": "tea", "inline_message_id": inline_id}
    ]
    (message,) = told(telegram, "message")
    assert (message["text"], message["entities"][0]["type"], message["via_bot"]["id"]) == ("Tea", "bold", 700042)
    edit = {"inline_message_id": inline_id, "text": "Coffee"}
    assert call(telegram, "editMessageText", **edit).result is True
    assert "message is not modified" in said(telegram, "editMessageText", **edit)
    assert said(telegram, "editMessageText", inline_message_id="x", text="x") == "Bad Request: MESSAGE_ID_INVALID"
    with pytest.raises(BadInput):
        telegram.choose(TOKEN, ANN, "2")


def test_a_mini_app_is_answered_once_and_sends_data_and_prepared_messages(telegram: Telegram, clock: Clock):
    query_id = telegram.web_app(TOKEN, ANN)
    result = {"type": "article", "id": "1", "title": "Tea", "input_message_content": {"message_text": "Tea"}}
    inline_id = call(telegram, "answerWebAppQuery", web_app_query_id=query_id, result=result).result[
        "inline_message_id"
    ]
    assert call(telegram, "editMessageText", inline_message_id=inline_id, text="Coffee").ok
    assert "query is too old" in said(telegram, "answerWebAppQuery", web_app_query_id=query_id, result=result)
    telegram.web_app_data(TOKEN, ANN, '{"tea": 1}', button="Order")
    assert told(telegram, "message")[0]["web_app_data"] == {"data": '{"tea": 1}', "button_text": "Order"}
    given = {"user_id": ANN, "result": result, "allow_user_chats": True}
    prepared = call(telegram, "savePreparedInlineMessage", **given).result["id"]
    telegram.choose(TOKEN, ANN, prepared)
    clock.pass_s(86_401)
    telegram.run_due()
    with pytest.raises(BadInput):
        telegram.choose(TOKEN, ANN, prepared)


def test_reactions_are_told_by_person_or_counted(telegram: Telegram):
    group = telegram.chat("supergroup", "Tea", bots=[TOKEN])
    telegram.set_member(group, telegram.bot(TOKEN).user, "administrator")
    told(telegram, "message_reaction")
    sent = call(telegram, "sendMessage", chat_id=group.id, text="Tea?").result["message_id"]
    post = call(telegram, "sendMessage", chat_id=CHANNEL, text="Tea!").result["message_id"]
    telegram.react(TOKEN, ANN, sent, "👍", chat=group)
    telegram.react(TOKEN, ANN, post, "👍", chat=CHANNEL)
    telegram.react(TOKEN, OWNER, post, "👍", chat=CHANNEL)
    assert call(telegram, "deleteMessageReaction", chat_id=group.id, message_id=sent, user_id=ANN).ok
    first, second = told(telegram, "message_reaction")
    assert (first["new_reaction"], second["old_reaction"]) == ([{"type": "emoji", "emoji": "👍"}],) * 2
    counts = told(telegram, "message_reaction_count")[-1]["reactions"]
    assert counts == [{"type": {"type": "emoji", "emoji": "👍"}, "total_count": 2}]


def test_tags_stand_beside_what_members_write(telegram: Telegram):
    group = telegram.chat("supergroup", "Tea", bots=[TOKEN])
    telegram.set_member(group, telegram.bot(TOKEN).user, "administrator")
    telegram.set_member(group, ANN)
    assert call(telegram, "setChatMemberTag", chat_id=group.id, user_id=ANN, tag="brewer").ok
    assert telegram.write(TOKEN, ANN, "Hello", chat=group)["sender_tag"] == "brewer"
    assert call(telegram, "getChatMember", chat_id=group.id, user_id=ANN).result["tag"] == "brewer"
    telegram.set_member(group, telegram.bot(TOKEN).user, "administrator", can_manage_tags=False)
    assert "not enough rights" in said(telegram, "setChatMemberTag", chat_id=group.id, user_id=ANN, tag="x")


def test_a_timer_deletes_what_is_written_after_it(telegram: Telegram, clock: Clock):
    before = telegram.write(TOKEN, ANN, "stays")["message_id"]
    telegram.timer(TOKEN, ANN, 3600, by=ANN)
    sent = call(telegram, "sendMessage", chat_id=ANN, text="too").result
    after = [telegram.write(TOKEN, ANN, "goes")["message_id"], sent["message_id"]]
    timer = told(telegram, "message")[1]["message_auto_delete_timer_changed"]
    assert timer == {"message_auto_delete_time": 3600}
    assert call(telegram, "getChat", chat_id=ANN).result["message_auto_delete_time"] == 3600
    clock.pass_s(3601)
    telegram.run_due()
    held = telegram.bot(TOKEN).dialogs[ANN].messages
    assert before in held
    assert held.keys().isdisjoint(after)


def test_paid_media_and_refunds_are_told_and_counted(telegram: Telegram):
    media = [{"type": "photo", "media": "attach://photo"}]
    sent = call(telegram, "sendPaidMedia", PHOTO, chat_id=ANN, star_count=30, media=media, payload="tea").result
    telegram.buy(TOKEN, ANN, sent)
    (bought,) = told(telegram, "purchased_paid_media")
    assert (bought["from"]["id"], bought["paid_media_payload"]) == (ANN, "tea")
    paid = call(telegram, "getStarTransactions").result["transactions"][-1]
    assert (paid["amount"], paid["source"]["transaction_type"]) == (30, "paid_media_payment")
    invoice = {"title": "Tea", "description": "Green", "payload": "green", "currency": "XTR"}
    bill = call(telegram, "sendInvoice", chat_id=ANN, **invoice, prices=[{"label": "Tea", "amount": 9}]).result
    query_id = telegram.pay(TOKEN, ANN, bill)
    assert call(telegram, "answerPreCheckoutQuery", pre_checkout_query_id=query_id, ok=True).ok
    charge = told(telegram, "message")[-1]["successful_payment"]["telegram_payment_charge_id"]
    assert call(telegram, "refundStarPayment", user_id=ANN, telegram_payment_charge_id=charge).ok
    refunded = told(telegram, "message")[-1]["refunded_payment"]
    assert (refunded["total_amount"], refunded["invoice_payload"]) == (9, "green")


def test_a_managed_bot_has_a_token_that_works_until_it_is_replaced(telegram: Telegram):
    telegram.manage(TOKEN, ANN, 9000)
    assert told(telegram, "managed_bot")[0]["bot"]["id"] == 9000
    first = call(telegram, "getManagedBotToken", user_id=9000).result
    assert telegram.call(first, "getMe", {}).result["id"] == 9000
    second = call(telegram, "replaceManagedBotToken", user_id=9000).result
    assert (telegram.call(first, "getMe", {}).status, telegram.call(second, "getMe", {}).status) == (401, 200)
    assert call(
        telegram, "setManagedBotAccessSettings", user_id=9000, is_access_restricted=True, added_user_ids=[ANN]
    ).ok
    shown = call(telegram, "getManagedBotAccessSettings", user_id=9000).result
    assert (shown["is_access_restricted"], shown["added_users"][0]["id"]) == (True, ANN)
    assert said(telegram, "getManagedBotToken", user_id=9001) == "Bad Request: BOT_INVALID"


def test_a_video_has_its_cover_and_its_beginning(telegram: Telegram):
    files = {"video": UploadedFile(filename="tea.mp4", content=b"tea"), "cover": PHOTO["photo"]}
    sent = call(telegram, "sendVideo", files, chat_id=ANN, cover="attach://cover", start_timestamp=3).result
    assert (len(sent["video"]["cover"]), sent["video"]["start_timestamp"]) == (1, 3)
    aiogram.types.Message.model_validate(sent)


def test_where_any_chat_may_be_made_up_a_persons_number_stays_a_persons(clock: Clock):
    telegram = Telegram(now=clock, chance=random.Random(7))
    telegram.user(ANN, "Ann")
    assert call(telegram, "getManagedBotToken", user_id=ANN).ok
    assert telegram.write(TOKEN, ANN, "Hello")["from"]["is_bot"] is False
    assert call(telegram, "sendMessage", chat_id=ANN, text="Hello").ok


def test_a_flexible_invoice_asks_for_shipping_and_then_for_the_money(telegram: Telegram):
    bill = {"title": "Tea", "description": "Green", "payload": "green", "currency": "EUR", "provider_token": "1:TEST:x"}
    prices = [{"label": "Tea", "amount": 900}]
    terms = {"is_flexible": True, "need_name": True, "need_shipping_address": True}
    sent = call(telegram, "sendInvoice", chat_id=ANN, **bill, prices=prices, **terms).result
    query_id = telegram.pay(TOKEN, ANN, sent)
    (shipping,) = told(telegram, "shipping_query")
    assert (shipping["id"], shipping["invoice_payload"]) == (query_id, "green")
    ways = [{"id": "post", "title": "Post", "prices": [{"label": "Post", "amount": 300}]}]
    assert call(telegram, "answerShippingQuery", shipping_query_id=query_id, ok=True, shipping_options=ways).ok
    (checkout,) = told(telegram, "pre_checkout_query")
    assert (checkout["total_amount"], checkout["shipping_option_id"]) == (1200, "post")
    assert call(telegram, "answerPreCheckoutQuery", pre_checkout_query_id=checkout["id"], ok=True).ok
    paid = told(telegram, "message")[-1]["successful_payment"]
    assert (paid["total_amount"], paid["shipping_option_id"], paid["order_info"]["name"]) == (1200, "post", "Ann")
    assert call(telegram, "getMyStarBalance").result["amount"] == 500  # euros are no Stars
