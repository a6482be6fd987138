"""What people do at the dashboard, each from its first page to its end, in a real browser, with the mistakes that are made on the
way. One server and one browser for all of them: each flow has chats and names of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect

from peik.core.documents import Contact
from peik.core.letter import LetterCall, State
from peik.schedules.model import LetterWork, Schedule, Terms, following
from peik.schedules.service import ScheduleBook
from peik.testing.faults import Kind
from tests.dashboard.browser import browser, page_of
from tests.dashboard.test_browser import sign_in
from tests.dashboard.test_letters_pages import FINAL, accept, ended
from tests.dashboard.visiting import BOT, KEY, House, house
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.gate  # a browser

LETTERS, BROADCASTS, SCHEDULES = "/admin/letters", "/admin/broadcasts", "/admin/schedules"
FAR_MS = 4_100_000_000_000  # 2099
PERSIAN = str.maketrans("0123456789", "۰۱۲۳۴۵۶۷۸۹")
both = pytest.mark.parametrize("is_scripted", [True, False], ids=["with script", "without"])


class Stage:
    def __init__(self, runner: asyncio.Runner, home: House, opened: Browser) -> None:
        self._runner = runner
        self._home = home
        self._opened = opened

    def play(self, story: Callable[[House, Page], Coroutine[Any, Any, None]], **window: Any) -> None:
        async def whole() -> None:
            async with page_of(self._opened, is_refused=True, **window) as page:
                await story(self._home, page)

        self._runner.run(whole())


@contextlib.asynccontextmanager
async def _opened(folder: Any) -> AsyncIterator[tuple[House, Browser]]:
    async with house(folder) as home, browser() as opened:
        yield home, opened


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All of it is opened and closed by one task, as its groups of tasks ask for."""
    ready: asyncio.Queue[tuple[House, Browser]] = asyncio.Queue()
    is_over = asyncio.Event()

    async def hold() -> None:
        async with _opened(tmp_path_factory.mktemp("flows")) as both_of_them:
            ready.put_nowait(both_of_them)
            await is_over.wait()

    async def begin() -> tuple["asyncio.Task[None]", tuple[House, Browser]]:
        held = asyncio.create_task(hold())
        first = asyncio.create_task(ready.get())
        await asyncio.wait((held, first), return_when=asyncio.FIRST_COMPLETED)
        if held.done():
            first.cancel()
            held.result()
        return held, first.result()

    async def end(held: "asyncio.Task[None]") -> None:
        is_over.set()
        await held

    with asyncio.Runner() as runner:
        held, (home, opened) = runner.run(begin())
        yield Stage(runner, home, opened)
        runner.run(end(held))


async def undelivered(home: House, words: str, count: int) -> list[int]:
    """Letters with these words in them that Telegram refused."""
    home.sim.telegram.faults.add(Kind.ERROR, status=400, words=FINAL, count=count)
    ids = [await accept(home, text=f"{words} {number}", chat=30_000 + number) for number in range(count)]
    for letter_id in ids:
        assert await ended(home, letter_id) is State.FAILED
    return ids


async def far(home: House, words: str, count: int) -> list[int]:
    """Letters that wait for another century."""
    return [await accept(home, text=f"{words} {number}", chat=31_000, send_at_ms=FAR_MS) for number in range(count)]


def delivered(home: House, words: str) -> list[str]:
    return sorted(text for text in home.sim.telegram.sent.texts() if text is not None and words in text)


def row(page: Page, letter_id: int) -> Any:
    return page.get_by_role("checkbox", name=f"Choose {letter_id}", exact=True)


async def told(page: Page, words: str) -> None:
    await expect(page.locator("main [role=status], main [role=alert]").first).to_contain_text(words)


async def wrong(page: Page, field: str, words: str = "") -> None:
    """The error stands beside its field, which has the focus."""
    error = page.locator(f"#error-{field}")
    await expect(error).to_be_visible()
    await expect(error).to_contain_text(words)
    await expect(page.locator(f"[name={field}][aria-invalid=true]")).to_be_focused()


# ---- rows that are ticked ----


@both
def test_ticked_rows_are_sent_again_and_what_changed_in_between_is_told(stage: Stage, is_scripted: bool) -> None:
    words = f"again{is_scripted}"

    async def story(home: House, page: Page) -> None:
        ids = await undelivered(home, words, 4)
        await sign_in(page, home.url, f"{LETTERS}?state=failed&text={words}")
        await expect(page.locator("table.rows tbody tr")).to_have_count(4)
        bar = page.locator("form#ticked")
        if is_scripted:
            await expect(bar).to_be_hidden()
            everything = page.locator("[data-tick-all]")
            await everything.check()
            await expect(bar.locator("[data-ticked]")).to_have_text("4")
            await row(page, ids[3]).uncheck()
            assert await everything.evaluate("(one) => one.indeterminate")
        else:
            for letter_id in ids[:3]:
                await row(page, letter_id).check()

        await bar.get_by_role("button", name="Delete").click()  # the wrong one of two
        await expect(page.get_by_role("heading", name="would be deleted: 3")).to_be_visible()
        await page.get_by_role("link", name="No, go back").click()
        for letter_id, is_on in zip(ids, (True, True, True, False), strict=True):
            await expect(row(page, letter_id)).to_be_checked(checked=is_on)
        if is_scripted:
            await expect(bar.locator("[data-ticked]")).to_have_text("3")

        await bar.get_by_role("button", name="Send again").click()
        await expect(page.get_by_role("heading", name="would be sent again: 3")).to_be_visible()
        await home.peik.outbox.service.retry(ids[0])  # somebody else, at the same moment
        assert await ended(home, ids[0]) is State.COMPLETED
        yes = page.get_by_role("button", name="Yes, send them again")
        await (yes.dblclick() if is_scripted else yes.click())
        await told(page, "Sent again: 2 of 3. The others have changed meanwhile.")
        for letter_id in ids[:3]:
            assert await ended(home, letter_id) is State.COMPLETED

        await page.go_back()  # to the question, and yes once more
        await page.reload()
        await expect(page.get_by_text("There is nothing to do")).to_be_visible()
        await expect(yes).to_have_count(0)
        assert delivered(home, words) == [f"{words} {number}" for number in range(3)]
        assert (await home.peik.outbox.service.letter(ids[3])).state is State.FAILED

    stage.play(story, is_scripted=is_scripted)


def test_ticked_rows_are_counted_in_the_digits_of_the_page(stage: Stage) -> None:
    """Persian pages have Latin figures everywhere, so that they can be compared and copied."""

    async def story(home: House, page: Page) -> None:
        await undelivered(home, "counted", 3)
        await page.goto(f"{home.url}/admin/sign-in")
        await page.locator("input[name=key]").fill(KEY)
        await page.locator("form button").first.click()
        await page.goto(f"{home.url}{LETTERS}?state=failed&text=counted")
        await page.locator("[data-tick-all]").check()
        await expect(page.locator("form#ticked [data-ticked]")).to_have_text("3")

    stage.play(story, language="fa")


@both
def test_ticked_rows_are_cancelled_and_deleted_after_a_question(stage: Stage, is_scripted: bool) -> None:
    words = f"never{is_scripted}"

    async def story(home: House, page: Page) -> None:
        waiting, dead = await far(home, words, 3), await undelivered(home, words, 2)
        await sign_in(page, home.url, f"{LETTERS}?text={words}")
        bar = page.locator("form#ticked")

        # Of the four that are ticked, two can be cancelled; the question says so before anything is done.
        for letter_id in (*waiting[:2], *dead):
            await row(page, letter_id).check()
        await bar.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("heading", name="would be cancelled: 2")).to_be_visible()
        await expect(page.get_by_text("this cannot be done to: 2")).to_be_visible()
        await page.go_back()  # the browser's own way out
        assert {(await home.peik.outbox.service.letter(one)).state for one in waiting} == {State.DELAYED}
        await page.goto(f"{home.url}{LETTERS}?text={words}")
        for letter_id in waiting[:2]:
            await row(page, letter_id).check()
        await bar.get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name="Yes, cancel them").click()
        await told(page, "Messages cancelled: 2")

        await row(page, dead[0]).check()
        await bar.get_by_role("button", name="Delete").click()
        await home.peik.outbox.service.retry(dead[0])  # meanwhile somebody else found that it can be sent after all
        assert await ended(home, dead[0]) is State.COMPLETED
        await page.get_by_role("button", name="Yes, delete them").click()
        await told(page, "Deleted: 0 of 1.")
        await page.goto(f"{home.url}{LETTERS}?text={words}&state=failed")
        await row(page, dead[1]).check()
        await bar.get_by_role("button", name="Delete").click()
        await page.get_by_role("button", name="Yes, delete them").click()
        await told(page, "Messages deleted: 1")
        states = [(await home.peik.outbox.service.letter(one)).state for one in waiting]
        assert states == [State.CANCELLED, State.CANCELLED, State.DELAYED]
        assert delivered(home, words) == [f"{words} 0"]

    stage.play(story, is_scripted=is_scripted)


# ---- drafts ----


async def signed_out(home: House, page: Page) -> None:
    """The session ends, and the browser knows nothing of it."""
    for cookie in await page.context.cookies():
        if cookie["name"] == "peik_session":
            await home.dashboard.board.sign_ins.sign_out(cookie["value"])


@both
def test_a_draft_is_shown_as_somebody_reads_it_edited_and_duplicated(stage: Stage, is_scripted: bool) -> None:
    name = f"tea {is_scripted}"

    async def story(home: House, page: Page) -> None:
        service = home.peik.broadcasts.service

        async def own() -> list[Any]:
            return [one for one in await service.find() if one.name == name]

        text = page.get_by_role("textbox", name="Text", exact=True)
        await sign_in(page, home.url, f"{BROADCASTS}/new")
        await page.locator("[name=name]").fill(name)
        await text.fill("Salom {name}")
        file = {"name": "people.csv", "mimeType": "text/csv", "buffer": "chat_id,name\n501,Ali\n502,لیلا\n".encode()}
        await page.locator("[name=csv]").set_input_files(file)  # type: ignore[arg-type]
        await page.get_by_role("button", name="Make a draft").click()
        await wrong(page, "csv", "not chosen")  # whoever chose a file meant it, and has to say so
        await expect(page.get_by_text("people.csv was kept")).to_be_visible()
        await page.get_by_label("A CSV file").check()
        make = page.get_by_role("button", name="Make a draft")
        await (make.dblclick() if is_scripted else make.click())
        await told(page, "The draft")
        (one,) = await own()

        # As it reads for whom one asks, and what is asked wrongly.
        bubble = page.locator(".bubble-text")
        await expect(bubble).to_have_text("Salom Ali")
        asked = page.locator("form.filters [name=like]")
        await asked.fill("502")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(bubble).to_have_text("Salom لیلا")
        await expect(asked).to_have_value("502")
        await asked.fill("999")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(page.get_by_role("alert")).to_be_visible()
        await expect(asked).to_have_value("999")
        await page.locator("form.card [name=chat_id]").fill("me")
        await page.locator("form.card [name=like]").fill("502")
        await page.get_by_role("button", name="Send the preview").click()
        await wrong(page, "chat_id")
        await expect(page.locator("form.card [name=like]")).to_have_value("502")
        await page.locator("form.card [name=chat_id]").fill("503")
        await page.get_by_role("button", name="Send the preview").click()
        await told(page, "The preview goes to 503")

        # Edited: a place that the file has no column for, and ids without their button.
        await page.get_by_role("link", name="Edit", exact=True).click()
        await expect(page.locator("input[value=same]")).to_be_checked()
        await text.fill("Salom {name}, at {hour}")
        await page.get_by_role("button", name="Save the draft").click()
        await wrong(page, "text", "hour")
        await expect(text).to_have_value("Salom {name}, at {hour}")
        await text.fill("Salom {name}, at five")
        await page.get_by_role("textbox", name="Chats", exact=True).fill("504")
        await page.get_by_role("button", name="Save the draft").click()
        await wrong(page, "chats", "not chosen")
        await page.get_by_role("textbox", name="Chats", exact=True).fill("")
        await signed_out(home, page)
        await page.get_by_role("button", name="Save the draft").click()
        await page.get_by_label("API key").fill(KEY)
        await page.get_by_role("button", name="Sign in").first.click()
        await expect(text).to_have_value("Salom {name}, at five")
        assert (await own())[0].params == one.params  # a sign-in saves nothing
        await page.get_by_role("button", name="Save the draft").click()
        await told(page, "is saved")
        await expect(bubble).to_have_text("Salom Ali, at five")

        # Back, and saved again: it is one draft all the same, and who was overtaken is told so.
        await page.get_by_role("link", name="Edit", exact=True).click()
        await text.fill("Salom {name}, at six")
        other = await page.context.new_page()
        await other.goto(f"{home.url}{BROADCASTS}/{one.id}/edit")
        await other.get_by_role("textbox", name="Text", exact=True).fill("Salom {name}, at seven")
        await other.get_by_role("button", name="Save the draft").click()
        await told(other, "is saved")
        await page.get_by_role("button", name="Save the draft").click()
        await told(page, "Somebody has changed it meanwhile.")
        await expect(text).to_have_value("Salom {name}, at six")
        assert "seven" in (await own())[0].params
        await page.get_by_role("button", name="Save the draft").click()
        await told(page, "is saved")

        # What was looked at before a start is what starts.
        await page.get_by_role("link", name="Start…").click()
        await expect(bubble).to_have_text("Salom Ali, at six")
        await other.goto(f"{home.url}{BROADCASTS}/{one.id}/edit")
        await other.get_by_role("textbox", name="Text", exact=True).fill("Another message")
        await other.get_by_role("button", name="Save the draft").click()
        await told(other, "is saved")
        await page.get_by_role("button", name="Start", exact=True).click()
        await told(page, "Somebody has changed it meanwhile.")
        await expect(bubble).to_have_text("Another message")
        await other.close()

        await page.goto(f"{home.url}{BROADCASTS}/{one.id}")
        await page.get_by_role("link", name="Duplicate").click()
        await expect(page.get_by_text(f"filled in like {name}")).to_be_visible()
        await expect(text).to_have_value("Another message")
        await text.fill("Salom {name} again")
        await page.get_by_role("button", name="Make a draft").click()
        await told(page, "The draft")
        await expect(bubble).to_have_text("Salom Ali again")
        assert [(draft.total, draft.columns) for draft in await own()] == [(2, ("name",))] * 2
        assert [str(draft.phase) for draft in await own()] == ["draft"] * 2

    stage.play(story, is_scripted=is_scripted)


# ---- recurring work ----


@both
def test_recurring_work_is_made_looked_at_edited_paused_and_run(stage: Stage, is_scripted: bool) -> None:
    name, said = f"morning-{is_scripted}", f"Good morning {is_scripted}"

    async def story(home: House, page: Page) -> None:
        service = home.peik.schedules.service
        await sign_in(page, home.url, SCHEDULES)
        await page.get_by_role("link", name="New schedule").click()
        if is_scripted:
            await expect(page.locator("[name=job_kind]")).to_be_hidden()
        given = {"name": name, "cron": "every morning", "tz": "Tehran", "chat_id": "601", "text": "Sobh %{jalali}"}
        for field, value in given.items():
            await page.locator(f"[name={field}]").fill(value)

        async def press(button: str = "Look at it first") -> None:
            await page.get_by_role("button", name=button).click()

        # One mistake after the other, and what was right stays. A name that cannot be is told by the browser itself.
        await page.locator("[name=name]").fill("two words")
        await press()
        assert await page.locator("[name=name]").evaluate("(one) => one.validity.patternMismatch")
        await page.locator("[name=name]").fill(name)
        await press()
        await wrong(page, "tz", "no time zone")
        await page.locator("[name=tz]").fill("Asia/Tehran")
        await press()
        await wrong(page, "cron", "no times of cron")
        await page.locator("[name=cron]").fill("0 0 30 2 *")  # no February has it
        await press()
        await wrong(page, "cron", "never come")
        await page.locator("[name=cron]").fill("30 9 * * 1-5")
        await press()
        await expect(page.locator("#preview li")).to_have_count(5)
        await expect(page.locator("#preview .bubble-text")).to_contain_text("Sobh 14")  # of the Persian calendar
        for field in ("name", "chat_id", "text"):
            await expect(page.locator(f"[name={field}]")).to_have_value(given[field])
        assert name not in [one.name for one in (await service.find())[0]]  # looked at, and not saved
        await page.locator("[name=text]").fill(said)
        await press("Save")  # other words than those that were shown: they are shown first
        await expect(page.locator("#preview .bubble-text")).to_have_text(said)
        save = page.get_by_role("button", name="Save")
        await (save.dblclick() if is_scripted else save.click())
        await told(page, "Saved.")
        assert page.url == f"{home.url}{SCHEDULES}/{name}"

        # Back to the form, and saved again: there is one already.
        await page.goto(f"{home.url}{SCHEDULES}/~new")
        for field, value in {**given, "cron": "@daily", "tz": "UTC"}.items():
            await page.locator(f"[name={field}]").fill(value)
        await press()
        await press("Save")
        await told(page, "There is a schedule of this name already")
        await expect(page.locator("[name=text]")).to_have_value("Sobh %{jalali}")

        # Edited by two at once.
        await page.goto(f"{home.url}{SCHEDULES}/{name}")
        await page.get_by_role("link", name="Edit", exact=True).click()
        await page.locator("[name=cron]").fill("0 10 * * *")
        await service.put(name, msgspec.structs.replace((await service.get(name)).terms, title="Hers"), by="sara")
        await press()
        await told(page, "Somebody has changed it meanwhile.")
        await expect(page.locator("[name=cron]")).to_have_value("0 10 * * *")
        await page.locator("[name=title]").fill("Hers")
        await press()
        await press("Save")
        await told(page, "is changed")
        await expect(page.get_by_text("How it was before (edits: 2)")).to_be_visible()

        # Paused, and run all the same: first not, then once, though the button is pressed twice.
        await page.get_by_role("button", name="Pause").click()
        await told(page, f"Schedule {name} is paused.")
        await expect(page.locator("h1")).to_contain_text("paused")
        await page.locator("details.confirm summary", has_text="Run now").click()
        await page.get_by_role("link", name="No, go back").first.click()
        await expect(page.get_by_text("It runs once now")).to_be_hidden()
        assert await service.runs(name) == []
        await page.locator("details.confirm summary", has_text="Run now").click()
        run = page.locator("details.confirm button", has_text="Run now")
        await (run.dblclick() if is_scripted else run.click())
        await told(page, "was run")
        (made,) = await service.runs(name)
        await expect(page.get_by_text("Asked for by admin key.")).to_be_visible()
        assert await ended(home, int(made.made or 0)) is State.COMPLETED
        assert delivered(home, said) == [said]
        await page.get_by_role("button", name="Resume").click()
        await told(page, "goes on")
        await page.locator("details.confirm summary", has_text="Delete").click()
        await page.locator("details.confirm button", has_text="Delete").click()
        await told(page, f"Schedule {name} is deleted.")

    stage.play(story, is_scripted=is_scripted)


@both
def test_times_that_were_missed_are_told_and_made_up_for(stage: Stage, is_scripted: bool) -> None:
    name, said = f"hourly-{is_scripted}", f"made up for {is_scripted}"

    async def story(home: House, page: Page) -> None:
        service = home.peik.schedules.service
        cron = f"{(datetime.now(UTC).minute + 30) % 60} * * * *"  # half an hour away from now, before and after
        terms = Terms(cron=cron, tz="UTC", bot_id=BOT, letter=LetterWork(params={"chat_id": 611, "text": said}))
        await service.put(name, terms, by=None)
        await sign_in(page, home.url, f"{SCHEDULES}/{name}")
        await expect(page.get_by_text("It has not run yet.")).to_be_visible()

        def as_if_away(old: Schedule) -> Schedule:
            return following(msgspec.structs.replace(old, decided_ms=old.decided_ms - 5 * 3_600_000), UTC)

        await ScheduleBook(home.peik.store.documents).change(name, as_if_away)
        await service.put(name, terms, by=None)  # whoever changes nothing rings the bell all the same
        if is_scripted:  # the page follows by itself
            await expect(page.locator("table.rows tbody tr")).to_have_count(2)
        async with asyncio.timeout(PATIENCE_S):
            while len(await service.runs(name)) < 2:  # noqa: ASYNC110  it happens in the server
                await asyncio.sleep(0.05)
        await page.reload()
        rows = page.locator("table.rows tbody tr")
        await expect(rows.filter(has_text="missed")).to_contain_text("× 4")  # noqa: RUF001  as it is written there
        late = rows.filter(has_text="Made up for later.")
        await late.get_by_role("link").click()
        await expect(page.locator(".bubble-text")).to_have_text(said)
        await page.go_back()
        await page.get_by_role("link", name="Edit", exact=True).click()
        await page.locator("summary", has_text="Missed times").click()
        await page.get_by_label("Times at which Peik was not there").select_option("skip")
        for button in ("Look at it first", "Save"):
            await page.get_by_role("button", name=button).click()
        await expect(page.locator("dl.kv").first).to_contain_text("make up for none")
        await service.delete(name)

    stage.play(story, is_scripted=is_scripted)


# ---- what a message is ----


@both
def test_a_message_is_shown_as_its_reader_sees_it_above_its_json(stage: Stage, is_scripted: bool) -> None:
    async def story(home: House, page: Page) -> None:
        async def shown(method: str, **params: Any) -> None:
            call = LetterCall(method=method, params=msgspec.json.encode({"chat_id": 701, **params}), send_at_ms=FAR_MS)
            (one,) = await home.peik.outbox.service.accept([call])
            await page.goto(f"{home.url}{LETTERS}/{one.letter_id}")

        page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
        bubble, words = page.locator(".bubble-row"), page.locator(".bubble-text")
        await sign_in(page, home.url)
        keys = [[{"text": "بله", "callback_data": "y"}, {"text": "No", "url": "https://evil.example"}]]
        bold = [
            {"type": "bold", "offset": 8, "length": 4},
            {"type": "text_link", "offset": 8, "length": 4, "url": "x:"},
        ]
        await shown(
            "sendMessage",
            text="سلام 😀 لیلا\u202e!\nمی\u200cروم",
            entities=bold,
            reply_markup={"inline_keyboard": keys},
        )
        assert await words.evaluate("(one) => getComputedStyle(one).direction") == "rtl"
        await expect(words.locator("b")).to_have_text("لیلا")  # Telegram counts a smiley as two
        await expect(words.locator(".invisible")).to_have_text("RLO")
        await expect(words.locator(".invisible")).to_have_attribute("title", "U+202E")
        await expect(words).to_contain_text("می\u200cروم")
        await expect(bubble.locator(".bubble-buttons span")).to_have_text(["بله", "No"])
        await expect(bubble.locator("a, button")).to_have_count(0)  # to be looked at only
        above, below = await bubble.bounding_box(), await page.locator("pre.code", has_text='"entities"').bounding_box()
        assert above is not None
        assert below is not None
        assert above["y"] + above["height"] <= below["y"]

        await shown("sendMessage", text="<b>Tea <i>at</b> five<script>alert(1)</script>", parse_mode="HTML")
        await expect(words.locator("b").first).to_contain_text("Tea")
        await expect(words.locator("script")).to_have_count(0)
        assert await words.evaluate("(one) => getComputedStyle(one).direction") == "ltr"
        await shown("sendDocument", document="https://shop.example/bill.pdf", caption="Your bill")
        await expect(page.locator(".bubble-file")).to_have_text("document: https://shop.example/bill.pdf")
        await expect(words).to_have_text("Your bill")
        await page.goto(f"{page.url}?lang=fa")  # in a page from right to left, too, a message has its own direction
        assert await words.evaluate("(one) => getComputedStyle(one).direction") == "ltr"

    stage.play(story, is_scripted=is_scripted)


# ---- names and search ----


@both
def test_a_bot_and_a_person_have_names_and_are_found_by_them(stage: Stage, is_scripted: bool) -> None:
    number, chat = 7000101 + is_scripted, 711 + is_scripted
    name = f"lila_shop_{is_scripted}_bot"

    async def story(home: House, page: Page) -> None:
        home.sim.telegram.add_bot(f"{number}:AAlila", username=name)
        await sign_in(page, home.url, "/admin/bots")

        async def added(token: str) -> None:
            fold = page.locator("details.card", has=page.locator("[name=token]"))
            if not await fold.evaluate("(one) => one.open"):
                await fold.locator("summary").click()
            await page.locator("[name=token]").fill(token)
            await page.get_by_label("Updates").select_option("off")
            await fold.get_by_role("button").click()

        await added("lila")
        await wrong(page, "token")
        await expect(page.locator("[name=token]")).to_have_value("")  # what is secret is not sent back
        await expect(page.get_by_label("Updates")).to_have_value("off")
        await added(f"{number}:AAlida")  # a slip of which only Telegram knows
        await told(page, "Telegram does not accept this token")
        await page.locator("[name=token]").fill(f"{number}:AAlila")
        await page.locator("form", has=page.locator("[name=token]")).get_by_role("button").click()
        await told(page, f"Bot {number} has its new token.")
        await page.goto(f"{home.url}/admin/bots")
        await expect(page.get_by_role("link", name=f"@{name}")).to_be_visible()

        person = Contact(
            bot_id=number,
            chat_id=chat,
            type="private",
            name="لیلا کریمی",
            username="lila_k",
            first_seen_ms=1,
            last_seen_ms=1,
        )
        await home.peik.store.contacts.save_contacts(number, [person], place=1)
        params = msgspec.json.encode({"chat_id": chat, "text": f"كتاب ۱۲۳ مي\u200cرسد {is_scripted}"})
        call = LetterCall(method="sendMessage", params=params, bot_id=number)
        (letter,) = await home.peik.outbox.service.accept([call])
        await ended(home, letter.letter_id)
        await page.goto(f"{home.url}{LETTERS}?chat_id={chat}")
        first = page.locator("table.rows tbody tr")
        await expect(first).to_contain_text(f"@{name}")
        await expect(first).to_contain_text("لیلا کریمی")
        await expect(first).not_to_contain_text(str(number))

        async def searched(words: str) -> None:
            await page.get_by_role("searchbox", name="Search everything").fill(words)
            await page.keyboard.press("Enter")
            await expect(page.locator("main [name=q]")).to_have_value(words.strip())

        # As a Persian keyboard writes it, without half-spaces, and in whichever digits.
        found = page.locator(f'a.id[href="{LETTERS}/{letter.letter_id}"]')
        for words in ("کتاب 123", "میرسد", "کتاب ۱۲۳ می رسد"):
            await searched(words)
            await expect(found).to_be_visible()
        await searched("ktab")
        await expect(page.get_by_text("Nothing found.").first).to_be_visible()
        await expect(page.get_by_text("Everything was looked through.").first).to_be_visible()
        await searched("chat_id")  # names of parameters are no words
        await expect(page.get_by_text("Nothing found.").first).to_be_visible()
        await searched(str(letter.letter_id).translate(PERSIAN))
        await expect(page.locator(".hits").get_by_role("link", name=f"Message {letter.letter_id}")).to_be_visible()
        for words in ("@LILA_K", "كريمي"):
            await searched(words)
            await expect(page.locator(".hits")).to_contain_text("لیلا کریمی")
        await searched("   ")
        await expect(page.get_by_text("Finds messages and updates by their number")).to_be_visible()

    stage.play(story, is_scripted=is_scripted)


# ---- times ----


@pytest.mark.parametrize(
    ("language", "wrong_one", "typed", "shown"),
    [
        ("en", "", "2099-12-04T00:00", "2099-12-04 00:00:00"),
        ("fa", "1478/13/30 00:00", "۱۴۷۸/۰۹/۱۴ ۰۰:۰۰", "1478/09/14 00:00:00"),  # noqa: RUF001  its digits
    ],
)
def test_a_time_is_asked_and_shown_in_the_zone_and_the_calendar_of_whoever_looks(
    stage: Stage, language: str, wrong_one: str, typed: str, shown: str
) -> None:
    async def story(home: House, page: Page) -> None:
        await page.goto(f"{home.url}/admin/sign-in")
        await page.locator("input[name=key]").fill(KEY)
        await page.locator("form button").first.click()
        await page.goto(f"{home.url}{LETTERS}/new")
        await page.locator("[name=chat_id]").fill("721")
        await page.locator("[name=text]").fill("line one\nline two")
        if wrong_one:
            await page.locator("[name=send_at]").fill(wrong_one)
            await page.locator("main form button.main").click()
            await wrong(page, "send_at")
            await expect(page.locator("[name=send_at]")).to_have_value(wrong_one)
            await expect(page.locator("[name=text]")).to_have_value("line one\nline two")
        await page.locator("[name=send_at]").fill(typed)
        await page.locator("main form button.main").click()
        await expect(page.locator("h1 .state")).to_be_visible()
        letter = await home.peik.outbox.service.letter(int(page.url.rpartition("/")[2]))
        assert letter.due_at_ms == 4_100_013_000_000  # midnight in Tehran is 20:30 in Greenwich
        await expect(page.locator("[data-live=letter-facts]")).to_contain_text(shown)
        await expect(page.get_by_text("Asia/Tehran").and_(page.locator("footer span"))).to_have_count(1)
        # Another zone, by the menu, on all pages from now on.
        await page.locator("details.menu > summary").click()
        await page.locator("details.menu details summary").click()
        await page.locator(".zones").get_by_role("link", name="UTC", exact=True).click()
        day = "1478/09/13" if language == "fa" else "2099-12-03"
        await expect(page.locator("[data-live=letter-facts]")).to_contain_text(f"{day} 20:30:00")
        await page.goto(f"{home.url}/admin/charts")
        await expect(page.locator("footer")).to_contain_text("UTC")
        await expect(page.locator("footer")).not_to_contain_text("Tehran")

    stage.play(story, language=language)
