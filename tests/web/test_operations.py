"""An operation is declared once: what a request must have, what it answers, and what is said of it come from there."""

import asyncio
from typing import Annotated

import msgspec
import pytest
from starlette.requests import Request

from peik.app.apis import API_CLASSES
from peik.errors import BadInput, Conflict, Problem
from peik.web.access import Access, Caller
from peik.web.operations import (
    CallHeaders,
    Id,
    Streamed,
    StreamHeaders,
    Written,
    declared,
    operation,
    operations_of,
    rows_of,
    schemas_of,
)
from peik.web.parse import BOT, KEY, TEXT, NameInPath, Page, read_query, write_query
from peik.web.routes import routes_of


class ThingBody(msgspec.Struct, frozen=True):
    label: str


class PartAnswer(msgspec.Struct, frozen=True):
    id: Id


class ThingAnswer(msgspec.Struct, frozen=True):
    label: str
    parts: list[PartAnswer]


class ThingApi:
    @operation("PUT", "/v1/things/{name}", name="setThing", tag="things", scope="admin", status=201)
    async def set_thing(self, caller: Caller, name: NameInPath, body: ThingBody) -> ThingAnswer:
        """Label a thing.

        And more of it."""
        return ThingAnswer(label=body.label, parts=[])


def test_a_declaration_has_all_that_the_document_says() -> None:
    (one,) = operations_of(ThingApi)
    assert (one.verb, one.path, one.text, one.body) == (
        "PUT", "/v1/things/{name}", "Label a thing.\n\nAnd more of it.", ThingBody,
    )  # fmt: skip
    row = rows_of(ThingApi)["setThing"]
    assert row.answers == {201: "Thing"}
    assert [(parameter["name"], parameter["in"]) for parameter in row.parameters] == [("name", "path")]


def test_answers_are_known_by_their_names_without_answer() -> None:
    schemas = schemas_of(ThingApi)
    assert set(schemas) == {"Thing", "Part"}
    assert schemas["Thing"]["properties"]["parts"]["items"] == {"$ref": "#/components/schemas/Part"}
    assert schemas["Thing"]["required"] == ["label", "parts"]


class WordsAnswer(Streamed, frozen=True, kw_only=True):
    """One word after the other."""


class LastWordHeaders(StreamHeaders, frozen=True, kw_only=True):
    last_event_id: Annotated[str | None, TEXT.saying("The last word that was heard.")] = None


class WordApi:
    @operation("GET", "/v1/words", name="streamWords", tag="words", scope="read", media_type="text/event-stream")
    async def stream(self, caller: Caller, headers: LastWordHeaders) -> WordsAnswer:
        """Words as they come."""
        raise NotImplementedError


def test_a_stream_is_text_and_says_what_comes_and_a_header_what_it_is_for() -> None:
    assert schemas_of(WordApi) == {"Words": {"type": "string", "description": "One word after the other."}}
    row = rows_of(WordApi)["streamWords"]
    assert row.answers == {200: "Words"}
    (header,) = row.parameters
    assert (header["name"], header["in"]) == ("Last-Event-ID", "header")
    assert header["description"] == "The last word that was heard."


def test_a_place_in_a_path_is_one_part_of_it_whatever_is_in_it() -> None:
    assert declared(ThingApi.set_thing).path_of(name="a/b ?") == "/v1/things/a%2Fb%20%3F"


def test_a_method_that_does_not_take_what_its_path_has_cannot_be_declared() -> None:
    with pytest.raises(AssertionError, match=r"do not fit /v1/things/\{name\}"):

        @operation("GET", "/v1/things/{name}", name="getThing", tag="things", scope="read")
        async def get_thing(caller: Caller) -> ThingAnswer:
            raise NotImplementedError


def test_all_that_are_declared_have_names_of_their_own_and_a_sentence() -> None:
    found = [one for api in API_CLASSES for one in operations_of(api)]
    assert len({one.name for one in found}) == len(found) >= 8
    assert all(one.text for one in found)


class ThingsQuery(msgspec.Struct, frozen=True, kw_only=True):
    label: Annotated[str, TEXT.saying("Labelled so.")]
    part: Annotated[str | None, TEXT] = None


class ThingHeaders(CallHeaders, frozen=True, kw_only=True):
    idempotency_key: Annotated[str | None, KEY.saying("One thing a key.")] = None


class ThingsApi:
    @operation("POST", "/v1/things", name="findThings", tag="things", scope="read")
    async def find_things(self, caller: Caller, query: ThingsQuery, headers: ThingHeaders) -> ThingAnswer:
        """Things with a label."""
        raise NotImplementedError


def test_a_field_of_a_query_without_a_default_is_required_and_refused_as_empty() -> None:
    asked = {one["name"]: one for one in rows_of(ThingsApi)["findThings"].parameters}
    assert {name: asked[name]["required"] for name in ("label", "part")} == {"label": True, "part": False}
    with pytest.raises(BadInput, match="label has 1 to"):
        read_query(ThingsQuery, {"part": "x"})
    assert write_query(read_query(ThingsQuery, {"label": "red"})) == {"label": "red"}


def test_an_operation_says_what_a_key_means_to_it() -> None:
    asked = {one["name"]: one for one in rows_of(ThingsApi)["findThings"].parameters}
    assert asked["Idempotency-Key"]["description"] == "One thing a key."


# ---- what is not JSON, and what is not known ----


class NoteAnswer(Written, frozen=True, kw_only=True):
    """Plain words."""


class NoteQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bot_id: Annotated[int | None, BOT] = None


class StrictPage(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class NoteApi:
    @operation("GET", "/v1/note", name="getNote", tag="notes", scope=None, answers={200: NoteAnswer})
    async def get_note(self, caller: Caller | None, query: NoteQuery) -> Written:
        """A note, for everybody."""
        raise NotImplementedError


def test_an_answer_of_plain_text_is_described_by_its_docstring() -> None:
    assert schemas_of(NoteApi) == {"Note": {"type": "string", "description": "Plain words."}}
    row = rows_of(NoteApi)["getNote"]
    assert (row.answers, row.is_open) == ({200: "Note"}, True)


def test_a_filter_that_there_is_not_is_told_with_those_that_there_are() -> None:
    with pytest.raises(BadInput, match=r"There is no filter bot; only bot_id\."):
        read_query(NoteQuery, {"bot": "7"})
    with pytest.raises(BadInput, match=r"There is no filter last\. There are: cursor, limit\."):
        read_query(StrictPage, {"last": "7"})


# ---- an API with nothing to answer with ----


class TitledAnswer(msgspec.Struct, frozen=True):
    title: str


class ShelfApi:
    """It has nothing to answer with."""

    def must_be_ready(self) -> None:
        raise Conflict(code="no_shelf", detail="There is no shelf.")

    @operation("POST", "/v1/shelf", name="fillShelf", tag="shelf", scope="send")
    async def fill(self, caller: Caller, body: ThingBody) -> TitledAnswer:
        """Put something on it."""
        raise NotImplementedError


def test_a_property_may_be_called_title() -> None:
    assert schemas_of(ShelfApi)["Titled"]["properties"] == {"title": {"type": "string"}}


def test_an_api_that_cannot_answer_says_so_to_who_is_admitted_before_it_reads_more() -> None:
    async def ask(key: str) -> str:
        access = Access("a-key", find=lambda _: None, wall_ms=lambda: 0)
        ((_, _, endpoint, *_),) = routes_of(ShelfApi(), access)
        scope = {"type": "http", "query_string": b"", "headers": [(b"x-api-key", key.encode())]}
        with pytest.raises(Problem) as raised:
            await endpoint(Request(scope))  # nothing can be received: a body that is read is an error
        return raised.value.code

    assert asyncio.run(ask("a-key")) == "no_shelf"
    assert asyncio.run(ask("another")) == "wrong_key"
