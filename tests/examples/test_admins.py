"""The downloader bot's gate and its panel: sponsors, bans, figures, broadcasts, two admins at once."""

import asyncio
from pathlib import Path

import pytest

from examples.downloader_bot.book import Book
from peik.testing.world import SimMember
from tests.examples.town import ADMIN, DEPUTY, LENA, OMID, SARA, Town, jobs, play
from tests.processes.programs import BOT


def test_the_gate_opens_to_members_and_admins_keep_the_list(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        channel = town.telegram.chat("channel", "Ships and more", username="ships", bots=[BOT])
        town.telegram.kick(BOT, channel.id, status="administrator")
        await _panel(town, ADMIN, "Sponsors")
        town.presses(ADMIN, await town.gets(ADMIN, "There are no sponsors"), "Add one")
        await town.gets(ADMIN, "Make the bot an administrator")
        town.says(ADMIN, "@nowhere_to_be_seen")
        await town.gets(ADMIN, "I cannot see the members of @nowhere_to_be_seen")
        town.says(ADMIN, "@ships")
        await town.gets(ADMIN, "Ships and more is a sponsor now")

        town.says(SARA, f"{town.web.url}/small.txt")
        gate = await town.gets(SARA, "لطفاً عضو شوید")
        assert [one.get("url") for one in town.buttons(gate)] == ["https://t.me/ships", None]
        town.presses(SARA, gate, "عضو شدم")
        await town.until(lambda: _answers(town, "هنوز عضو همه نشده‌اید"), "she is told that she has not joined")
        assert not town.web.asked
        _join(town, channel.id, SARA)
        town.presses(SARA, gate, "عضو شدم")
        await town.gets(SARA, method="sendDocument")

        await _panel(town, ADMIN, "Sponsors", count=2)
        town.presses(ADMIN, await town.gets(ADMIN, "Press one to remove it"), "✖ Ships and more")
        await town.gets(ADMIN, "There are no sponsors", count=2)
        town.says(OMID, f"{town.web.url}/small.txt")
        await town.gets(OMID, method="sendDocument")

    play(story, tmp_path)


@pytest.mark.gate  # a whole bot, in real time
def test_a_channel_that_cannot_be_seen_keeps_nobody_out_and_admins_hear_of_it_once(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        channel = town.telegram.chat("channel", "Ships", username="ships", bots=[BOT])
        town.telegram.kick(BOT, channel.id, status="administrator")
        for admin in (ADMIN, DEPUTY):
            town.says(admin, "/start")
            await town.gets(admin, "Send me a link")
        await _panel(town, ADMIN, "Sponsors")
        town.presses(ADMIN, await town.gets(ADMIN, "There are no sponsors"), "Add one")
        await town.gets(ADMIN, "Make the bot an administrator")
        town.says(ADMIN, "https://t.me/ships")
        await town.gets(ADMIN, "is a sponsor now")
        town.telegram.faults.add(
            "error", method="getChatMember", status=403, words="Forbidden: bot was kicked from the channel chat"
        )
        for user in (OMID, LENA):
            town.says(user, f"{town.web.url}/small.txt")
            await town.gets(user, method="sendDocument")
        for admin in (ADMIN, DEPUTY):
            await town.gets(admin, "any more. Nobody is kept out")
            assert len(town.got(admin, "any more. Nobody is kept out")) == 1

    play(story, tmp_path)


@pytest.mark.gate  # a whole bot, in real time
def test_who_is_banned_gets_nothing_until_they_are_not(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.says(OMID, "/start")
        await town.gets(OMID, "Send me a link")
        town.says(OMID, "/admin")
        await town.gets(OMID, "I see no link")  # to him it is a text like any other
        await _panel(town, ADMIN, "Ban")
        await town.gets(ADMIN, "Send me the id")
        town.says(ADMIN, "12345")
        await town.gets(ADMIN, "I know nobody with that id")
        town.says(ADMIN, str(OMID))
        await town.gets(ADMIN, f"{OMID} is banned")
        town.says(OMID, f"{town.web.url}/small.txt")
        await town.gets(OMID, "You cannot use this bot. Questions: @helpful")
        assert not town.web.asked
        await _panel(town, ADMIN, "Unban", count=2)
        await town.gets(ADMIN, "Send me the id", count=2)
        town.says(ADMIN, str(OMID))
        await town.gets(ADMIN, f"{OMID} may use the bot again")
        town.says(OMID, f"{town.web.url}/small.txt")
        await town.gets(OMID, method="sendDocument")

    play(story, tmp_path)


def test_two_admins_at_once_never_disturb_each_other_and_a_broadcast_reaches_whom_it_can(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        for user, words in ((SARA, "لینک را بفرستید"), (OMID, "Send me a link"), (LENA, "Пришлите ссылку")):
            town.says(user, "/start bazaar")
            await town.gets(user, words)
        await _panel(town, ADMIN, "Broadcast")
        await _panel(town, DEPUTY, "Ban")
        await town.gets(ADMIN, "Send me the message")
        await town.gets(DEPUTY, "Send me the id")
        town.says(ADMIN, "Tomorrow we rest.")
        town.says(DEPUTY, str(LENA))
        await town.gets(DEPUTY, f"{LENA} is banned")
        preview = await town.gets(ADMIN, "So it will look")
        assert [row.text for row in town.got(ADMIN, method="copyMessage")] == ["Tomorrow we rest."]
        town.telegram.user(OMID, is_deactivated=True)
        town.presses(ADMIN, preview, "Send it")
        town.presses(ADMIN, preview, "Send it")
        await town.gets(SARA, "Tomorrow we rest.")
        told = await town.gets(ADMIN, "Broadcast: ")
        assert "3 have it, 1 could not be reached, 0 are still waiting" in told.text  # the admins hear it, too
        assert (await jobs(town))["broadcast"].completed == 1
        assert not town.got(LENA, "Tomorrow we rest.")
        assert len(town.got(SARA, "Tomorrow we rest.")) == 1

    play(story, tmp_path)


def test_the_figures_are_those_of_the_book_and_of_peik(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        for user in (SARA, OMID):
            town.says(user, "/start bazaar")
        town.says(LENA, "/start radio")
        town.says(OMID, f"{town.web.url}/nothing.pdf")
        await town.sees(OMID, "There is nothing at that link")
        town.says(SARA, f"{town.web.url}/slow.bin")
        await town.web.is_waiting.wait()
        await _panel(town, ADMIN, "Statistics")
        told = await town.gets(ADMIN, "People: 4, 4 of them new today. 0 have blocked the bot, 0 are banned.")
        assert "Requests today: 2, 0 of them answered at once." in told.text
        assert "Downloads: 0 done, 1 failed, 0 waiting.\nRunning: 1 of 4 (25 % of the capacity)" in told.text
        assert "Starts by campaign: bazaar: 2, radio: 1" in told.text
        town.web.is_open.set()

    play(story, tmp_path, MAX_CONCURRENT_DOWNLOADS="4")


async def _panel(town: Town, admin: int, button: str, count: int = 1) -> None:
    town.says(admin, "/admin")
    town.presses(admin, await town.gets(admin, "Admin panel", count=count), button)


def _answers(town: Town, words: str) -> bool:
    return any(words in row.text for row in town.telegram.applied.where(method="answerCallbackQuery"))


def _join(town: Town, channel: int, user: int) -> None:
    town.telegram.chats[channel].members[user] = SimMember(status="member")


def test_steps_of_conversations_outlive_the_bot(tmp_path: Path) -> None:
    async def story() -> None:
        async with Book(tmp_path / "bot.db") as book:
            await book.set_step("one", state="Panel:ban")
            await book.set_step_data("one", '{"message": 5}')
            await book.set_step("two", state="Panel:message")
        async with Book(tmp_path / "bot.db") as book:
            assert await book.step("one") == ("Panel:ban", '{"message": 5}')
            assert await book.step("two") == ("Panel:message", "{}")
            await book.set_step("two", state=None)
            assert await book.step("two") == (None, "{}")

    asyncio.run(story())
