"""How notifications read, what several become, and when the next may go: tables."""

import pytest

from peik.errors import BadInput
from peik.notifications.model import (
    RATE_WINDOW_MS,
    TEXT_UNITS_MAX,
    RenderedText,
    check_template,
    digest_at,
    may_go_at,
    merged,
    rendered,
    template_keys,
    units_of,
)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (RenderedText(title="", message="a < b"), "a &lt; b"),
        (RenderedText(title="<T>", message="m"), "<b>&lt;T&gt;</b>\n\nm"),
        (RenderedText(title="T", message="<i>m</i>", is_html=True), "<b>T</b>\n\n<i>m</i>"),
        (RenderedText(title="T", message="m", template="{title}: {message} {{x}}"), "T: m {x}"),
        (
            RenderedText(title="", message="", data={"n": 5, "is": True, "s": '"&'}, template="{n} {is} {s}"),
            "5 true &quot;&amp;",
        ),
        (RenderedText(title="", message="{title}", template="{message}"), "{title}"),  # what is put in is no template
    ],
)
def test_what_is_put_in_is_escaped_and_never_read_again(said: RenderedText, text: str) -> None:
    assert rendered(said) == text


def test_a_place_without_a_value_is_refused() -> None:
    with pytest.raises(BadInput, match="number"):
        rendered(RenderedText(title="", message="", template="{number}"))
    for wrong in ("", " ", "{", "}", "{}", "{0}", "{a b}", "{a.b}", "{a!r}", "{a:>5}", "x" * 5000):
        with pytest.raises(BadInput):
            check_template(wrong)
    check_template("<b>{title}</b> {{ {order_id}")  # a doubled brace is a brace


def test_several_share_their_title_or_stand_below_each_other() -> None:
    same = [RenderedText(title="T", message=message) for message in ("a", "b")]
    assert merged(same) == ["<b>T</b>\n• a\n• b"]
    assert merged(same[:1]) == ["<b>T</b>\n\na"]
    assert merged([same[0], RenderedText(title="U", message="b")]) == ["<b>T</b>\n\na\n\n<b>U</b>\n\nb"]
    assert merged([RenderedText(title="T", message=m, template="({message})") for m in "ab"]) == ["(a)\n\n(b)"]


def test_long_digests_are_split_and_none_is_left_out() -> None:
    several = [RenderedText(title="T", message=f"{at}:" + "😀" * 500) for at in range(30)]
    parts = merged(several)
    assert all(units_of(part) <= TEXT_UNITS_MAX for part in parts)
    assert [f"{at}:" in "".join(parts) for at in range(30)] == [True] * 30
    whole = RenderedText(title="T", message="x" * TEXT_UNITS_MAX)
    assert [units_of(part) for part in merged([whole, whole])] == [TEXT_UNITS_MAX] * 2


def test_templates_are_looked_for_from_near_to_far() -> None:
    assert template_keys("task", "fa_IR") == [
        "task/fa-ir", "task/fa", "task/default", "default/fa-ir", "default/fa", "default/default",
    ]  # fmt: skip
    assert template_keys("default", None) == ["default/default"]


def test_the_rate_looks_back_one_hour() -> None:
    assert may_go_at([], at_ms=5, rate_max=1) == 5
    assert may_go_at([5], at_ms=5, rate_max=1) == 5 + RATE_WINDOW_MS
    assert may_go_at([5], at_ms=5 + RATE_WINDOW_MS, rate_max=1) == 5 + RATE_WINDOW_MS
    assert may_go_at([1, 2, 3], at_ms=4, rate_max=2) == 2 + RATE_WINDOW_MS
    assert may_go_at([900], at_ms=5, rate_max=1) == 5  # the clock went back: what lies ahead does not count


def test_windows_end_at_the_same_time_for_all() -> None:
    assert [digest_at(at, 10) for at in (0, 9, 10, 11)] == [10, 10, 20, 20]
