"""aiogram reads strictly: a missing field is an error. So it can judge the shape of all that the simulated Telegram says."""

import asyncio
import random
import time
from os import urandom
from typing import Any

import aiogram.methods
import pytest
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import ClientDecodeError, TelegramAPIError
from aiogram.methods import TelegramMethod
from aiogram.types import (
    AcceptedGiftTypes,
    BotCommand,
    BufferedInputFile,
    ChatPermissions,
    EphemeralMessageParameters,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InlineQueryResultArticle,
    InputChecklist,
    InputChecklistTask,
    InputMediaPhoto,
    InputPaidMediaPhoto,
    InputProfilePhotoStatic,
    InputRichMessage,
    InputSticker,
    InputStoryContentPhoto,
    InputTextMessageContent,
    KeyboardButton,
    KeyboardButtonRequestUsers,
    LabeledPrice,
    Update,
)

from peik.testing import Limits, Options, SimServer, Telegram, UploadedFile

pytestmark = pytest.mark.clients

TOKEN = "700042:AAE-secret"
USER = 7
FORUM = -1001234567890

# They end the session, or wait.
LEFT_OUT = {"GetUpdates", "LogOut", "Close"}
GROUP = -700
OTHER_FORUM = -1001234567891


def file() -> BufferedInputFile:
    return BufferedInputFile(b"leaves", "tea.bin")


def picture() -> BufferedInputFile:
    """A PNG of a hundred by a hundred, as far as its head says so."""
    return BufferedInputFile(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0d\0\0\0d\x08\6\0\0\0" + urandom(8), "tea.png")


KEYBOARD = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="tea", callback_data="tea")]])


def usual() -> dict[str, Any]:
    """A good value for each parameter that some method demands. Other texts are "x", other numbers 1."""
    uploads = ("animation", "audio", "document", "video", "voice", "video_note", "live_photo", "photo")
    return dict.fromkeys(uploads, file()) | {
        "accepted_gift_types": AcceptedGiftTypes(
            unlimited_gifts=True,
            limited_gifts=True,
            unique_gifts=True,
            premium_subscription=True,
            gifts_from_channels=True,
        ),
        "chat_id": FORUM,
        "checklist": InputChecklist(title="Tea", tasks=[InputChecklistTask(id=1, text="water")]),
        "currency": "XTR",
        "commands": [BotCommand(command="tea", description="Makes tea")],
        "from_chat_id": FORUM,
        "media": [InputMediaPhoto(media=file()), InputMediaPhoto(media=file())],
        "options": ["tea", "coffee"],
        "permissions": ChatPermissions(can_send_messages=True),
        "prices": [LabeledPrice(label="tea", amount=3)],
        "sticker": InputSticker(sticker=file(), format="static", emoji_list=["🫖"]),
        "url": "",
        "receiver_user_id": USER,
        "rich_message": InputRichMessage(markdown="# Tea"),
        "user_id": USER,
    }


async def particular(bot: Bot, telegram: Telegram) -> dict[str, dict[str, Any]]:
    """What a method needs to find before it: a message to edit, a query to answer, a topic to close."""
    text = {"message_id": (await bot.send_message(FORUM, "tea")).message_id}
    photo = await bot.send_photo(FORUM, file(), caption="tea")
    live = (await bot.send_location(FORUM, 1.0, 2.0, live_period=600)).message_id
    poll = (await bot.send_poll(FORUM, "Tea?", ["yes", "no"])).message_id
    gone = (await bot.send_message(FORUM, "gone")).message_id
    game = (await bot.send_game(FORUM, "tea")).message_id
    link = (await bot.create_chat_invite_link(FORUM)).invite_link
    month = {"subscription_period": 2_592_000, "subscription_price": 1}
    paid_link = (await bot.create_chat_subscription_invite_link(FORUM, **month)).invite_link
    telegram.chat("group", chat_id=GROUP, bots=[TOKEN])
    telegram.connect(TOKEN, USER, "x")
    for user in (77, 78):
        telegram.join(TOKEN, FORUM, user, asks=True)
    telegram.set_member(FORUM, 79, "administrator")
    telegram.chat("supergroup", chat_id=OTHER_FORUM, is_forum=True, bots=[TOKEN])
    await bot.hide_general_forum_topic(OTHER_FORUM)
    await (await bot.send_message(OTHER_FORUM, "tea")).pin()
    sets = [f"{name}_by_{telegram.bot(TOKEN).user.username}" for name in ("tea", "gone", "emoji", "fresh")]
    kinds = ("mask", "regular", "custom_emoji")
    for name, kind in zip(sets, kinds, strict=False):
        stickers = [InputSticker(sticker=picture(), format="static", emoji_list=["🫖"]) for _ in range(3)]
        await bot.create_new_sticker_set(USER, name, "Tea", stickers, sticker_type=kind)
    tea = [sticker.file_id for sticker in (await bot.get_sticker_set(sets[0])).stickers]
    whispered = EphemeralMessageParameters(receiver_user_id=USER)
    secrets = []
    for _ in range(2):
        said = await bot.send_message(FORUM, "tea", ephemeral_message_parameters=whispered)
        shown = await bot.send_photo(FORUM, file(), caption="tea", ephemeral_message_parameters=whispered)
        secrets += [{"ephemeral_message_id": one.ephemeral_message_id} for one in (said, shown)]
    article = InlineQueryResultArticle(
        id="1", title="Tea", input_message_content=InputTextMessageContent(message_text="tea")
    )
    sharing = KeyboardButton(text="Whom?", request_users=KeyboardButtonRequestUsers(request_id=1))
    checklist = await bot.send_checklist(
        "x", USER, InputChecklist(title="Milk", tasks=[InputChecklistTask(id=1, text="water")])
    )
    said_for = await bot.send_message(USER, "tea", business_connection_id="x")
    # Unchecked: aiogram takes a text alone here, and sends a file all the same.
    shown_photo = InputStoryContentPhoto.model_construct(type="photo", photo=file())
    day = {"active_period": 86_400, "content": shown_photo}
    story = (await bot(aiogram.methods.PostStory.model_construct(business_connection_id="x", **day))).id
    topics = [(await bot.create_forum_topic(FORUM, name)).message_thread_id for name in ("one", "two", "three")]
    await bot.close_forum_topic(FORUM, topics[1])
    return {
        "AddStickerToSet": {"name": sets[0]},
        "AnswerChatJoinRequestQuery": {"result": "queue"},
        "AnswerGuestQuery": {"result": article},
        "BanChatSenderChat": {"sender_chat_id": GROUP},
        "UnbanChatSenderChat": {"sender_chat_id": GROUP},
        "SavePreparedKeyboardButton": {"button": sharing},
        "SendChatJoinRequestWebApp": {"web_app_url": "https://tea.example"},
        "SendMessageDraft": {"chat_id": USER},
        "SendRichMessageDraft": {"chat_id": USER},
        "SetPassportDataErrors": {"errors": []},
        "AnswerCallbackQuery": {"callback_query_id": telegram.press(TOKEN, USER, gone, "x", chat=FORUM)},
        "AnswerInlineQuery": {"inline_query_id": telegram.ask(TOKEN, USER, "inline"), "results": []},
        "AnswerPreCheckoutQuery": {"pre_checkout_query_id": telegram.ask(TOKEN, USER, "pre_checkout", {})},
        "AnswerShippingQuery": {
            "shipping_query_id": telegram.ask(TOKEN, USER, "shipping", {}),
            "ok": False,
            "error_message": "no",
        },
        "AnswerWebAppQuery": {"result": article},
        "ApproveChatJoinRequest": {"user_id": 77},
        "CreateChatSubscriptionInviteLink": month,
        "CreateNewStickerSet": {
            "name": sets[3],
            "stickers": [InputSticker(sticker=file(), format="static", emoji_list=["🫖"])],
        },
        "DeclineChatJoinRequest": {"user_id": 78},
        "DeleteBusinessMessages": {"message_ids": [said_for.message_id]},
        "DeleteEphemeralMessage": secrets[2],
        "DeleteStickerFromSet": {"sticker": tea[0]},
        "DeleteStickerSet": {"name": sets[1]},
        "EditChatInviteLink": {"invite_link": link},
        "EditChatSubscriptionInviteLink": {"invite_link": paid_link},
        "EditEphemeralMessageCaption": {**secrets[1], "caption": "coffee"},
        "EditEphemeralMessageReplyMarkup": {**secrets[0], "reply_markup": KEYBOARD},
        "EditEphemeralMessageText": {**secrets[0], "text": "coffee"},
        "GetCustomEmojiStickers": {"custom_emoji_ids": ["1"]},
        "GetGameHighScores": {"chat_id": FORUM, "message_id": game},
        "GetStickerSet": {"name": sets[0]},
        "LeaveChat": {"chat_id": GROUP},
        "RepostStory": {"active_period": 86_400, "from_chat_id": USER, "from_story_id": story},
        "ReplaceStickerInSet": {"name": sets[0], "old_sticker": tea[1]},
        "RevokeChatInviteLink": {"invite_link": link},
        "SavePreparedInlineMessage": {"result": article, "allow_user_chats": True},
        "SendChatAction": {"action": "typing"},
        "SendGift": {"user_id": USER},
        "SetBusinessAccountProfilePhoto": {"photo": InputProfilePhotoStatic(photo=file())},
        "SetChatAdministratorCustomTitle": {"user_id": 79},
        "SetChatDescription": {"description": "tea"},
        "UnhideGeneralForumTopic": {"chat_id": OTHER_FORUM},
        "UnpinChatMessage": {"chat_id": OTHER_FORUM},
        "SetCustomEmojiStickerSetThumbnail": {"name": sets[2]},
        "SetGameScore": {"chat_id": FORUM, "message_id": game, "score": 5},
        "SetMyProfilePhoto": {"photo": InputProfilePhotoStatic(photo=file())},
        "SetStickerEmojiList": {"sticker": tea[2], "emoji_list": ["☕"]},
        "SetStickerKeywords": {"sticker": tea[2]},
        "SetStickerMaskPosition": {"sticker": tea[2]},
        "SetStickerPositionInSet": {"sticker": tea[2], "position": 0},
        "SetStickerSetThumbnail": {"name": sets[0], "format": "static"},
        "SetStickerSetTitle": {"name": sets[0]},
        "CopyMessage": text,
        "CopyMessages": {"message_ids": [text["message_id"]]},
        "CloseForumTopic": {"message_thread_id": topics[0]},
        "DeleteForumTopic": {"message_thread_id": topics[2]},
        "DeleteMessage": {"message_id": gone},
        "DeleteMessages": {"message_ids": [gone]},
        "EditForumTopic": {"message_thread_id": topics[0], "name": "other"},
        "EditMessageCaption": {"chat_id": FORUM, "message_id": photo.message_id, "caption": "coffee"},
        "EditMessageChecklist": {"chat_id": USER, "message_id": checklist.message_id},
        "EditMessageLiveLocation": {"chat_id": FORUM, "message_id": live, "latitude": 3.0},
        "EditMessageMedia": {"chat_id": FORUM, "message_id": photo.message_id, "media": InputMediaPhoto(media=file())},
        "EditMessageReplyMarkup": {"inline_message_id": "x"},
        "EditMessageText": {"chat_id": FORUM, **text, "text": "coffee"},
        "EditEphemeralMessageMedia": {**secrets[3], "media": InputMediaPhoto(media=file())},
        "EditStory": {"story_id": story, **day},
        "ForwardMessage": text,
        "ForwardMessages": {"message_ids": [text["message_id"]]},
        "GetFile": {"file_id": photo.photo[-1].file_id if photo.photo else ""},
        "GiftPremiumSubscription": {"month_count": 3, "star_count": 1000},
        "PinChatMessage": text,
        "PostStory": day,
        "ReopenForumTopic": {"message_thread_id": topics[1]},
        "SendPaidMedia": {"media": [InputPaidMediaPhoto(media=file())]},
        "SendSticker": {"sticker": file()},
        "SetMessageReaction": text,
        "StopMessageLiveLocation": {"chat_id": FORUM, "message_id": live},
        "StopPoll": {"message_id": poll},
        "UnpinAllChatMessages": {"chat_id": USER},
        "UploadStickerFile": {"sticker": file(), "sticker_format": "static"},
    }


def demanded(method: type[TelegramMethod[Any]], given: dict[str, Any]) -> dict[str, Any]:
    fields = {name: str(field.annotation) for name, field in method.model_fields.items() if field.is_required()}
    return {name: given.get(name, "x" if "str" in kind else 1) for name, kind in fields.items()}


def test_aiogram_can_read_the_answer_to_every_method_it_knows() -> None:
    async def story() -> None:
        options = Options(mode="local", limits=Limits(on=False))
        async with SimServer(options=options, seed=7) as sim:
            sim.telegram.chat("supergroup", "Tea", chat_id=FORUM, is_forum=True, bots=[TOKEN])
            sim.telegram.kick(TOKEN, FORUM, status="administrator")
            sim.telegram.write(TOKEN, USER, "hello")
            async with Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(sim.url))).context() as bot:
                own, failed = await particular(bot, sim.telegram), dict[str, str]()
                for name in sorted(_names() - LEFT_OUT):
                    method = getattr(aiogram.methods, name)
                    # Unchecked: what we send is not in question here, only what we get.
                    call = method.model_construct(**demanded(method, usual()) | own.get(name, {}))
                    try:
                        await bot(call)
                    except (ClientDecodeError, TelegramAPIError) as error:
                        failed[name] = str(error)
                assert not failed, "\n".join(f"{k}: {v}" for k, v in failed.items())

    asyncio.run(story())


def _names() -> set[str]:
    found = {name for name in aiogram.methods.__all__ if issubclass(getattr(aiogram.methods, name), TelegramMethod)}
    assert len(found) > 150
    return found - {"TelegramMethod"}


def test_aiogram_can_read_every_update_that_people_cause() -> None:
    telegram = Telegram(now=time.time, chance=random.Random(7))
    telegram.chat("group", "Tea", chat_id=-5, bots=[TOKEN])
    telegram.chat("channel", "News", chat_id=-1009, bots=[TOKEN])
    said = telegram.write(TOKEN, USER, "/start")
    telegram.edit(TOKEN, USER, int(str(said["message_id"])), "/help")
    for kind in ("photo", "document", "audio", "video", "animation", "voice", "video_note", "sticker"):
        telegram.upload(TOKEN, USER, kind, UploadedFile(filename="tea.bin", content=b"leaves"))
    posted = telegram.write(TOKEN, USER, "news", chat=-1009)
    telegram.edit(TOKEN, -1009, int(str(posted["message_id"])), "old news")
    telegram.press(TOKEN, USER, int(str(said["message_id"])), "yes")
    for query in ("inline", "pre_checkout", "shipping"):
        telegram.ask(TOKEN, USER, query)
    telegram.block(TOKEN, USER)
    telegram.unblock(TOKEN, USER)
    for status in ("administrator", "restricted", "kicked", "left", "creator", "member"):
        telegram.kick(TOKEN, -5, status=status)
    telegram.migrate(-5)

    answer = telegram.call(TOKEN, "getUpdates", {})
    updates = answer.json()["result"]
    assert isinstance(updates, list)
    kinds = {Update.model_validate(update).event_type for update in updates}
    assert kinds == {
        "message", "edited_message", "channel_post", "edited_channel_post", "callback_query", "inline_query",
        "pre_checkout_query", "shipping_query", "my_chat_member",
    }  # fmt: skip
