"""Jobs and accounts of the demo."""

import asyncio

from peik.core.letter import State
from peik.jobs.hosts import HostDown
from peik.jobs.job import Job
from peik.jobs.model import JobRequest
from peik.jobs.outcome import JobHopeless
from peik.jobs.store import JobKind, JobKinds, KindTerms
from tests.dashboard.demo import Demo
from tests.web.accounts import until

FILMS = ("Tehran by night", "Сталкер", "درباره الی", "The third man")


def kinds() -> JobKinds:
    made = JobKinds()
    made.add(JobKind(name="download", work=_download, terms=KindTerms(concurrency=2, per_user=1)))
    made.add(JobKind(name="report", work=_report, terms=KindTerms(concurrency=4, per_user=4), attempts=1))
    made.add(JobKind(name="thumbnail", work=_thumbnail, terms=KindTerms(concurrency=4, per_user=4), attempts=1))
    return made


async def _download(job: Job) -> None:
    await job.progress(0.62, f"reading {job.params['film']}")
    await asyncio.Event().wait()


async def _report(job: Job) -> dict[str, int]:
    month = int(job.params["month"])
    if month > 12:
        raise ValueError(f"There is no month {month}")
    if month > 10:
        async with job.host("figures.example"):
            raise HostDown("nobody answers", is_connect=True)
    return {"rows": month * 410}


async def _thumbnail(job: Job) -> None:
    raise JobHopeless("The file is no picture.")


async def furnish(demo: Demo) -> None:
    await _jobs(demo)
    await _accounts(demo)


async def _jobs(demo: Demo) -> None:
    service = demo.runtime.jobs.service
    for number in range(6):
        await service.queue([JobRequest(kind="report", params={"month": number + 1}, user="tom")])
    wrong = await service.queue(
        [JobRequest(kind="report", params={"month": 13}, user="tom", metadata={"ticket": 4711})]
    )
    odd = await service.queue([JobRequest(kind="thumbnail", params={"file": "notes.txt"}, user="leila")])
    await service.queue([JobRequest(kind="report", params={"month": 11}, user="sara", attempts=5)])
    for queued in (*wrong, *odd):
        await service.wait(queued.job_id, 60)
    running = [
        (await service.queue([JobRequest(kind="download", params={"film": film}, user=f"user-{number % 3}")]))[0].job_id
        for number, film in enumerate(FILMS)
    ]
    await until(lambda: _runs(demo, running[0]))
    demo.pages["job-failed"] = f"/admin/jobs/{wrong[0].job_id}"
    demo.pages["job-running"] = f"/admin/jobs/{running[0]}"


async def _runs(demo: Demo, job_id: int) -> bool:
    return (await demo.runtime.jobs.service.get(job_id)).state is State.ACTIVE


async def _accounts(demo: Demo) -> None:
    telegram = demo.accounts
    leila = telegram.register("+989120000001", first_name="Leila")
    anna = telegram.register("+79030000002", first_name="Анна")
    for session_id, person in (("leila", leila), ("anna", anna)):
        await demo.rest("POST", "/v1/sessions", {"agent_id": "shop", "phone": person.phone, "session_id": session_id})
        await demo.rest("POST", f"/v1/sessions/{session_id}/code")
        await demo.rest("POST", f"/v1/sessions/{session_id}/sign-in", {"code": telegram.code_of(person.phone)})
        await until(lambda session_id=session_id: _is_connected(demo, session_id))
    await demo.rest("POST", "/v1/sessions", {"agent_id": "shop", "phone": "+49170000003", "session_id": "grace"})
    chat = telegram.private(leila, anna)
    for person, text in (
        (leila, "سلام آنا، چای سبز رسید؟"),
        (anna, "Да, спасибо! Очень вкусный чай."),
        (leila, "The next box leaves on Monday."),
        (anna, "Отлично, жду."),
    ):
        telegram.say(chat, person, text)
    await until(lambda: _archived(demo, 8))
    demo.pages["session"] = "/admin/sessions/leila"
    demo.pages["session-new"] = "/admin/sessions/grace"
    message = (await demo.rest("GET", "/v1/messages?limit=1"))["messages"][0]
    demo.pages["archive-message"] = (
        f"/admin/archive/messages/{message['session_id']}/{message['chat_id']}/{message['message_id']}"
    )


async def _is_connected(demo: Demo, session_id: str) -> bool:
    return bool((await demo.rest("GET", f"/v1/sessions/{session_id}"))["is_connected"])


async def _archived(demo: Demo, count: int) -> bool:
    return len((await demo.rest("GET", "/v1/messages?limit=100"))["messages"]) >= count
