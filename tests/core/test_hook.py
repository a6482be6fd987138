"""A webhook message: its signature as Standard Webhooks has it, what an answer means, when it is tried again."""

import pytest

from peik.outbox.hooks import GIVE_UP_MS, HookVerdict, judge, next_wait_ms, secret_of, signed_headers

HOUR = 3_600_000


def test_the_signature_is_that_of_the_reference_libraries() -> None:
    """The example of standardwebhooks' own documentation."""
    headers = signed_headers(
        secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at_s=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_is_base64_after_its_prefix() -> None:
    assert secret_of(b"\xff" * 3) == "whsec_////"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, HookVerdict.DONE),
        (204, HookVerdict.DONE),
        (299, HookVerdict.DONE),
        (0, HookVerdict.AGAIN),
        (301, HookVerdict.AGAIN),
        (302, HookVerdict.AGAIN),
        (400, HookVerdict.AGAIN),
        (404, HookVerdict.AGAIN),
        (410, HookVerdict.STOP),
        (429, HookVerdict.AGAIN),
        (500, HookVerdict.AGAIN),
    ],
)
def test_what_an_answer_means(status: int, verdict: HookVerdict) -> None:
    assert judge(status) is verdict


def test_tries_come_after_5_s_30_s_2_m_10_m_1_h_3_h_and_then_every_10_h_for_three_days() -> None:
    now, tries, waits = 0, 1, []
    while (wait_ms := next_wait_ms(tries=tries, began_at_ms=0, now_ms=now)) is not None:
        waits.append(wait_ms / 1000)
        now, tries = now + wait_ms, tries + 1
    assert waits == [5, 30, 120, 600, 3600, 10_800, *[36_000] * 6]
    assert GIVE_UP_MS - 10 * HOUR < now <= GIVE_UP_MS
