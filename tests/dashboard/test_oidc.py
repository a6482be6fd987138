"""Signing in by OpenID Connect, at a real provider that signs real tokens, and in each way in which it could be a lie."""

import asyncio
import secrets
import time
import urllib.parse
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import expect

from peik.admin.model import Role
from peik.admin.oidc import AT_ONCE_MAX, BEGUN_MS, WAITING_MAX, Identity, Oidc, OidcFailed, check_oidc, oidc_of
from peik.admin.people import People
from peik.admin.sign_ins import OIDC_AGE_MS, SignIns
from peik.core.address import AddressReach
from peik.errors import StartError, Unavailable
from peik.inbox.store import PushAnswer
from peik.monitoring import doctor
from peik.monitoring.checks import of_oidc
from peik.monitoring.checks_scene import DoctorWanted, scene_of
from peik.settings.config import Config, load
from peik.web.dashboard.render import LANGUAGES
from tests import wanting
from tests.clients import node
from tests.dashboard.browser import browser, page_of
from tests.dashboard.documents import opened
from tests.dashboard.provider import CLIENT, SECRET, Provider, Signer, provider, settings_of
from tests.dashboard.test_layout import GRAVE, VIOLATIONS
from tests.dashboard.visiting import Answer, House, Visit, house
from tests.storage.places import ManualClock

wanting.imported("joserfc", "pip install 'peik[oidc]'")

BACK = "/admin/sign-in/oidc/back"
Story = Callable[[House, Provider], Coroutine[Any, Any, None]]


def visit(folder: Path, story: Story, **settings: str) -> None:
    async def whole() -> None:
        async with provider() as one, house(folder, **settings_of(one, **settings)) as home:
            await story(home, one)

    asyncio.run(whole())


async def sign_in(visitor: Visit, at: str = "/admin") -> Answer:
    """As people do: the page that was asked for leads to the sign-in, its button to the provider, and that back."""
    page = await visitor.get(at)
    assert page.url.startswith("/admin/sign-in")
    (link,) = [url for url in page.links if url.startswith("/admin/sign-in/oidc")]
    return await visitor.get(link)


async def begun(visitor: Visit) -> str:
    """Begin, be let in at the provider, and stop before the way back; its address."""
    there = await visitor.get("/admin/sign-in/oidc", follow=False)
    assert there.status == 303, there.text
    return (await visitor.get(there.headers["location"], follow=False)).headers["location"]


async def audited(home: House) -> list[tuple[str, str, str, str]]:
    lines = (await home.peik.audit.find(action="sign_in")).lines
    return [(line.who, line.target, str(line.outcome), line.detail) for line in lines]


# ---- as it should be ----


def test_a_button_leads_to_the_provider_and_back_to_the_page_that_was_asked_for(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with home.stranger() as visitor:
            page = await visitor.get("/admin/sign-in")
            assert "Sign in with Work" in page.text
            page = await sign_in(visitor, "/admin/letters?state=failed")
            assert (page.status, page.url) == (200, "/admin/letters?state=failed")
            assert "oidc mina@work.example" in page.text
            assert (await visitor.get("/admin/people")).status == 403  # an operator
            (line,) = await audited(home)
            assert line == ("oidc mina@work.example", "oidc", "done", f"operator, {there.url} 0b1c")
            left = await visitor.submit(page, "/admin/sign-out")
            assert left.url == "/admin/sign-in?out=oidc"
            assert "At Work you still are signed in" in left.text
            (end,) = [url for url in left.links if url.startswith(there.url)]
            assert end.startswith(f"{there.url}/end?client_id={CLIENT}&post_logout_redirect_uri=")
            assert (await visitor.get("/admin")).url == "/admin/sign-in"

    visit(tmp_path, story)


def test_keys_and_people_are_let_in_beside_it(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        await home.dashboard.board.people.add("mina", Role.VIEWER, "correct horse battery")
        async with home.stranger() as visitor:
            assert (await visitor.sign_in()).url == "/admin"
        async with home.stranger() as visitor:
            page = await visitor.get("/admin/sign-in")
            named = next(form for form in page.forms if "password" in form.fields)
            fields = {**named.fields, "name": "mina", "password": "correct horse battery"}
            assert (await visitor.post("/admin/sign-in", **fields)).url == "/admin"

    visit(tmp_path, story)


def test_without_settings_there_is_no_button_and_no_way(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as home, home.stranger() as visitor:
            page = await visitor.get("/admin/sign-in")
            assert not any("oidc" in url for url in page.links)
            assert (await visitor.get("/admin/sign-in/oidc")).url.startswith("/admin/sign-in?next=")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("person", "settings", "role"),
    [
        ({"groups": ["peik-operators", "peik-admins"]}, {}, "admin"),  # of several, the highest
        ({"groups": "peik-admins"}, {}, "admin"),
        ({"groups": ["others"]}, {}, None),
        ({"groups": None}, {}, None),
        ({"groups": [{"name": "peik-admins"}, 7]}, {}, None),
        ({"groups": ["others"]}, {"oidc_roles": "peik-admins=admin, *=viewer"}, "viewer"),
        (
            {"realm_access": {"roles": ["boss"]}},
            {"oidc_claim": "realm_access.roles", "oidc_roles": "boss=admin"},
            "admin",
        ),
        (
            {"https://work.example/roles": ["boss"]},
            {"oidc_claim": "https://work.example/roles", "oidc_roles": "boss=admin"},
            "admin",
        ),
        ({"roles": {"boss": {"1": "work"}}}, {"oidc_claim": "roles", "oidc_roles": "boss=admin"}, "admin"),
        ({}, {"oidc_claim": "email", "oidc_roles": "mina@work.example=admin"}, "admin"),
        ({"email_verified": False}, {"oidc_claim": "email", "oidc_roles": "mina@work.example=admin"}, None),
        ({"email_verified": None}, {"oidc_claim": "email", "oidc_roles": "mina@work.example=admin"}, None),
        (
            {"groups": ["CN=Ops,OU=All,DC=work"]},
            {"oidc_roles": "CN=Ops,OU=All,DC=work=operator; x=admin"},
            "operator",
        ),
    ],
)
def test_roles_come_from_the_claim(
    person: dict[str, object], settings: dict[str, str], role: str | None, tmp_path: Path
) -> None:
    async def story(home: House, there: Provider) -> None:
        there.person |= person
        async with home.stranger() as visitor:
            page = await sign_in(visitor)
            ((_, _, outcome, detail),) = await audited(home)
            if role is None:
                assert (page.status, outcome) == (403, "refused")
                assert "you have no role here" in page.text
                assert (await visitor.get("/admin")).url == "/admin/sign-in"
            else:
                assert (page.status, outcome) == (200, "done")
                assert detail.startswith(role)

    visit(tmp_path, story, **settings)


def test_what_the_id_token_does_not_say_is_asked_of_userinfo_about_the_same_person_only(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        there.person["groups"] = None
        there.userinfo = {"groups": ["peik-admins"]}
        async with home.stranger() as visitor:
            assert (await sign_in(visitor)).url == "/admin"
        there.userinfo["sub"] = "somebody else"
        async with home.stranger() as visitor:
            assert (await sign_in(visitor)).status == 401

    visit(tmp_path, story)


def test_a_provider_that_wants_the_secret_in_the_form_gets_it_there(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        there.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        async with home.stranger() as visitor:
            assert (await sign_in(visitor)).url == "/admin"

    visit(tmp_path, story)


def test_keys_of_elliptic_curves_and_tokens_without_a_name_of_their_key_are_read(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        there.signers = [Signer("rsa"), Signer("curve", "ES256")]
        there.head = {"kid": None}
        async with home.stranger() as visitor:
            assert (await sign_in(visitor)).url == "/admin"

    visit(tmp_path, story)


def test_a_key_that_was_rotated_is_looked_for_once_and_kept_keys_are_not_asked_for_again(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        for expected in (1, 1, 2, 2):
            if expected == 2:
                there.signers = [there.signers[0], Signer("new")] if len(there.signers) == 1 else there.signers
            async with home.stranger() as visitor:
                assert (await sign_in(visitor)).url == "/admin"
            assert there.asked.count("/keys") == expected
        assert there.asked.count("/.well-known/openid-configuration") == 1

    visit(tmp_path, story)


def test_clocks_may_differ_by_a_minute(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        for away in (-50, 50):
            now = int(time.time()) + away
            there.lies = {"iat": now, "nbf": now, "exp": now + 5 if away > 0 else now + 1}
            async with home.stranger() as visitor:
                assert (await sign_in(visitor)).url == "/admin", away

    visit(tmp_path, story)


# ---- what must not be believed ----


def lie(**claims: object) -> Callable[[Provider], None]:
    return lambda there: there.lies.update(claims)


def now(away_s: int) -> int:
    return int(time.time()) + away_s


LIES: dict[str, Callable[[Provider], Any]] = {
    "another nonce": lie(nonce="another"),
    "no nonce": lie(nonce=None),
    "another audience": lie(aud="another-client"),
    "no audience": lie(aud=None),
    "several audiences, and it is not said for whom": lie(aud=[CLIENT, "another-client"]),
    "several audiences, for another": lie(aud=[CLIENT, "another-client"], azp="another-client"),
    "for another client": lie(azp="another-client"),
    "another issuer": lie(iss="https://evil.example"),
    "no issuer": lie(iss=None),
    "expired": lambda there: there.lies.update(exp=now(-90)),
    "without an end": lie(exp=None),
    "an end that is no number": lie(exp="tomorrow"),
    "an end that is not a number": lie(exp=float("nan")),
    "issued long ago": lambda there: there.lies.update(iat=now(-3600)),
    "issued in the future": lambda there: there.lies.update(iat=now(600)),
    "not valid yet": lambda there: there.lies.update(nbf=now(600)),
    "about nobody": lie(sub=None),
    "about an empty name": lie(sub=""),
    "about a very long name": lie(sub="a" * 300),
    "unsigned": lambda there: setattr(there, "unsigned", True),
    "signed with what all know": lambda there: setattr(there, "signed_with_what_all_know", True),
    "signed with a key that is not shown": lambda there: there.hidden.append(Signer("hidden")),
    "signed with another key of the same name": lambda there: there.hidden.append(Signer("one")),
    "a key's name that is another kind": lambda there: there.head.update(kid="three"),
    "what must be understood and is not": lambda there: there.head.update(crit=["exp2"], exp2=1),
    "an answer of another issuer": lambda there: there.answers.update(iss="https://evil.example"),
    "an answer that does not say whose it is": lambda there: there.metadata.update(
        authorization_response_iss_parameter_supported=True
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_signs_nobody_in(name: str, tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with home.stranger() as visitor:
            LIES[name](there)
            page = await sign_in(visitor)
            assert page.status == 401, page.text
            assert "cannot be trusted" in page.text
            assert not [cookie for cookie in page.cookies if cookie.startswith("peik_session=")]
            assert (await visitor.get("/admin")).url == "/admin/sign-in"
            ((who, target, outcome, detail),) = await audited(home)
            assert (who, target, outcome) == ("?", "oidc", "refused")
            assert detail.startswith("oidc_not_believed: ")
            assert SECRET not in detail

    visit(tmp_path, story)


def test_an_answer_is_taken_only_by_the_browser_that_began_it(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with home.stranger() as attacker, home.stranger() as victim:
            back = await begun(attacker)
            for page in (
                await victim.get(back),  # it began nothing
                (await begun(victim), await victim.get(back))[1],  # it began one of its own
                await victim.get(back.replace("state=", "state=x")),
                await victim.get(BACK),
            ):
                assert page.status == 401
                assert "not begun in this browser" in page.text
            assert (await victim.get("/admin")).url == "/admin/sign-in"
            assert there.asked.count("/token") == 0  # nobody made us ask
            assert (await attacker.get(back)).url == "/admin"

    visit(tmp_path, story)


def test_an_answer_is_good_once_even_if_the_provider_takes_a_code_twice(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        there.codes_are_good_for_ever = True
        async with home.stranger() as visitor:
            there_url = await visitor.get("/admin/sign-in/oidc", follow=False)
            kept = next(one.partition(";")[0] for one in there_url.cookies if one.startswith("peik_oidc="))
            back = (await visitor.get(there_url.headers["location"], follow=False)).headers["location"]
            assert (await visitor.get(back)).url == "/admin"
        async with home.stranger() as thief:
            page = await thief.get(back, Cookie=kept)
            assert page.status == 401
            assert "used already" in page.text
            assert (await audited(home))[0][3] == "oidc_not_begun: it was used already"

    visit(tmp_path, story)


def test_an_answer_that_says_something_twice_is_refused(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with home.stranger() as visitor:
            back = await begun(visitor)
            assert (await visitor.get(back + "&code=another")).status == 401

    visit(tmp_path, story)


def test_who_is_refused_there_is_told_so(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        there.refuses = True
        async with home.stranger() as visitor:
            page = await sign_in(visitor)
            assert page.status == 401
            assert "did not let you in" in page.text
            assert (await audited(home))[0][3] == "oidc_broken_off: the provider said access_denied"

    visit(tmp_path, story)


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"issuer": "https://evil.example"}, "calls itself https://evil.example"),
        ({"issuer": "http://127.0.0.1:1/"}, "calls itself"),
        ({"token_endpoint": "http://sso.example/token"}, "not https"),
        ({"token_endpoint": "file:///etc/passwd"}, "not https"),
        ({"jwks_uri": "https://a@b.example/keys"}, "not https"),
        ({"jwks_uri": "https://b.example/keys\r\nX: y"}, "not https"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "not https"),
        ({"token_endpoint": None}, "not what OpenID Connect asks for"),
    ],
)
def test_a_provider_that_sends_us_elsewhere_is_not_followed(
    metadata: dict[str, object], why: str, tmp_path: Path
) -> None:
    async def story(home: House, there: Provider) -> None:
        there.metadata |= metadata
        async with home.stranger() as visitor:
            page = await sign_in(visitor)
            assert page.status == 503
            assert "does not answer as it should" in page.text
            assert why in (await audited(home))[0][3]
            there.metadata.clear()  # mended: it is not remembered
            assert (await sign_in(visitor)).url == "/admin"

    visit(tmp_path, story)


def test_other_hosts_that_it_names_are_reached_on_the_open_internet_only(tmp_path: Path) -> None:
    """A provider inside our network may name itself, and must not send us to routers and metadata services."""
    asked: list[tuple[str, AddressReach]] = []

    async def ask(
        verb: str, url: str, headers: object, body: bytes, *, timeout_s: float, reach: AddressReach
    ) -> PushAnswer:
        asked.append((url, reach))
        said = {
            "issuer": "https://sso.example",
            "authorization_endpoint": "https://sso.example/a",
            "token_endpoint": "https://10.0.0.1/token",
            "jwks_uri": "https://169.254.169.254/keys",
        }
        return PushAnswer(status=200, body=msgspec.json.encode(said))

    async def story() -> None:
        oidc = await made(tmp_path, ask)
        word = (await oidc.begin(back_url="https://peik.example/b", next_url="/admin")).word
        state = urllib.parse.parse_qs((await oidc.begin(back_url="x", next_url="/admin")).url)["state"][0]
        with pytest.raises(OidcFailed):  # another word's state
            await oidc.finish(word, {"state": state, "code": "1"}, back_url="https://peik.example/b")
        begun = await oidc.begin(back_url="https://peik.example/b", next_url="/admin")
        state = urllib.parse.parse_qs(begun.url)["state"][0]
        with pytest.raises(OidcFailed):
            await oidc.finish(begun.word, {"state": state, "code": "1"}, back_url="https://peik.example/b")

    asyncio.run(story())
    assert asked == [
        ("https://sso.example/.well-known/openid-configuration", AddressReach.INSIDE),
        ("https://10.0.0.1/token", AddressReach.PUBLIC),
    ]


async def made(folder: Path, ask: Any, clock: ManualClock | None = None) -> Oidc:
    clock = clock or ManualClock()
    async with opened(folder, clock) as store:
        oidc = oidc_of(settings(folder), store.documents, clock, ask)
    assert oidc is not None
    return oidc


def settings(folder: Path, **more: str) -> Config:
    given = {"issuer": "https://sso.example", "client_id": CLIENT, "roles": "*=viewer", **more}
    return load(environment={f"PEIK_OIDC_{name.upper()}": value for name, value in given.items()}, folder=folder)


def test_ten_minutes_are_enough_at_the_provider(tmp_path: Path) -> None:
    async def ask(*_: object, **__: object) -> PushAnswer:
        said = {
            f"{name}": f"https://sso.example/{name}"
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
        }
        return PushAnswer(status=200, body=msgspec.json.encode({"issuer": "https://sso.example", **said}))

    async def story() -> None:
        clock = ManualClock()
        oidc = await made(tmp_path, ask, clock)
        begun = await oidc.begin(back_url="https://peik.example/b", next_url="/admin")
        state = urllib.parse.parse_qs(begun.url)["state"][0]
        clock.pass_ms(BEGUN_MS + 1)
        with pytest.raises(OidcFailed) as failed:
            await oidc.finish(begun.word, {"state": state, "code": "1"}, back_url="https://peik.example/b")
        assert (failed.value.code, failed.value.why) == ("oidc_not_begun", "it was begun too long ago")

    asyncio.run(story())


def test_codes_that_are_none_are_counted_with_wrong_keys(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with home.stranger() as visitor:
            statuses = []
            for _ in range(4):
                back = await begun(visitor)
                there._codes.clear()
                statuses.append((await visitor.get(back)).status)
            assert statuses == [401, 401, 401, 429]
            assert there.asked.count("/token") == 3

    visit(tmp_path, story, rate_wrong="3/h burst 3")


# ---- how long it lasts ----


def test_a_sign_in_lasts_half_a_day_and_no_longer_than_the_settings_that_gave_it(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:

            def with_stamp(stamp: str | None) -> SignIns:
                return SignIns(
                    store.documents,
                    People(store.documents, clock),
                    clock,
                    find_key=lambda _: None,
                    admin_key=secrets.token_urlsafe(),
                    oidc_stamp=stamp,
                )

            who = Identity(subject="https://sso.example 1", name="oidc mina", role=Role.OPERATOR, next_url="/admin")
            token = await with_stamp("one").sign_in_oidc(who, address="")
            found = await with_stamp("one").find(token)
            assert found is not None
            assert (found.name, found.role) == ("oidc mina", Role.OPERATOR)
            assert await with_stamp("two").find(token) is None  # other roles, or another provider
            assert await with_stamp(None).find(token) is None
            other = await with_stamp("one").sign_in_oidc(who, address="")
            await with_stamp("one").sign_out_everywhere(other)
            assert await with_stamp("one").find(token) is None
            token = await with_stamp("one").sign_in_oidc(who, address="")
            clock.pass_ms(OIDC_AGE_MS // 2)
            assert await with_stamp("one").find(token) is not None
            clock.pass_ms(OIDC_AGE_MS // 2 + 1)
            assert await with_stamp("one").find(token) is None

    asyncio.run(story())


def test_a_form_whose_session_is_over_waits_for_the_sign_in_in_another_tab(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with home.stranger() as visitor:
            await sign_in(visitor)
            page = await visitor.get("/admin/letters/new")
            session = home.dashboard.board.sign_ins
            await session._take_away(lambda _: True)
            form = page.form("/admin/letters/new") if page.has_form("/admin/letters/new") else page.forms[-1]
            filled = {**form.fields, "text": "typed for minutes"}
            waiting = await visitor.post(form.action, **filled)
            assert "It opens in another tab" in waiting.text
            (link,) = [url for url in waiting.links if url.startswith("/admin/sign-in/oidc")]
            go_on = next(form for form in waiting.forms if "signed_in" in form.fields)
            early = await visitor.post("/admin/sign-in", **go_on.fields)
            assert early.status == 401
            assert "You are not signed in yet" in early.text
            await visitor.get(link)  # the other tab
            back = await visitor.post(
                "/admin/sign-in", **next(one for one in early.forms if "signed_in" in one.fields).fields
            )
            assert "typed for minutes" in back.body
            assert "You are signed in again" in back.text

    visit(tmp_path, story)


def test_people_lists_who_is_signed_in_so_and_an_admin_signs_somebody_out(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with home.visitor() as admin, home.stranger() as one, home.stranger() as other, home.stranger() as reza:
            page = await admin.get("/admin/people")
            assert "Nobody is signed in this way now." in page.text
            for visitor in (one, other):
                await sign_in(visitor)
            there.person = {"sub": "7f", "preferred_username": "reza", "groups": ["peik-admins"]}
            await sign_in(reza)
            page = await admin.get("/admin/people")
            assert "A sign-in lasts 12 hours" in page.text
            for words in ("oidc mina@work.example", "operator", "0b1c", "oidc reza", "admin: everything", "7f"):
                assert words in page.text, words
            assert page.text.index("oidc reza") < page.text.index("oidc mina")  # the last one first
            mina, _ = (await home.dashboard.board.sign_ins.by_oidc())[::-1]
            assert (mina.browsers, mina.ends_at_ms - mina.since_ms) == (2, OIDC_AGE_MS)
            out = "/admin/people/~oidc/sign-out"
            form = next(form for form in page.forms if form.fields.get("subject") == "0b1c")
            page = await admin.post(out, **form.fields)
            assert "oidc mina@work.example is signed out everywhere." in page.text
            assert "0b1c" not in page.text
            for visitor in (one, other):
                assert (await visitor.get("/admin")).url == "/admin/sign-in"
            assert (await reza.get("/admin/people")).status == 200
            again = await admin.post(out, **form.fields)  # pressed in a tab of before
            assert "Nobody is signed in that way" in again.text
            done = (await home.peik.audit.find(action="people.sign_out")).lines[-1]
            assert (done.target, done.detail, str(done.outcome)) == ("oidc mina@work.example", "0b1c", "done")
            async with home.visitor("send") as operator:
                assert (await operator.post(out, subject="7f")).status == 403
        async with home.stranger() as key:
            await key.sign_in()
            assert "7f" in (await key.get("/admin/people")).text

    visit(tmp_path, story)


def test_without_a_provider_people_says_nothing_of_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as home, home.visitor() as admin:
            assert "OpenID" not in (await admin.get("/admin/people")).text
            assert (await admin.post("/admin/people/~oidc/sign-out", subject="7f")).status in (403, 404)

    asyncio.run(story())


def test_a_crowd_at_the_provider_is_told_to_come_again(tmp_path: Path) -> None:
    """And who has waited long enough is let in afterwards."""

    async def story() -> None:
        arrived, may_answer = asyncio.Event(), asyncio.Event()

        async def ask(*_: object, **__: object) -> PushAnswer:
            arrived.set()
            await may_answer.wait()
            return PushAnswer(why="connect_timeout")

        oidc = await made(tmp_path, ask)
        crowd = [
            asyncio.create_task(oidc.begin(back_url="x", next_url="/admin")) for _ in range(AT_ONCE_MAX + WAITING_MAX)
        ]
        await arrived.wait()
        with pytest.raises(Unavailable) as refused:
            await oidc.begin(back_url="x", next_url="/admin")
        assert refused.value.code == "too_many_sign_ins"
        may_answer.set()
        ends = await asyncio.gather(*crowd, return_exceptions=True)
        assert {type(end) for end in ends} == {OidcFailed}
        with pytest.raises(OidcFailed):  # and the crowd leaves nothing behind
            await oidc.begin(back_url="x", next_url="/admin")

    asyncio.run(story())


# ---- in a real browser ----


@pytest.mark.gate  # a browser
@pytest.mark.parametrize("is_scripted", [True, False])
def test_a_browser_goes_to_another_site_and_comes_back_signed_in(is_scripted: bool, tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with browser() as opened_one, page_of(opened_one, is_scripted=is_scripted, is_refused=True) as page:
            there.refuses = True  # he presses "cancel" there at first
            await page.goto(f"{home.url}/admin/bots?lang=en")
            await page.get_by_role("link", name="Sign in with Work").click()
            await expect(page.get_by_text("did not let you in")).to_be_visible()
            there.refuses = False
            await page.goto(f"{home.url}/admin/bots")
            await page.get_by_role("link", name="Sign in with Work").click()
            await page.wait_for_url("**/admin/bots")
            await expect(page.get_by_text("oidc mina@work.example")).to_be_visible()
            await page.go_back()  # and forward again, over the way back from the provider
            await page.go_forward()
            await expect(page.get_by_text("oidc mina@work.example")).to_be_visible()
            await page.get_by_text("oidc mina@work.example").click()
            await page.get_by_role("button", name="Sign out", exact=True).click()
            await expect(page.get_by_text("At Work you still are signed in")).to_be_visible()
            await page.get_by_role("link", name="Sign out there, too").click()
            await expect(page.get_by_text("You are signed out at the provider")).to_be_visible()

    async def whole() -> None:
        async with provider("localhost") as one, house(tmp_path, **settings_of(one)) as home:
            await story(home, one)

    asyncio.run(whole())


@pytest.mark.gate  # a browser
@pytest.mark.parametrize("is_scripted", [True, False])
def test_an_admin_sees_who_is_in_and_signs_somebody_out(is_scripted: bool, tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with home.stranger() as mina, browser() as opened_one:
            await sign_in(mina)
            there.person = {"sub": "7f", "preferred_username": "reza", "groups": ["peik-admins"]}
            async with page_of(opened_one, is_scripted=is_scripted) as page:
                await page.goto(f"{home.url}/admin/people?lang=en")
                await page.get_by_role("link", name="Sign in with Work").click()
                rows = page.locator("table.rows tbody tr")
                await expect(rows).to_have_count(2)
                await expect(rows.first).to_contain_text("you")
                his = rows.filter(has_text="oidc mina@work.example")
                await expect(his).to_contain_text("0b1c")
                out = his.get_by_role("button", name="Sign out everywhere")
                await (out.dblclick() if is_scripted else out.click())
                await expect(page.get_by_role("status")).to_contain_text("oidc mina@work.example is signed out")
                await expect(rows).to_have_count(1)
                assert (await mina.get("/admin")).url == "/admin/sign-in"
                await page.get_by_role("link", name="Earlier sign-ins").click()
                await expect(page.locator("main")).to_contain_text("oidc mina@work.example")

    visit(tmp_path, story)


@pytest.mark.gate  # a browser
def test_axe_finds_nothing_serious_where_a_provider_is(tmp_path: Path) -> None:
    node.wanted(has_packages=True)
    axe = (node.PACKAGES / "axe-core" / "axe.min.js").read_text()

    async def story(home: House, there: Provider) -> None:
        there.refuses = True
        there.person["groups"] = ["peik-admins"]
        async with browser() as opened_one:
            for language, is_dark in (("en", False), ("fa", True)):
                async with page_of(opened_one, width=390, language=language, is_dark=is_dark, is_refused=True) as page:
                    await page.goto(f"{home.url}/admin/sign-in")
                    await page.locator("a.button.main").click()
                    await page.evaluate(axe)
                    assert await page.evaluate(VIOLATIONS, sorted(GRAVE)) == []
                    assert await page.evaluate("document.documentElement.scrollWidth") == 390
                    there.refuses = False
                    await page.locator("a.button.main").click()
                    await page.goto(f"{home.url}/admin/people")
                    await expect(page.locator("table.rows tbody tr")).to_have_count(1)
                    await page.evaluate(axe)
                    assert await page.evaluate(VIOLATIONS, sorted(GRAVE)) == []
                    assert await page.evaluate("document.documentElement.scrollWidth") == 390
                    there.refuses = True
                    await home.dashboard.board.sign_ins.sign_out_oidc("0b1c")

    visit(tmp_path, story)


# ---- settings ----


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"CLIENT_ID": "x"}, "without PEIK_OIDC_ISSUER"),
        ({"ISSUER": "https://sso.example"}, "needs PEIK_OIDC_CLIENT_ID"),
        ({"ISSUER": "https://sso.example", "CLIENT_ID": "x"}, "needs PEIK_OIDC_ROLES"),
        ({"ISSUER": "http://sso.example"}, "begins with https"),
        ({"ISSUER": "https://a:b@sso.example"}, "an issuer looks like"),
        ({"ROLES": "peik-admins"}, "roles look like"),
        ({"ROLES": "peik-admins=god"}, "roles look like"),
        ({"SCOPE": "profile"}, "openid is one of the scopes"),
    ],
)
def test_settings_that_cannot_be_right_are_refused_at_the_start(
    given: dict[str, str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(StartError, match=words):
        check_oidc(load(environment={f"PEIK_OIDC_{name}": value for name, value in given.items()}, folder=tmp_path))


def test_the_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the file\n", encoding="utf-8")
    config = load(environment={"PEIK_OIDC_CLIENT_SECRET_FILE": str(tmp_path / "secret")}, folder=tmp_path)
    assert config.oidc_client_secret == "of the file"


def test_the_button_speaks_all_languages_and_the_address_is_that_of_the_settings(tmp_path: Path) -> None:
    async def story(home: House, there: Provider) -> None:
        async with home.stranger() as visitor:
            shown = {(await visitor.get(f"/admin/sign-in?lang={language}")).text for language in LANGUAGES}
            assert len(shown) == len(LANGUAGES)
            assert all("Work" in text for text in shown)
            answer = await visitor.get("/admin/sign-in/oidc", follow=False)
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(answer.headers["location"]).query)
            assert query["redirect_uri"] == ["https://peik.example/admin/sign-in/oidc/back"]
            cookie = next(one for one in answer.cookies if one.startswith("peik_oidc="))
            assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/admin/sign-in/oidc"} <= set(cookie.split("; "))

    visit(tmp_path, story, oidc_url="https://peik.example/")


# ---- what the doctor says ----


def examined(folder: Path, **settings: str) -> dict[str, doctor.Finding]:
    flags = {"store": f"sqlite:///{folder}/peik.db", "port": "1", **settings}
    environment = {f"PEIK_{name.upper()}": value for name, value in flags.items()}

    async def whole() -> list[doctor.Finding]:
        async with scene_of(load(environment=environment, folder=folder), DoctorWanted()) as scene:
            return await of_oidc(scene)

    return {one.name: one for one in asyncio.run(whole())}


def looked(folder: Path, change: Callable[[Provider], Any] = lambda there: None, **settings: str) -> dict[str, str]:
    """The grades that the doctor gives, with a real provider there."""

    async def whole() -> list[doctor.Finding]:
        async with provider() as one:
            change(one)
            flags = {"store": f"sqlite:///{folder}/peik.db", "port": "1", **settings_of(one), **settings}
            environment = {f"PEIK_{name.upper()}": value for name, value in flags.items()}
            async with scene_of(load(environment=environment, folder=folder), DoctorWanted()) as scene:
                return await of_oidc(scene)

    return {one.name: str(one.grade) for one in asyncio.run(whole())}


GOOD = {"oidc": "green", "oidc claim": "green", "oidc address": "green"}


def test_the_doctor_asks_the_provider_as_a_sign_in_would(tmp_path: Path) -> None:
    assert looked(tmp_path) == GOOD
    assert looked(tmp_path, oidc_url="https://peik.example") == GOOD
    assert looked(tmp_path, lambda there: there.metadata.update(issuer="https://evil.example")) == {"oidc": "red"}
    assert looked(tmp_path, lambda there: there.signers.clear())["oidc"] == "red"
    assert (
        looked(tmp_path, lambda there: there.known_addresses.append("https://other.example"))["oidc address"] == "red"
    )


def test_the_doctor_says_where_browsers_come_back_to(tmp_path: Path) -> None:
    assert looked(tmp_path, trusted_proxies="10.0.0.1")["oidc address"] == "yellow"  # nobody says what browsers ask for
    assert looked(tmp_path, url="http://peik.example:8081")["oidc address"] == "yellow"
    assert (
        looked(tmp_path, oidc_url="http://peik.example")["oidc address"] == "yellow"
    )  # the code can be read on the way


def test_the_doctor_says_what_the_claim_lacks(tmp_path: Path) -> None:
    def has_scope(there: Provider) -> None:
        there.metadata["scopes_supported"] = ["openid", "groups"]

    assert looked(tmp_path, has_scope)["oidc claim"] == "yellow"
    assert looked(tmp_path, has_scope, oidc_scope="openid groups")["oidc claim"] == "green"

    async def story(home: House, there: Provider) -> None:
        there.person["groups"] = None
        async with home.stranger() as visitor:
            assert (await sign_in(visitor)).status == 403

    visit(tmp_path, story)
    assert looked(tmp_path)["oidc claim"] == "yellow"

    async def mended(home: House, there: Provider) -> None:
        async with home.stranger() as visitor:
            assert (await sign_in(visitor)).status == 200

    visit(tmp_path, mended)
    assert looked(tmp_path) == GOOD


def test_the_doctor_is_red_where_settings_or_the_provider_are_missing_and_silent_where_nobody_asked(
    tmp_path: Path,
) -> None:
    assert examined(tmp_path) == {}
    assert examined(tmp_path, oidc_client_id="x")["oidc"].grade == "red"
    gone = examined(tmp_path, oidc_issuer="http://127.0.0.1:1", oidc_client_id="x", oidc_roles="*=viewer")
    assert [one.grade for one in gone.values()] == ["red"]
    assert "127.0.0.1:1" in gone["oidc"].words
