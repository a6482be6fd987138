"""Answers and updates have every field that Telegram promises: strict libraries stumble over one that is missing."""

import random

import pytest

from peik.testing import Answer, Options, Telegram
from peik.testing.world import PERMISSIONS, RIGHTS
from tests.sim.conftest import TOKEN, Clock

GROUP = -1_000_000_000_777


@pytest.fixture
def telegram(clock: Clock) -> Telegram:
    calm = Options()
    calm.limits.on = False
    return Telegram(now=clock, chance=random.Random(7), options=calm)


def call(telegram: Telegram, method: str, **params: object) -> Answer:
    answer = telegram.call(TOKEN, method, params)
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("creator", {"is_anonymous"}),
        ("administrator", {*RIGHTS, "can_be_edited", "can_pin_messages", "can_manage_tags"}),
        ("member", set()),
        ("restricted", {*PERMISSIONS, "is_member", "until_date"}),
        ("left", set()),
        ("kicked", {"until_date"}),
    ],
)
def test_a_standing_is_told_with_the_fields_of_its_kind(telegram: Telegram, status: str, fields: set[str]):
    group = telegram.chat("supergroup", chat_id=GROUP, bots=[TOKEN])
    telegram.kick(TOKEN, group, status="left" if status == "member" else "member")
    telegram.kick(TOKEN, group, status=status)
    told = call(telegram, "getUpdates").result[-1]["my_chat_member"]["new_chat_member"]
    assert told.keys() == {"user", "status"} | fields
    assert call(telegram, "getChatMember", chat_id=GROUP, user_id=700042).result == told


def test_an_administrator_is_listed_with_all_rights(telegram: Telegram):
    assert call(telegram, "sendMessage", chat_id=GROUP, text="x").ok  # a lenient chat takes the bot in
    (one,) = call(telegram, "getChatAdministrators", chat_id=GROUP).result
    assert one["can_delete_messages"] is True
    assert one["is_anonymous"] is False


def test_a_live_location_is_moved_and_stopped_once(telegram: Telegram):
    sent = call(telegram, "sendLocation", chat_id=7, latitude=1, longitude=2, live_period=600).result
    where = {"chat_id": 7, "message_id": sent["message_id"]}
    moved = call(telegram, "editMessageLiveLocation", **where, latitude=3, longitude=4).result
    assert moved["location"] == {"latitude": 3.0, "longitude": 4.0, "live_period": 600}
    stopped = call(telegram, "stopMessageLiveLocation", **where).result
    assert stopped["location"] == {"latitude": 3.0, "longitude": 4.0}
    assert call(telegram, "stopMessageLiveLocation", **where).description == "Bad Request: message can't be edited"
    assert telegram.applied.total == 2


def test_a_place_that_is_not_live_cannot_be_moved(telegram: Telegram):
    sent = call(telegram, "sendLocation", chat_id=7, latitude=1, longitude=2).result
    answer = call(
        telegram, "editMessageLiveLocation", chat_id=7, message_id=sent["message_id"], latitude=3, longitude=4
    )
    assert answer.description == "Bad Request: message can't be edited"


def test_an_invite_link_is_changed_and_revoked(telegram: Telegram):
    link = call(telegram, "createChatInviteLink", chat_id=GROUP).result["invite_link"]
    named = call(telegram, "editChatInviteLink", chat_id=GROUP, invite_link=link, name="tea").result
    assert (named["invite_link"], named["name"], named["is_revoked"]) == (link, "tea", False)
    revoked = call(telegram, "revokeChatInviteLink", chat_id=GROUP, invite_link=link).result
    assert (revoked["invite_link"], revoked["is_revoked"]) == (link, True)


def test_a_checklist_is_sent_and_changed(telegram: Telegram):
    tea = {"title": "Tea", "tasks": [{"id": 1, "text": "water"}]}
    sent = call(telegram, "sendChecklist", chat_id=7, business_connection_id="b", checklist=tea).result
    assert sent["checklist"] == tea
    more = tea | {"tasks": [{"id": 1, "text": "water"}, {"id": 2, "text": "leaves"}]}
    changed = call(telegram, "editMessageChecklist", chat_id=7, message_id=sent["message_id"], checklist=more).result
    assert changed["checklist"] == more
    assert not call(telegram, "sendChecklist", chat_id=7, checklist={"title": "Tea"}).ok


def test_options_of_a_poll_can_be_told_apart_for_good(telegram: Telegram):
    poll = call(telegram, "sendPoll", chat_id=7, question="Tea?", options=["yes", "no"]).result["poll"]
    assert [option["persistent_id"] for option in poll["options"]] == ["0", "1"]
    assert (poll["allows_revoting"], poll["members_only"]) == (False, False)


def test_an_answer_for_a_web_app_names_the_inline_message(telegram: Telegram):
    assert call(telegram, "answerWebAppQuery", web_app_query_id="x", result={}).result["inline_message_id"]


def test_a_question_may_leave_out_what_is_not_in_question(telegram: Telegram):
    telegram.ask(TOKEN, 7, "pre_checkout", {"invoice_payload": "tea"})
    telegram.ask(TOKEN, 7, "shipping")
    checkout, shipping = call(telegram, "getUpdates").result
    assert checkout["pre_checkout_query"].keys() == {"id", "from", "currency", "total_amount", "invoice_payload"}
    assert checkout["pre_checkout_query"]["invoice_payload"] == "tea"
    assert len(shipping["shipping_query"]["shipping_address"]) == 6
