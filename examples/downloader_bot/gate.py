"""The sponsor gate: whoever wants a download has joined the sponsors' channels. Asked anew each time."""

from aiogram import Bot
from aiogram.exceptions import TelegramAPIError, TelegramBadRequest, TelegramForbiddenError
from aiogram.types import ChatMemberRestricted, InlineKeyboardButton, InlineKeyboardMarkup

from examples.downloader_bot.book import Book, Sponsor
from examples.downloader_bot.settings import Settings
from examples.downloader_bot.words import USUAL, Words, words_of

TELL_S = 3600  # admins hear of a channel that cannot be seen once in this time
_INSIDE = frozenset({"creator", "administrator", "member"})


async def missing(bot: Bot, book: Book, settings: Settings, person_id: int) -> list[Sponsor]:
    """The sponsors that a person has not joined. What cannot be found out keeps nobody out."""
    if person_id in settings.admins:
        return []
    return [one for one in await book.sponsors() if not await _is_in(bot, book, settings, one, person_id)]


async def _is_in(bot: Bot, book: Book, settings: Settings, sponsor: Sponsor, person_id: int) -> bool:
    try:
        member = await bot.get_chat_member(sponsor.chat, person_id)
    except (TelegramBadRequest, TelegramForbiddenError) as error:
        if _is_about_the_person(error):
            return False
        await _tell_admins(bot, book, settings, sponsor)
        return True
    except TelegramAPIError:  # Telegram cannot be reached, or is busy
        return True
    return member.status in _INSIDE or (isinstance(member, ChatMemberRestricted) and member.is_member)


def _is_about_the_person(error: TelegramAPIError) -> bool:
    """Telegram says so of people whom the channel has never seen."""
    words = error.message.lower()
    return "user not found" in words or "participant" in words


async def _tell_admins(bot: Bot, book: Book, settings: Settings, sponsor: Sponsor) -> None:
    if not await book.may_tell_of(sponsor.chat, every_s=TELL_S):
        return
    for admin in sorted(settings.admins):
        language = (await book.language(admin)) or USUAL
        try:
            await bot.send_message(admin, words_of(language)("sponsor_lost", chat=sponsor.chat))
        except TelegramAPIError:  # an admin who never wrote to the bot; the others hear it
            continue


def doors(sponsors: list[Sponsor], link: int, words: Words) -> InlineKeyboardMarkup:
    """A button to each channel, and the one that says "I have joined"."""
    rows = [[InlineKeyboardButton(text=one.title, url=one.url)] for one in sponsors]
    rows.append([InlineKeyboardButton(text=words("joined"), callback_data=f"joined:{link}")])
    return InlineKeyboardMarkup(inline_keyboard=rows)
