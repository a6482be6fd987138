"""An admin's message to everybody: asked for, shown, confirmed, and then a job, whose one message tells how far it is."""

from aiogram import Bot, F, Router
from aiogram.filters import StateFilter
from aiogram.fsm.context import FSMContext
from aiogram.types import CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Message

from examples.downloader_bot.admin import Panel, is_admin
from examples.downloader_bot.book import Book, Person
from examples.downloader_bot.people import noticed
from examples.downloader_bot.settings import Settings
from examples.downloader_bot.words import Words
from peik import Peik


def broadcast_router() -> Router:
    router = Router(name="broadcast")
    router.message.filter(F.chat.type == "private", is_admin)
    router.callback_query.filter(is_admin)
    router.callback_query.register(ask_message, F.data == "admin:broadcast")
    router.message.register(preview, StateFilter(Panel.message))
    router.callback_query.register(send, F.data == "broadcast:send", StateFilter(Panel.confirm))
    router.callback_query.register(drop, F.data == "broadcast:drop", StateFilter(Panel.confirm))
    return router


async def ask_message(press: CallbackQuery, bot: Bot, state: FSMContext, person: Person, words: Words) -> None:
    await noticed(press)
    await state.set_state(Panel.message)
    await bot.send_message(person.id, words("broadcast_ask"))


async def preview(message: Message, bot: Bot, state: FSMContext, book: Book, words: Words) -> None:
    """Any kind of message: it will be copied, and so it is here."""
    await bot.copy_message(message.chat.id, message.chat.id, message.message_id)
    await state.update_data(message=message.message_id)
    await state.set_state(Panel.confirm)
    buttons = [
        InlineKeyboardButton(text=words("broadcast_send"), callback_data="broadcast:send"),
        InlineKeyboardButton(text=words("drop"), callback_data="broadcast:drop"),
    ]
    await message.answer(
        words("broadcast_preview", people=await book.count_hearers()),
        reply_markup=InlineKeyboardMarkup(inline_keyboard=[buttons]),
    )


async def send(
    press: CallbackQuery,
    bot: Bot,
    state: FSMContext,
    book: Book,
    peik: Peik,
    settings: Settings,
    person: Person,
    words: Words,
) -> None:
    """The job is queued before the conversation ends: whoever dies in between sends it once all the same, by its key."""
    await noticed(press, words("broadcast_begun"))
    message: int = (await state.get_data())["message"]
    number = await book.broadcast(person.id, message)
    await peik.queue_job(
        "broadcast",
        user="broadcast",
        chat_id=person.id,
        bot_id=settings.bot_id,
        language=words.language,
        label=words("broadcast"),
        key=f"broadcast-{number}",
        number=number,
        chat=person.id,
        message=message,
        params={"language": words.language},
    )
    await state.clear()


async def drop(press: CallbackQuery, bot: Bot, state: FSMContext, person: Person, words: Words) -> None:
    await noticed(press)
    await state.clear()
    await bot.send_message(person.id, words("dropped"))
