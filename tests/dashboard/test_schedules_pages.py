"""Pages of recurring work: nothing is saved that was not shown, and nothing that was filled in is guessed about or lost."""

import asyncio
from pathlib import Path

from playwright.async_api import expect

from peik.schedules.model import BroadcastWork, JobWork, LetterWork, ScheduleState, Terms
from tests.dashboard.browser import browser, page_of
from tests.dashboard.screens import sign_in
from tests.dashboard.visiting import BOT, Answer, House, Visit, house, visit

NEW = "/admin/schedules/~new"
MORNING = {"name": "morning", "cron": "30 9 * * 1-5", "tz": "Asia/Tehran", "chat_id": "42", "text": "It is %{date}."}


async def asked(visitor: Visit, **fields: str) -> Answer:
    return await again(visitor, await visitor.get(NEW), **fields)


async def again(visitor: Visit, page: Answer, **fields: str) -> Answer:
    return await visitor.submit(page, NEW, **fields)


def test_a_schedule_is_shown_before_it_is_saved_and_can_be_edited(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        service = house.peik.schedules.service
        async with house.visitor("send") as visitor:
            assert "Nothing recurs yet." in (await visitor.get("/admin/schedules")).text
            page = await asked(visitor, **MORNING)
            assert "Nothing is saved yet." in page.text
            assert "It is 20" in page.text  # the first message, with its date
            assert await service.find() == ([], None)

            changed = await again(visitor, page, text="Today is %{date}.")
            assert "Today is 20" in changed.text  # what was changed is shown again first
            assert await service.find() == ([], None)

            page = await again(visitor, changed)
            assert page.url == "/admin/schedules/morning"
            made = await service.get("morning")
            assert made.terms.letter == LetterWork(params={"chat_id": 42, "text": "Today is %{date}."})
            assert (made.terms.cron, made.terms.tz, made.terms.bot_id) == ("30 9 * * 1-5", "Asia/Tehran", BOT)
            assert made.created_by == "key send of tests"

            edit = "/admin/schedules/morning/edit"
            page = await visitor.get(edit)
            form = page.form(edit)
            assert (form.fields["cron"], form.fields["text"], form.fields["what"]) == (
                "30 9 * * 1-5",
                "Today is %{date}.",
                "letter",
            )
            page = await visitor.submit(page, edit, cron="@daily", title="Good morning")
            page = await visitor.submit(page, edit)
            assert "Schedule morning is changed." in page.text
            assert "30 9 * * 1-5" in page.text  # as it was before
            assert (await service.get("morning")).revision == 2

            page = await asked(visitor, **MORNING)
            assert "There is a schedule of this name already" in (await again(visitor, page)).text

    visit(tmp_path, story)


def test_pausing_running_and_deleting_one(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        service = house.peik.schedules.service
        terms = Terms(cron="@daily", bot_id=BOT, letter=LetterWork(params={"chat_id": 42, "text": "once"}))
        await service.put("one", terms, by=None)
        async with house.visitor("send") as visitor:
            one = "/admin/schedules/one"
            page = await visitor.submit(await visitor.get(one), f"{one}/pause")
            assert "It is paused" in page.text
            assert (await service.get("one")).state is ScheduleState.PAUSED
            page = await visitor.submit(page, f"{one}/resume")
            page = await visitor.submit(page, f"{one}/run")
            (run,) = await service.runs("one")
            assert f"/admin/letters/{run.made}" in page.links
            assert "Asked for by key send of tests." in page.text
            page = await visitor.submit(page, f"{one}/delete")
            assert "Schedule one is deleted." in page.text
            assert (await visitor.get(one)).status == 404

    visit(tmp_path, story)


def test_what_contradicts_itself_is_refused_beside_its_field(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.visitor("admin") as visitor:
            wrong: tuple[tuple[dict[str, str], str], ...] = (
                ({"cron": "every day"}, "cron"),
                ({"cron": "0 0 31 2 *"}, "cron"),
                ({"tz": "Tehran"}, "tz"),
                ({"user": "sara"}, "user"),  # of a job
                ({"chats": "1, 2"}, "chats"),  # of a broadcast
                ({"params": "{"}, "params"),
                ({"method": "sendPhoto"}, "method"),  # and a text
                ({"params": '{"chat_id": 7}'}, "chat_id"),
                ({"name": "two words"}, "name"),
                ({"starts_at": "2030-01-02 00:00", "ends_at": "2030-01-01 00:00"}, "ends_at"),
            )
            for fields, field in wrong:
                page = await asked(visitor, **{**MORNING, **fields})
                marked = [given["name"] for tag, given in page.tags if given.get("aria-invalid")]
                assert marked == [field], (fields, marked, page.text)
                kept = page.form(NEW).fields
                assert {name: kept[name] for name in MORNING | fields} == MORNING | fields  # nothing is lost
            many = MORNING | {"what": "broadcast", "chat_id": ""}
            page = await asked(visitor, **many, chats="1, 2", languages="fa")
            assert 'id="error-chats"' in page.body
            assert "Nothing is saved yet." in (await asked(visitor, **many, chats="1, @two")).text
        assert await house.peik.schedules.service.find() == ([], None)

    visit(tmp_path, story)


def test_an_edit_keeps_what_the_form_does_not_ask_for(tmp_path: Path) -> None:
    works = {
        "letter": Terms(
            cron="@daily", bot_id=BOT, letter=LetterWork(params={"chat_id": 1, "text": "a"}, priority=2, attempts=3)
        ),
        "broadcast": Terms(
            cron="@daily",
            bot_id=BOT,
            broadcast=BroadcastWork(
                method="sendPhoto", params={"photo": "x"}, types=["private"], campaign="may", canary_percent=5.0
            ),
        ),
        "job": Terms(cron="@daily", job=JobWork(kind="report", params={"month": 1}, user="tom", attempts=2)),
    }

    async def story(house: House) -> None:
        service = house.peik.schedules.service
        async with house.visitor("admin") as visitor:
            for name, terms in works.items():
                await service.put(name, terms, by=None)
                edit = f"/admin/schedules/{name}/edit"
                page = await visitor.submit(await visitor.get(edit), edit, cron="@hourly")
                await visitor.submit(page, edit)
                changed = (await service.get(name)).terms
                assert (changed.cron, changed.letter, changed.broadcast, changed.job) == (
                    "@hourly",
                    terms.letter,
                    terms.broadcast,
                    terms.job,
                )

    visit(tmp_path, story)


def test_keys_of_some_bots_see_theirs_and_no_jobs_and_viewers_change_nothing(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        service = house.peik.schedules.service
        letter = LetterWork(params={"chat_id": 42, "text": "x"})
        await service.put("own", Terms(cron="@daily", bot_id=BOT, letter=letter), by=None)
        await service.put("work", Terms(cron="@daily", job=JobWork(kind="report")), by=None)
        async with house.visitor("send", bot_ids=frozenset({BOT})) as visitor:
            page = await visitor.get("/admin/schedules")
            assert "/admin/schedules/own" in page.links
            assert "/admin/schedules/work" not in page.links
            assert (await visitor.get("/admin/schedules/work")).status == 404
            page = await asked(visitor, name="job", cron="@daily", what="job", job_kind="report")
            assert page.status == 403
            assert (await visitor.post("/admin/schedules/work/delete")).status in (403, 404)
        async with house.visitor("read") as visitor:
            page = await visitor.get("/admin/schedules/own")
            assert not [form for form in page.forms if form.action.startswith("/admin/schedules")]
            assert (await visitor.get(NEW)).status == 403
            assert (await visitor.post("/admin/schedules/own/pause")).status == 403
        assert len((await service.find())[0]) == 2

    visit(tmp_path, story)


def test_the_form_shows_what_goes_with_the_choice(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as built, browser() as opened, page_of(opened) as page:
            await sign_in(page, built.url)
            await page.goto(built.url + NEW)
            await expect(page.locator("[name=chat_id]")).to_be_visible()
            await expect(page.locator("[name=job_kind]")).to_be_hidden()
            await page.locator("[name=text]").fill("half a message")
            await page.get_by_label("Job", exact=True).check()
            await expect(page.locator("[name=job_kind]")).to_be_visible()
            await expect(page.locator("[name=chat_id]")).to_be_hidden()
            await expect(page.locator("[name=text]")).to_be_visible()  # it is filled in: it would be refused

    asyncio.run(story())
