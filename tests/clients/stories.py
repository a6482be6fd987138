"""What every bot can do for a person, whatever its library. The names are the columns of docs/compatibility.md."""

import hashlib
from collections.abc import Awaitable, Callable

from peik.testing import Kind, UploadedFile
from tests.clients.harness import Stage

Capability = Callable[[Stage, int], Awaitable[None]]

PHOTO = bytes(range(256)) * 64
DOCUMENT = bytes(range(256)) * 1024


async def answers(stage: Stage, user: int) -> None:
    texts = ["hello", "چای؟ 🫖", "a < b & c"]
    for text in texts:
        stage.writes(user, text)
    await stage.gets(user, "sendMessage", len(texts))
    # In any order: some libraries handle one person's messages at the same time.
    assert sorted(row.text for row in stage.got(user)) == sorted(f"echo: {text}" for text in texts)


async def sends_a_photo(stage: Stage, user: int) -> None:
    stage.writes(user, "/photo")
    [sent] = await stage.gets(user, "sendPhoto")
    assert sent.text == "a photo"
    assert stage.content(stage.shown(sent)["photo"][-1]["file_id"]) == PHOTO


async def sends_a_document(stage: Stage, user: int) -> None:
    stage.writes(user, "/document")
    [sent] = await stage.gets(user, "sendDocument")
    assert sent.text == "a document"
    document = stage.shown(sent)["document"]
    assert document["file_name"] == "tea.bin"
    assert stage.content(document["file_id"]) == DOCUMENT


async def sends_an_album(stage: Stage, user: int) -> None:
    stage.writes(user, "/album")
    album = [stage.shown(sent) for sent in await stage.gets(user, "sendMediaGroup", 2)]
    assert [item["caption"] for item in album] == ["one", "two"]
    assert [stage.content(item["photo"][-1]["file_id"]) for item in album] == [b"one" * 1000, b"two" * 1000]
    assert len({item["media_group_id"] for item in album}) == 1


async def edits(stage: Stage, user: int) -> None:
    stage.writes(user, "/edit")
    await stage.applied("editMessageText", chat_id=user)
    [sent] = stage.got(user)
    assert sent.text == "first"
    assert stage.shown(sent)["text"] == "second"


async def answers_a_button(stage: Stage, user: int) -> None:
    stage.writes(user, "/keyboard")
    [sent] = await stage.gets(user, "sendMessage")
    [[button]] = stage.shown(sent)["reply_markup"]["inline_keyboard"]
    stage.telegram.press(stage.bot_id, user, sent.message_id, button["callback_data"])
    assert (await stage.applied("answerCallbackQuery", chat_id=user)).text == "noted"
    await stage.applied("editMessageText", chat_id=user)
    assert stage.shown(sent)["text"] == "Tea: yes"
    assert "reply_markup" not in stage.shown(sent)


async def downloads(stage: Stage, user: int) -> None:
    content = b"\x00 leaves of tea\r\n" * 50_000
    file = UploadedFile(filename="tea leaves.txt", content=content, content_type="text/plain")
    stage.telegram.upload(stage.bot_id, user, "document", file)
    await stage.bot.until(lambda: stage.bot.has_handled(user), "the bot has seen the document")
    stage.writes(user, "/download")
    [sent] = await stage.gets(user, "sendMessage")
    assert sent.text == f"{len(content)} {hashlib.sha256(content).hexdigest()}"


CAPABILITIES: dict[str, Capability] = {
    "answers": answers,
    "photo": sends_a_photo,
    "document": sends_a_document,
    "album": sends_an_album,
    "edit": edits,
    "button": answers_a_button,
    "download": downloads,
}


# Trouble in the middle, for all bots at once. Afterwards everybody who wrote must have an echo; whether only one is not asked.

Trouble = Callable[[list[Stage]], Awaitable[None]]

PEOPLE = range(200, 220)
_FIRST, _BEFORE, _DURING, _AFTER = (PEOPLE[start : start + 5] for start in range(0, 20, 5))


async def telegram_dark(stages: list[Stage]) -> None:
    """Telegram is gone for five seconds."""
    await _in_full_swing(stages)
    sim = stages[0].sim
    sim.telegram.outage(5.0)
    _write(stages, _DURING)
    await stages[0].until(lambda: not sim.telegram.faults.is_live(Kind.DARK), "Telegram is back")
    _write(stages, _AFTER)


async def peik_killed(stages: list[Stage]) -> None:
    """Peik dies without a word, and is started again."""
    server = stages[0].server
    assert server is not None, "This story needs a Peik in between."
    await _in_full_swing(stages)
    await server.program.kill()
    _write(stages, _DURING)
    await server.start()
    _write(stages, _AFTER)


async def nothing_is_lost(stage: Stage, trouble: str) -> None:
    """Everybody is answered; and as long as Peik was there, no bot had to ask it twice: its repeats would hide a loss."""
    await everybody_is_answered(stage)
    if trouble != "Peik killed":
        assert not stage.bot.unanswered()


async def everybody_is_answered(stage: Stage) -> None:
    def unanswered() -> list[int]:
        texts = set(stage.telegram.sent.texts(bot_id=stage.bot_id))
        return [user for user in PEOPLE if f"echo: from {user}" not in texts]

    try:
        await stage.until(lambda: not unanswered(), "everybody is answered")
    except AssertionError as error:
        # Who never reached the bot was lost on the way in, who did on the way out.
        reached = [user for user in unanswered() if stage.bot.has_handled(user)]
        raise AssertionError(f"Unanswered: {unanswered()}, of these handled by the bot: {reached}. {error}") from None


async def _in_full_swing(stages: list[Stage]) -> None:
    """Every bot has answered somebody, and has just been written to by others."""
    _write(stages, _FIRST)
    for stage in stages:
        await stage.until(lambda stage=stage: bool(stage.got(_FIRST[0])), f"{stage.bot.library.name} answers")
    _write(stages, _BEFORE)


def _write(stages: list[Stage], people: range) -> None:
    for stage in stages:
        for user in people:
            stage.writes(user, f"from {user}")


TROUBLES: dict[str, Trouble] = {"Telegram dark": telegram_dark, "Peik killed": peik_killed}
