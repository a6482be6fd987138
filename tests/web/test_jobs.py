"""Jobs as a client of REST meets them: a real server, and a Peik that does them."""

import asyncio
import io
import time
from pathlib import Path
from typing import Any

import pytest

from peik.jobs.model import METADATA_BYTES_MAX, PARAMS_BYTES_MAX
from peik.jobs.service import QUEUED_MAX
from tests.web.accounts import until
from tests.web.working import JOBS_A_DAY, Works, play_works

SHOWN = {
    "id", "kind", "user", "params", "state", "is_cancelling", "priority", "attempts", "attempts_made", "backoff_ms",
    "backoff", "timeout_ms", "progress", "progress_text", "result", "failed_reason", "history", "node", "notice",
    "metadata", "bytes_used", "idempotency_key", "created_at", "due_at", "started_at", "ended_at",
}  # fmt: skip
TOKEN = "7000001:AAtest"
OTHER_TOKEN = "7000002:AAother"


def test_a_job_from_its_queueing_to_its_result(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        body = {
            "kind": "download",
            "user": 42,
            "params": {"name": "a", "deep": [{"x": None}]},
            "metadata": {"k": "چای"},
        }
        status, queued = await works.call("POST", "/v1/jobs", json=body)
        assert status == 202
        assert set(queued) == {"id", "state"}
        assert queued["state"] == "waiting"
        job = await works.once(queued["id"], state="active")
        assert set(job) == SHOWN | {"position", "eta_s"}
        assert (job["user"], job["params"], job["metadata"]) == ("42", body["params"], body["metadata"])
        assert (job["priority"], job["attempts"], job["attempts_made"], job["history"]) == (0, 3, 0, [])
        assert job["node"] == works.runtime.store.nodes.node
        assert (job["position"], job["result"], job["ended_at"], job["timeout_ms"]) == (None, None, None, None)
        works.let_go("a")
        job = await works.job(queued["id"], "?wait=200s")
        assert (job["state"], job["result"]) == ("completed", {"name": "a", "attempt": 1})
        assert (job["attempts_made"], job["bytes_used"], job["node"]) == (1, 10, None)
        (line,) = job["history"]
        assert (line["end"], line["run"], line["reason"]) == ("done", 1, None)
        assert job["created_at"] <= job["started_at"] <= job["ended_at"] == line["at"]

    play_works(tmp_path, story)


def test_progress_is_seen_while_a_job_runs(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        job_id = await works.download("a")
        job = await works.once(job_id, progress=0.25)
        assert (job["state"], job["progress_text"]) == ("active", "reading")

    play_works(tmp_path, story)


def test_who_waits_is_told_the_end_or_how_it_stands(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        works.let_go("a")
        status, job = await works.call("POST", "/v1/jobs?wait=200s", json={"kind": "download", "params": {"name": "a"}})
        assert (status, job["state"]) == (200, "completed")
        status, job = await works.call("POST", "/v1/jobs?wait=50ms", json={"kind": "download", "params": {"name": "b"}})
        assert status == 202
        assert job["state"] in ("waiting", "active")
        assert (await works.job(job["id"], "?wait=50ms"))["state"] in ("waiting", "active")
        looking = asyncio.ensure_future(works.job(job["id"], "?wait=200s"))
        works.let_go("b")
        assert (await looking)["state"] == "completed"

    play_works(tmp_path, story)


def test_jobs_that_wait_show_their_place(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        first = await works.download("a")
        await works.once(first, state="active")
        ids = [await works.download(name, user=name) for name in "bcd"]
        urgent = await works.download("e", priority=2)
        assert [(await works.job(one))["position"] for one in [urgent, *ids]] == [1, 2, 3, 4]
        assert (await works.job(ids[0]))["eta_s"] is None  # nothing of the kind was done yet
        works.let_go("a")
        works.let_go("e")
        await works.once(ids[0], state="active")
        assert [(await works.job(one))["position"] for one in ids] == [None, 1, 2]
        assert (await works.job(ids[2]))["eta_s"] > 0

    play_works(tmp_path, story)


def test_a_job_is_cancelled_while_it_waits_while_it_runs_and_not_after(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        runs = await works.download("a")
        await works.once(runs, state="active")
        waits = await works.download("b")
        later = await works.download("c", run_at=time.time() + 86_400)
        for job_id, before in ((waits, "waiting"), (later, "delayed")):
            assert (await works.job(job_id))["state"] == before
            status, job = await works.call("DELETE", f"/v1/jobs/{job_id}")
            assert (status, job["state"], job["is_cancelling"]) == (200, "cancelled", False)
        status, job = await works.call("DELETE", f"/v1/jobs/{runs}")
        assert (status, job["state"], job["is_cancelling"]) == (200, "active", True)
        job = await works.job(runs, "?wait=200s")
        assert (job["state"], job["is_cancelling"], job["result"]) == ("cancelled", False, None)
        assert [line["end"] for line in job["history"]] == ["cancelled"]
        assert (await works.code("DELETE", f"/v1/jobs/{runs}"))[0] == 409

    play_works(tmp_path, story)


def test_a_kind_rests_and_goes_on_and_has_a_rate(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        status, kind = await works.call(
            "PATCH", "/v1/jobs/kinds/download", json={"paused": True, "why": "Their wish.", "rate": "30/m"}
        )
        assert (status, kind["is_paused"], kind["why"], kind["rate"]) == (200, True, "Their wish.", "30/m burst 1")
        assert (kind["by"], kind["concurrency"]) == ("the admin key", 1)
        works.let_go("a")
        job_id = await works.download("a")
        assert (await works.job(job_id, "?wait=300ms"))["state"] == "waiting"
        listed = {one["kind"]: one for one in (await works.get("/v1/jobs/kinds"))["kinds"]}
        assert listed["download"]["counts"]["waiting"] == 1
        assert not listed["refuse"]["is_paused"]
        status, kind = await works.call("PATCH", "/v1/jobs/kinds/download", json={"paused": False})
        assert (kind["is_paused"], kind["why"], kind["since"], kind["rate"]) == (False, None, None, "30/m burst 1")
        assert (await works.job(job_id, "?wait=200s"))["state"] == "completed"
        assert (await works.call("PATCH", "/v1/jobs/kinds/download", json={"rate": None}))[1]["rate"] is None
        for kind_name, body, expected in (
            ("downlaod", {"paused": True}, (404, "unknown_kind")),
            ("download", {}, (422, "nothing_to_change")),
            ("download", {"paused": True, "rate": "fast"}, (422, "bad_rate")),
        ):
            assert await works.code("PATCH", f"/v1/jobs/kinds/{kind_name}", json=body) == expected
        assert not (await works.get("/v1/jobs/kinds"))["kinds"][0]["is_paused"]  # what was refused did nothing

    play_works(tmp_path, story)


def test_what_failed_or_was_cancelled_runs_again_and_nothing_else(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        job_id = await works.queued("refuse")
        job = await works.job(job_id, "?wait=200s")
        assert (job["state"], job["failed_reason"]) == ("failed", "There is no such film.")
        assert [line["end"] for line in job["history"]] == ["hopeless"]
        status, again = await works.call("POST", f"/v1/jobs/{job_id}/retry")
        assert (status, again["id"], again["attempts_made"]) == (202, job_id, 0)
        job = await works.job(job_id, "?wait=200s")
        assert (job["state"], len(job["history"])) == ("failed", 2)
        works.let_go("a")
        done = await works.download("a")
        assert (await works.job(done, "?wait=200s"))["state"] == "completed"
        assert (await works.code("POST", f"/v1/jobs/{done}/retry"))[0] == 409

    play_works(tmp_path, story)


def test_a_key_makes_it_one_job_in_the_header_and_in_the_body(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        works.let_go("a")
        body: dict[str, Any] = {"kind": "download", "params": {"name": "a"}}
        header = {"headers": {"Idempotency-Key": "k1"}}
        _, first = await works.call("POST", "/v1/jobs", json=body, **header)
        assert (await works.job(first["id"], "?wait=200s"))["idempotency_key"] == "k1"
        status, again = await works.call("POST", "/v1/jobs", json={**body, "idempotency_key": "k1"})
        assert (status, again) == (202, {"id": first["id"], "state": "completed"})
        status, again = await works.call("POST", "/v1/jobs?wait=200s", json=body, **header)
        assert (status, again["id"], again["state"]) == (200, first["id"], "completed")
        other = {**body, "user": "7"}
        assert (await works.code("POST", "/v1/jobs", json=other, **header))[0] == 409
        # The key of the body wins, and a key is its kind's own.
        _, second = await works.call("POST", "/v1/jobs", json={**body, "idempotency_key": "k2"}, **header)
        _, third = await works.call("POST", "/v1/jobs", json={"kind": "refuse"}, **header)
        assert len({first["id"], second["id"], third["id"]}) == 3
        ids = (await works.post("/v1/jobs/batch", {"jobs": [{**body, "idempotency_key": "k2"}, body]}))["ids"]
        assert ids[0] == second["id"]
        assert ids[1] not in (first["id"], second["id"])

    play_works(tmp_path, story)


def test_a_day_allows_so_much_and_says_how_much_was_used(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        path = "/v1/jobs/used?kind=refuse&user=ann"
        assert await works.get(path) == {
            "kind": "refuse", "user": "ann", "jobs": 0, "bytes": 0, "jobs_max": JOBS_A_DAY, "bytes_max": None,
        }  # fmt: skip
        for _ in range(JOBS_A_DAY - 1):
            await works.queued("refuse", user="ann")
        two = {"jobs": [{"kind": "refuse", "user": "ann"}] * 2}
        assert await works.code("POST", "/v1/jobs/batch", json=two) == (409, "quota")
        assert (await works.get(path))["jobs"] == JOBS_A_DAY - 1  # all of them or none
        await works.queued("refuse", user="ann")
        assert await works.code("POST", "/v1/jobs", json={"kind": "refuse", "user": "ann"}) == (409, "quota")
        await works.queued("refuse", user="bob")
        await works.queued("refuse")
        assert (await works.get("/v1/jobs/used?kind=refuse"))["jobs"] == 1
        unknown = await works.get("/v1/jobs/used?kind=elsewhere&user=ann")
        assert (unknown["jobs"], unknown["jobs_max"]) == (0, None)

    play_works(tmp_path, story)


def test_lists_are_filtered_and_come_in_pages(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        jobs = [{"kind": "elsewhere", "user": "ann" if number % 2 else ""} for number in range(7)]
        ids = (await works.post("/v1/jobs/batch", {"jobs": jobs}))["ids"]
        refused = await works.queued("refuse", user="ann")
        await works.job(refused, "?wait=200s")
        whole = await works.get("/v1/jobs")
        assert [job["id"] for job in whole["jobs"]] == [refused, *reversed(ids)]
        assert whole["next"] is None
        assert all(set(job) == SHOWN for job in whole["jobs"])
        seen, cursor = [], ""
        while cursor is not None:
            page = await works.get(f"/v1/jobs?limit=3&kind=elsewhere{cursor and f'&cursor={cursor}'}")
            seen += [job["id"] for job in page["jobs"]]
            cursor = page["next"]
        assert seen == list(reversed(ids))
        for query, count in (
            ("user=ann", 4), ("user=", 4), ("user=ann&kind=elsewhere", 3), ("state=failed", 1), ("state=waiting", 7),
            ("kind=nothing", 0), ("since=2020-01-01T00:00:00Z", 8), ("since=4000000000", 0), ("user=%27%20OR%201", 0),
        ):  # fmt: skip
            assert len((await works.get(f"/v1/jobs?{query}"))["jobs"]) == count, query
        kinds = (await works.get("/v1/jobs/stats"))["kinds"]
        assert list(kinds) == ["download", "elsewhere", "refuse"]
        assert kinds["elsewhere"] == {
            "waiting": 7, "delayed": 0, "active": 0, "completed": 0, "failed": 0, "cancelled": 0,
        }  # fmt: skip
        assert kinds["refuse"]["failed"] == 1

    play_works(tmp_path, story)


def test_terms_are_kept_as_they_were_given(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        await works.post("/v1/bots", {"token": TOKEN})
        notice = {"chat_id": "-100123", "bot_id": "7000001", "thread_id": "5", "language": "fa", "label": "A  film"}
        job_id = await works.queued(
            "elsewhere", priority=-1, attempts=7, backoff_ms=0, backoff="fixed", timeout_ms=1, run_at=1.5,
            notice=notice,
        )  # fmt: skip
        job = await works.job(job_id)
        assert (job["priority"], job["attempts"], job["backoff_ms"], job["backoff"]) == (-1, 7, 0, "fixed")
        assert (job["timeout_ms"], job["state"], job["position"]) == (1, "waiting", 1)  # its time was long ago
        told = {"reply_to": None, "has_progress": True, "on_done": "edit", "label": "A film"}
        assert job["notice"] == {**notice, **told}
        plain = await works.job(await works.queued("elsewhere", notice={"chat_id": 5}))
        assert (plain["notice"]["chat_id"], plain["notice"]["bot_id"]) == ("5", None)
        await works.post("/v1/bots", {"token": OTHER_TOKEN})
        for given, answer in (
            ({"chat_id": 5}, (422, "which_bot")), ({"chat_id": 5, "bot_id": 42}, (404, "unknown_bot")),
            ({"chat_id": 5, "bot_id": "x"}, (422, "bad_bot_id")), ({}, (422, "bad_request")),
            ({"chat_id": 5, "bot_id": 7000001, "colour": "red"}, (422, "bad_request")),
            ({"chat_id": 5, "bot_id": 7000001, "thread_id": -1}, (422, "bad_notice")),
            ({"chat_id": "", "bot_id": 7000001}, (422, "missing_chat_id")),
        ):  # fmt: skip
            assert await works.code("POST", "/v1/jobs", json={"kind": "x", "notice": given}) == answer, given

    play_works(tmp_path, story)


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "bad_request"), ({"kind": 5}, "bad_request"), ({"kind": ""}, "bad_kind"), ({"kind": "a b"}, "bad_kind"),
    ({"kind": "x" * 65}, "bad_kind"), ({"kind": "x\n"}, "bad_kind"), ({"kind": "فیلم"}, "bad_kind"),
    ({"params": []}, "bad_request"), ({"params": None}, "bad_request"), ({"metadata": "x"}, "bad_request"),
    ({"params": {"x": "y" * PARAMS_BYTES_MAX}}, "params_too_large"),
    ({"metadata": {"x": "y" * METADATA_BYTES_MAX}}, "metadata_too_large"),
    ({"user": "x" * 129}, "bad_user"), ({"user": "a\u0000b"}, "bad_user"), ({"user": None}, "bad_request"),
    ({"user": 10**200}, "bad_user"), ({"user": True}, "bad_request"),
    ({"priority": 3}, "bad_priority"), ({"priority": "1"}, "bad_request"), ({"priority": 10**30}, "bad_priority"),
    ({"attempts": 0}, "bad_attempts"), ({"attempts": 101}, "bad_attempts"), ({"attempts": 1.5}, "bad_request"),
    ({"backoff_ms": -1}, "bad_backoff_ms"), ({"backoff_ms": 10**400}, "bad_backoff_ms"), ({"backoff": "x"}, "bad_request"),
    ({"timeout_ms": 0}, "bad_timeout_ms"), ({"timeout_ms": 10**400}, "bad_timeout_ms"),
    ({"run_at": "tomorrow"}, "bad_time"), ({"run_at": -1}, "bad_time"), ({"run_at": 9e10}, "bad_run_at"),
    ({"idempotency_key": "x" * 256}, "bad_idempotency_key"), ({"idempotency_key": 5}, "bad_request"),
    ({"notice": 5}, "bad_request"), ({"colour": "red"}, "bad_request"),
)  # fmt: skip


def test_what_cannot_be_right_is_refused_and_queues_nothing(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        for given, code in BAD:
            body = {"kind": "elsewhere", **given} if given else {}
            assert await works.code("POST", "/v1/jobs", json=body) == (422, code), str(given)[:80]
            batch = {"jobs": [{"kind": "elsewhere"}, body]}
            assert await works.code("POST", "/v1/jobs/batch", json=batch) == (422, code), str(given)[:80]
        for body in (b"", b"{", b"[]", b'"x"', b"\xff", b'{"kind": "x", "params": ' + b'{"a":' * 5000):
            assert (await works.code("POST", "/v1/jobs", data=body))[0] == 422, body[:20]
        many = {"jobs": [{"kind": "elsewhere"}] * (QUEUED_MAX + 1)}
        assert await works.code("POST", "/v1/jobs/batch", json=many) == (422, "bad_batch")
        assert await works.code("POST", "/v1/jobs/batch", json={"jobs": []}) == (422, "bad_batch")
        assert await works.code("POST", "/v1/jobs?wait=soon", json={"kind": "elsewhere"}) == (422, "bad_wait")
        big = b'{"kind": "' + b"x" * works.runtime.config.body_max + b'"}'
        assert await works.code("POST", "/v1/jobs", data=io.BytesIO(big)) == (413, "body_too_large")
        assert (await works.get("/v1/jobs"))["jobs"] == []

    play_works(tmp_path, story)


@pytest.mark.parametrize(
    ("verb", "path", "answer"),
    [
        ("GET", "/v1/jobs/999", (404, "unknown_job")),
        ("DELETE", "/v1/jobs/999", (404, "unknown_job")),
        ("POST", "/v1/jobs/999/retry", (404, "unknown_job")),
        ("GET", "/v1/jobs/x", (422, "bad_job_id")),
        ("GET", f"/v1/jobs/{'9' * 19}", (422, "bad_job_id")),
        ("GET", "/v1/jobs/-1", (422, "bad_job_id")),
        ("DELETE", "/v1/jobs/1.5", (422, "bad_job_id")),
        ("GET", "/v1/jobs/batch", (405, "method_not_allowed")),
        ("DELETE", "/v1/jobs/stats", (405, "method_not_allowed")),
        ("GET", "/v1/jobs?limit=0", (422, "bad_limit")),
        ("GET", "/v1/jobs?limit=1001", (422, "bad_limit")),
        ("GET", "/v1/jobs?cursor=x", (422, "bad_cursor")),
        ("GET", "/v1/jobs?state=done", (422, "bad_state")),
        ("GET", "/v1/jobs?since=nan", (422, "bad_time")),
        ("GET", "/v1/jobs?kind=", (422, "bad_kind")),
        ("GET", "/v1/jobs?kind=a%00", (422, "bad_kind")),
        ("GET", "/v1/jobs?user=%00", (422, "bad_user")),
        ("GET", f"/v1/jobs?user={'x' * 129}", (422, "bad_user")),
        ("GET", "/v1/jobs?usr=ann", (422, "unknown_filter")),
        ("GET", "/v1/jobs/used", (422, "bad_kind")),
        ("GET", "/v1/jobs/used?kind=a&kid=b", (422, "unknown_filter")),
    ],
)
def test_questions_that_cannot_be_answered_say_why(
    tmp_path: Path, verb: str, path: str, answer: tuple[int, str]
) -> None:
    async def story(works: Works) -> None:
        assert await works.code(verb, path) == answer

    play_works(tmp_path, story, does_jobs=False)


def test_hosts_are_those_that_the_node_that_answers_has_met(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        node = works.runtime.store.nodes.node
        assert await works.get("/v1/hosts") == {"node": node, "hosts": []}
        for user in "abcdef":
            await works.queued("refuse", user=user, params={"host": "films.example"}, attempts=1)

        async def shut() -> dict[str, Any] | None:
            hosts = (await works.get("/v1/hosts"))["hosts"]
            return hosts[0] if hosts and hosts[0]["state"] != "closed" else None

        host = await until(shut)
        assert set(host) == {"host", "state", "why", "since", "retry_s"}
        assert (host["host"], host["why"]) == ("films.example", "nobody answers")
        assert host["since"].startswith("20")
        assert host["retry_s"] >= 0

    play_works(tmp_path, story)


def test_keys_open_jobs_by_their_scope_and_not_if_they_are_for_some_bots(tmp_path: Path) -> None:
    async def story(works: Works) -> None:
        await works.post("/v1/bots", {"token": TOKEN})
        job_id = await works.queued("elsewhere")
        asked = (
            ("GET", "/v1/jobs", "read"), ("GET", f"/v1/jobs/{job_id}", "read"), ("GET", "/v1/jobs/stats", "read"),
            ("GET", "/v1/jobs/used?kind=a", "read"), ("GET", "/v1/hosts", "read"), ("POST", "/v1/jobs", "send"),
            ("POST", "/v1/jobs/batch", "send"), ("DELETE", f"/v1/jobs/{job_id}", "send"),
            ("POST", f"/v1/jobs/{job_id}/retry", "send"),
        )  # fmt: skip
        bodies = {"/v1/jobs": {"kind": "elsewhere"}, "/v1/jobs/batch": {"jobs": [{"kind": "elsewhere"}]}}
        keys = {}
        for scope in ("read", "send"):
            for bots in (None, ["7000001"]):
                made = await works.post("/v1/keys", {"name": "k", "scopes": [scope], "bot_ids": bots})
                keys[scope, bots is None] = made["key"]
        for verb, path, scope in asked:
            more = {"json": bodies[path]} if verb == "POST" and path in bodies else {}
            assert await works.code(verb, path, key=None, **more) == (401, "no_key")
            assert await works.code(verb, path, key=keys["send", False], **more) == (403, "wrong_bot")
            if scope == "send":
                assert await works.code(verb, path, key=keys["read", True], **more) == (403, "wrong_scope")
        assert (await works.job(job_id))["state"] == "waiting"
        for verb, path, scope in asked:
            more = {"json": bodies[path]} if verb == "POST" and path in bodies else {}
            status, body = await works.call(verb, path, key=keys[scope, True], **more)
            assert status in (200, 202), body

    play_works(tmp_path, story)
