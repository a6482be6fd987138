"""The pure parts: quiet hours, phases, estimates, canaries, audiences and what is filled in."""

import datetime
import zoneinfo

import msgspec
import pytest

from peik.broadcasts.api import cell
from peik.broadcasts.audience import listed, read_csv
from peik.broadcasts.dispatch import check_placeholders, deletion_of, letter_to, params_for
from peik.broadcasts.model import (
    STEPS,
    Broadcast,
    Canary,
    LedgerEntry,
    Paid,
    Phase,
    PhaseStep,
    Recipient,
    RecipientCounts,
    checked_canary,
    estimated,
    is_too_bad,
    may_still_cost,
    slice_size,
    stars_likely,
    stepped,
    steps_from,
    window_size,
)
from peik.broadcasts.repository import moved
from peik.broadcasts.results import messages_of
from peik.clock import zone_of
from peik.core.quiet import Quiet, checked_quiet, done_at, quiet_until
from peik.errors import BadInput

TEHRAN = zoneinfo.ZoneInfo("Asia/Tehran")
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NIGHT = Quiet(start="22:00", end="08:00", tz="Asia/Tehran")
NOON = Quiet(start="12:00", end="13:30", tz="Asia/Tehran")


def at(zone: datetime.tzinfo, *parts: int) -> int:
    return int(datetime.datetime(*parts, tzinfo=zone).timestamp() * 1000)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("quiet", "hour", "minute", "until"),
    [
        (NIGHT, 21, 59, None),
        (NIGHT, 22, 0, (17, 8, 0)),
        (NIGHT, 23, 59, (17, 8, 0)),
        (NIGHT, 0, 0, (16, 8, 0)),
        (NIGHT, 7, 59, (16, 8, 0)),
        (NIGHT, 8, 0, None),
        (NOON, 11, 59, None),
        (NOON, 12, 0, (16, 13, 30)),
        (NOON, 13, 30, None),
    ],
)
def test_quiet_hours_end(quiet: Quiet, hour: int, minute: int, until: tuple[int, int, int] | None) -> None:
    expected = None if until is None else at(TEHRAN, 2026, 11, *until)
    assert quiet_until(at(TEHRAN, 2026, 11, 16, hour, minute), quiet, TEHRAN) == expected


def test_quiet_hours_over_a_change_of_clocks() -> None:
    night = Quiet(start="22:00", end="08:00", tz="Europe/Berlin")
    begins, ends = at(BERLIN, 2026, 10, 24, 22, 0), at(BERLIN, 2026, 10, 25, 8, 0)
    assert ends - begins == 11 * 3_600_000, "an hour is repeated in this night"
    assert quiet_until(begins, night, BERLIN) == ends
    early = Quiet(start="02:30", end="08:00", tz="Europe/Berlin")  # a time that the day of summer time does not have
    assert quiet_until(at(BERLIN, 2026, 3, 29, 7, 0), early, BERLIN) == at(BERLIN, 2026, 3, 29, 8, 0)


def test_work_rests_in_quiet_hours() -> None:
    assert done_at(0, 5, None, TEHRAN) == 5
    hour = 3_600_000
    assert done_at(at(TEHRAN, 2026, 11, 16, 21, 0), hour, NIGHT, TEHRAN) == at(TEHRAN, 2026, 11, 16, 22, 0)
    assert done_at(at(TEHRAN, 2026, 11, 16, 21, 0), 2 * hour, NIGHT, TEHRAN) == at(TEHRAN, 2026, 11, 17, 9, 0)
    assert done_at(at(TEHRAN, 2026, 11, 16, 23, 0), 15 * hour, NIGHT, TEHRAN) == at(TEHRAN, 2026, 11, 18, 9, 0)


@pytest.mark.parametrize(
    "quiet", [Quiet(start="8", end="9:00"), Quiet(start="24:00", end="01:00"), Quiet(start="08:00", end="08:00")]
)
def test_no_quiet_hours(quiet: Quiet) -> None:
    with pytest.raises(BadInput):
        checked_quiet(quiet)


@pytest.mark.parametrize("name", ["Nowhere/City", "../etc/passwd", "", "/etc/localtime"])
def test_no_zone(name: str) -> None:
    with pytest.raises(BadInput):
        zone_of(name)


def test_every_phase_can_end_or_has_ended() -> None:
    for phase in Phase:
        leads = [target for step, sources, target, _ in STEPS if phase in sources]
        assert leads or phase is Phase.RECALLED
    assert stepped(PhaseStep.RESUME, Phase.PAUSED, back_to=Phase.CANARY) is Phase.CANARY
    assert stepped(PhaseStep.RESUME, Phase.STOPPED, back_to=Phase.CANARY) is Phase.CANARY
    assert stepped(PhaseStep.PAUSE, Phase.DRAFT, back_to=Phase.RUNNING) is None
    assert steps_from(Phase.COMPLETED) == [PhaseStep.RECALL]
    assert steps_from(Phase.RUNNING) == [PhaseStep.PAUSE, PhaseStep.CANCEL, PhaseStep.RECALL]


@pytest.mark.parametrize(
    ("canary", "recipients", "size"),
    [
        (Canary(count=10), 100, 10),
        (Canary(count=10), 4, 4),
        (Canary(percent=5), 100, 5),
        (Canary(percent=1), 30, 1),
        (Canary(percent=5), 0, 0),
    ],
)
def test_the_first_slice(canary: Canary, recipients: int, size: int) -> None:
    assert slice_size(checked_canary(canary), recipients) == size


def test_a_slice_is_too_bad_when_more_than_its_limit_failed() -> None:
    assert not is_too_bad(Canary(count=10, limit=0.2), RecipientCounts(failed=1, blocked=1), 10)
    assert is_too_bad(Canary(count=10, limit=0.2), RecipientCounts(failed=1, blocked=2), 10)
    for canary in (
        Canary(),
        Canary(count=1, percent=1),
        Canary(count=0),
        Canary(percent=101),
        Canary(count=1, limit=1),
    ):
        with pytest.raises(BadInput):
            checked_canary(canary)


def test_what_it_costs() -> None:
    estimate = estimated(recipients=1000, suppressed=3, weight=2, per_s=30, done_at_ms=0, paid=None)
    assert (estimate.messages, estimate.duration_ms, estimate.stars_most) == (2000, 66_667, 0.0)
    assert stars_likely(1000, 30) == 0.0
    assert stars_likely(1000, 60) == 50.0
    assert stars_likely(1000, None) == 97.0
    assert [may_still_cost(Paid(stars_max=1), handed, 1) for handed in (0, 9, 10, 11)] == [10, 1, 0, 0]
    assert may_still_cost(Paid(stars_max=1), 0, 3) == 3
    assert [window_size(per_s, 1) for per_s in (0.1, 30, 1000, None)] == [5, 150, 1000, 1000]


# ---- who ----


def test_a_csv_is_read() -> None:
    found = read_csv('\ufeffchat_id;name\r\n 1 ;Ali\r\n@Public;"a;b"\r\n\r\n1;again\r\n-100;Team\r\n'.encode())
    assert found.recipients == ((1, {"name": "Ali"}), ("@public", {"name": "a;b"}), (-100, {"name": "Team"}))
    assert (found.columns, found.duplicates) == (("name",), 1)
    assert read_csv(b"chat_id\n5\n6\n").recipients == ((5, None), (6, None))
    assert listed([5, "6", 5, "@A", "@a"]).recipients == ((5, None), (6, None), ("@a", None))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "name its columns"),
        (b"id,name\n1,a\n", "name its columns"),
        (b"chat_id,a,a\n1,2,3\n", "different names"),
        (b"chat_id,first name\n1,a\n", "Latin letters"),
        (b"chat_id,a\n1\n", "Line 2 of the CSV has 1 cells"),
        (b"chat_id,a\nx,1\n", "Line 2 of the CSV: 'x' is no chat"),
        (b"chat_id\n", "nobody"),
        (b"chat_id\n\xff\n", "UTF-8"),
        (b'chat_id,a\n1,"open\n', "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_csv_is_told(raw: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_csv(raw)


# ---- what ----


def made(text: str, **more: object) -> Broadcast:
    params = msgspec.json.encode({"text": text, **more}).decode()
    return Broadcast(id="7", bot_id=1, method="sendMessage", params=params, created_at_ms=0)


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        (None, "Hi a_b <i>.! {other}"),
        ("HTML", "Hi a_b &lt;i&gt;.! {other}"),
        ("MarkdownV2", "Hi a\\_b <i\\>\\.\\! {other}"),
        ("Markdown", "Hi a\\_b <i>.! {other}"),
    ],
)
def test_values_are_text_in_every_mode(mode: str | None, shown: str) -> None:
    more = {} if mode is None else {"parse_mode": mode}
    filled = params_for(made("Hi {name} {other}", **more), 5, {"name": "a_b <i>.!"})
    assert msgspec.json.decode(filled)["text"] == shown


def test_a_placeholder_without_a_column_is_refused() -> None:
    check_placeholders({"text": "{name}", "caption": 5}, ["name"])
    with pytest.raises(BadInput, match=r"caption has \{nam\}"):
        check_placeholders({"caption": "{nam}"}, ["name"])
    with pytest.raises(BadInput, match=r"text has \{name\}, and there are no columns"):
        check_placeholders({"text": "{name}"}, [])
    check_placeholders({"text": "{{name}} and {} and {a b} and {{ name }}"}, [])


@pytest.mark.parametrize("values", [None, {"name": "Ali"}])
def test_braces_that_are_doubled_are_plain(values: dict[str, str] | None) -> None:
    filled = params_for(made("{{name}} {{}} {{{other}}} {{left"), 5, values)
    assert msgspec.json.decode(filled)["text"] == "{name} {{}} {{other}} {{left"


@pytest.mark.parametrize(
    ("step", "phase", "back_to"),
    [
        (PhaseStep.STOP, Phase.CANARY, Phase.CANARY),  # the cap, or the bot: the slice is not judged yet
        (PhaseStep.FAIL, Phase.CANARY, Phase.RUNNING),  # it is judged, and somebody knows better
        (PhaseStep.STOP, Phase.RUNNING, Phase.RUNNING),
    ],
)
def test_what_stopped_it_says_where_it_goes_on(step: PhaseStep, phase: Phase, back_to: Phase) -> None:
    stopped = moved(msgspec.structs.replace(made("a"), phase=phase, back_to=Phase.CANARY), step, at_ms=1)
    assert stopped is not None
    assert stopped.phase is Phase.STOPPED
    resumed = moved(stopped, PhaseStep.RESUME, at_ms=2)
    assert resumed is not None
    assert resumed.phase is back_to


def test_a_turn_has_a_key_of_its_own() -> None:
    line = Recipient(chat=5, messages=(8, 9))
    assert letter_to(made("a"), LedgerEntry(3), line).key == "peik-broadcast:7:3"
    assert letter_to(made("a"), LedgerEntry(3, 2), line).key == "peik-broadcast:7:3:2"
    deletion = deletion_of(made("a"), LedgerEntry(3), line)
    assert (deletion.method, deletion.key) == ("deleteMessages", "peik-broadcast:7:3:recall")
    later = msgspec.structs.replace(made("a"), recalls=2)
    assert deletion_of(later, LedgerEntry(3, 1), line).key == "peik-broadcast:7:3:recall2:1"


def test_ids_of_messages_are_found_in_any_answer() -> None:
    assert messages_of('{"message_id": 5, "chat": {}}') == (5,)
    assert messages_of('[{"message_id": 5}, {"message_id": 6}]') == (5, 6)
    assert messages_of("true") == messages_of(None) == messages_of('{"message_id": 0}') == ()


def test_a_cell_is_never_a_formula() -> None:
    assert [cell(text) for text in ("=1+1", "-100", "@name", None, "plain")] == ["'=1+1", "-100", "'@name", "", "plain"]
