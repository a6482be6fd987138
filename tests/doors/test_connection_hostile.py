"""What somebody sends who wants two programs to read two things: our own server reads one, and answers it in its place."""

import asyncio

import pytest

from tests.doors.test_connection import LAST, PATIENCE_S, Stage, asked, played

OFFER = (b"Connection: Upgrade", b"Upgrade: h2c")
HIDDEN = asked(b"/hidden")


def bodies(heard: bytes) -> list[bytes]:
    return [one.partition(b"\r\n\r\n")[2] for one in heard.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("is_apart", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_body_of_a_request_that_offers_another_protocol_is_no_request(is_apart: bool, is_chunked: bool) -> None:
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(HIDDEN)
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN) if is_chunked else HIDDEN

    async def story(stage: Stage) -> None:
        head = asked(b"/first?a=b", *OFFER, length, method=b"POST")
        reader, writer = await stage.connect()
        async with asyncio.timeout(PATIENCE_S):
            if is_apart:
                writer.write(head)
                while not stage.app.scopes:  # noqa: ASYNC110  nobody tells a test that the head was read
                    await asyncio.sleep(0.01)
                head = b""
            writer.write(head + body + asked(b"/second", *OFFER) + asked(b"/third", *OFFER) + asked(b"/last", LAST))
            heard = await reader.read()
        writer.close()
        assert bodies(heard) == [b"POST /first|" + HIDDEN, b"GET /second|", b"GET /third|", b"GET /last|"]
        assert stage.app.scopes[0]["query_string"] == b"a=b"

    played(story)


def test_an_offer_that_comes_byte_by_byte_is_read_as_one_that_comes_whole() -> None:
    async def story(stage: Stage) -> None:
        said = asked(b"/first", *OFFER, b"Content-Length: 3", method=b"POST", body=b"tea") + asked(b"/last", LAST)
        heard = await stage.ask(*[said[at : at + 1] for at in range(len(said))])
        assert bodies(heard) == [b"POST /first|tea", b"GET /last|"]

    played(story)
