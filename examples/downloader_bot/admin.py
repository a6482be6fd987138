"""The panel of admins, in their chat: figures, bans, sponsors. Each admin's conversation stands in the book by itself."""

from aiogram import Bot, F, Router
from aiogram.exceptions import TelegramAPIError
from aiogram.filters import Command, StateFilter
from aiogram.fsm.context import FSMContext
from aiogram.fsm.state import State, StatesGroup
from aiogram.types import CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Message, User

from examples.downloader_bot.book import Book, Person, Sponsor
from examples.downloader_bot.people import noticed
from examples.downloader_bot.settings import Settings
from examples.downloader_bot.words import Words
from peik import Peik


class Panel(StatesGroup):
    """What an admin was asked for."""

    ban = State()
    unban = State()
    sponsor = State()
    message = State()  # of a broadcast
    confirm = State()


def is_admin(event: Message | CallbackQuery, event_from_user: User, settings: Settings) -> bool:
    return event_from_user.id in settings.admins


def admin_router() -> Router:
    router = Router(name="admin")
    router.message.filter(F.chat.type == "private", is_admin)
    router.callback_query.filter(is_admin)
    router.message.register(panel, Command("admin"))
    router.message.register(leave, Command("cancel"), StateFilter(Panel))
    router.callback_query.register(figures, F.data == "admin:statistics")
    router.callback_query.register(ask_person, F.data.in_({"admin:ban", "admin:unban"}))
    router.message.register(got_person, StateFilter(Panel.ban, Panel.unban))
    router.callback_query.register(list_sponsors, F.data == "admin:sponsors")
    router.callback_query.register(remove_sponsor, F.data.startswith("sponsor:remove:"))
    router.callback_query.register(ask_sponsor, F.data == "sponsor:add")
    router.message.register(got_sponsor, StateFilter(Panel.sponsor))
    return router


async def panel(message: Message, state: FSMContext, words: Words) -> None:
    await state.clear()
    names = ("statistics", "broadcast", "ban", "unban", "sponsors")
    buttons = [[InlineKeyboardButton(text=words(name), callback_data=f"admin:{name}")] for name in names]
    await message.answer(words("admin"), reply_markup=InlineKeyboardMarkup(inline_keyboard=buttons))


async def leave(message: Message, state: FSMContext, words: Words) -> None:
    await state.clear()
    await message.answer(words("dropped"))


async def figures(
    press: CallbackQuery, bot: Bot, book: Book, peik: Peik, settings: Settings, person: Person, words: Words
) -> None:
    """People from the book, downloads from Peik."""
    await noticed(press)
    told = await book.figures()
    counts = (await peik.job_counts()).get("download")
    done, failed, waiting, active = (
        (counts.completed, counts.failed, counts.waiting + counts.delayed, counts.active) if counts else (0, 0, 0, 0)
    )
    text = words(
        "figures",
        people=told.people,
        new_today=told.new_today,
        gone=told.gone,
        banned=told.banned,
        asked_today=told.asked_today,
        at_once_today=told.at_once_today,
        done=done,
        failed=failed,
        waiting=waiting,
        active=active,
        capacity=settings.downloads,
        share=100 * active // settings.downloads,
        campaigns=", ".join(f"{name}: {starts}" for name, starts in told.campaigns) or "0",
    )
    await bot.send_message(person.id, text)


# ---- bans ----


async def ask_person(press: CallbackQuery, bot: Bot, state: FSMContext, person: Person, words: Words) -> None:
    await noticed(press)
    await state.set_state(Panel.ban if press.data == "admin:ban" else Panel.unban)
    await bot.send_message(person.id, words("ban_ask"))


async def got_person(message: Message, state: FSMContext, book: Book, settings: Settings, words: Words) -> None:
    text = (message.text or "").strip()
    is_ban = await state.get_state() == Panel.ban.state
    is_id = text.isascii() and text.isdigit() and len(text) < 19
    if not is_id or int(text) in settings.admins or not await book.set_banned(int(text), is_banned=is_ban):
        await message.answer(words("no_person"))
        return
    await state.clear()
    await message.answer(words("ban_done" if is_ban else "unban_done", person=text))


# ---- sponsors ----


async def list_sponsors(press: CallbackQuery, bot: Bot, book: Book, person: Person, words: Words) -> None:
    await noticed(press)
    sponsors = await book.sponsors()
    rows = [
        [InlineKeyboardButton(text=f"✖ {one.title}", callback_data=f"sponsor:remove:{one.chat}")] for one in sponsors
    ]
    rows.append([InlineKeyboardButton(text=words("sponsor_add"), callback_data="sponsor:add")])
    text = words("sponsors_list" if sponsors else "sponsors_none")
    await bot.send_message(person.id, text, reply_markup=InlineKeyboardMarkup(inline_keyboard=rows))


async def remove_sponsor(press: CallbackQuery, bot: Bot, book: Book, person: Person, words: Words) -> None:
    await book.remove_sponsor((press.data or "").removeprefix("sponsor:remove:"))
    await list_sponsors(press, bot, book, person, words)


async def ask_sponsor(press: CallbackQuery, bot: Bot, state: FSMContext, person: Person, words: Words) -> None:
    await noticed(press)
    await state.set_state(Panel.sponsor)
    await bot.send_message(person.id, words("sponsor_ask"))


async def got_sponsor(
    message: Message, bot: Bot, state: FSMContext, book: Book, settings: Settings, words: Words
) -> None:
    """Only a channel whose members the bot can see may stand at the gate, and one that people can find."""
    name = (message.text or "").strip().removeprefix("https://t.me/")
    chat_name = name if name.startswith("@") or name.removeprefix("-").isdigit() else f"@{name}"
    sponsor = await _seen(bot, chat_name, settings)
    if sponsor is None:
        await message.answer(words("sponsor_unseen", chat=chat_name))
        return
    await book.add_sponsor(sponsor)
    await state.clear()
    await message.answer(words("sponsor_added", title=sponsor.title))


async def _seen(bot: Bot, name: str, settings: Settings) -> Sponsor | None:
    try:
        chat = await bot.get_chat(name)
        own = await bot.get_chat_member(chat.id, settings.bot_id)
    except TelegramAPIError:
        return None
    url = f"https://t.me/{chat.username}" if chat.username else chat.invite_link
    if chat.type == "private" or own.status != "administrator" or url is None:
        return None
    return Sponsor(chat=str(chat.id), title=chat.title or name, url=url)
