"""Strangers, keys and guesses: each limited by its own measure, and nobody by somebody else's."""

from peik.core.units import HOLDERS_MAX, Rate
from peik.web.limits import ADMIN_HOLDER, GUESSES_KEPT, KNOWN_S, RequestLimits, address_of, bot_holder

NOW = 100.0
TWO = Rate(per_s=1, burst=2)


def gate(*, stranger: Rate | None = None, wrong: Rate | None = None, key: Rate | None = None) -> RequestLimits:
    return RequestLimits(stranger=stranger, wrong=wrong, key=key)


def test_one_sender_is_an_ipv4_address_or_the_64_bits_of_a_customer() -> None:
    assert address_of("1.2.3.4") == address_of("::ffff:1.2.3.4") == "1.2.3.4"
    assert address_of("2001:db8::1") == address_of("2001:db8:0:0:ffff::9") != address_of("2001:db8:0:1::1")
    assert address_of("nonsense") == address_of("x" * 100_000) == address_of("")


def test_a_stranger_is_limited_until_he_shows_a_key_and_again_an_hour_after() -> None:
    one = gate(stranger=TWO)
    assert [one.stranger_wait_s("1.1.1.1", NOW) for _ in range(3)] == [0, 0, 1]
    assert one.stranger_wait_s("2.2.2.2", NOW) == 0
    assert one.holder_wait_s("1.1.1.1", 7, None, NOW) == 0
    assert [one.stranger_wait_s("1.1.1.1", NOW) for _ in range(9)] == [0] * 9
    later = NOW + KNOWN_S + 1
    assert [one.stranger_wait_s("1.1.1.1", later) for _ in range(3)] == [0, 0, 1]


def test_telegram_that_pushes_is_no_stranger() -> None:
    one = gate(stranger=TWO)
    assert one.is_stranger("149.154.167.220", NOW)
    one.vouch("149.154.167.220", bot_holder(5), NOW)
    assert not one.is_stranger("149.154.167.220", NOW + KNOWN_S - 1)
    assert one.is_stranger("149.154.167.220", NOW + KNOWN_S + 1)
    assert not gate().is_stranger("1.1.1.1", NOW), "nobody counts strangers"
    assert [one.stranger_wait_s("149.154.167.220", NOW) for _ in range(5)] == [0] * 5


def test_a_key_is_limited_wherever_it_comes_from_and_others_are_not() -> None:
    one = gate(key=TWO)
    assert [one.holder_wait_s(f"1.1.1.{at}", 7, None, NOW) for at in range(3)] == [0, 0, 1]
    assert one.holder_wait_s("1.1.1.1", 8, None, NOW) == 0
    assert one.holder_wait_s("1.1.1.1", bot_holder(7), None, NOW) == 0
    assert [one.holder_wait_s("1.1.1.1", 9, Rate(per_s=1, burst=4), NOW) for _ in range(5)] == [0, 0, 0, 0, 1]


def test_guesses_are_bounded_and_a_right_one_among_them_looks_like_all_others() -> None:
    one = gate(wrong=TWO)
    assert [one.wrong_wait_s("6.6.6.6", f"guess {number}", NOW) for number in range(4)] == [0, 0, 1, 1]
    assert one.holder_wait_s("6.6.6.6", ADMIN_HOLDER, None, NOW) == 1, "it was never seen from there"
    assert one.barred_s("6.6.6.6", NOW) == 1
    assert one.holder_wait_s("6.6.6.6", ADMIN_HOLDER, None, NOW + 1) == 0


def test_who_guesses_behind_a_common_address_shuts_out_nobody_whose_key_was_made() -> None:
    one = gate(wrong=TWO)
    for second in range(60):
        one.wrong_wait_s("10.0.0.1", f"guess {second}", NOW + second)
        assert one.holder_wait_s("10.0.0.1", second + 1, None, NOW + second) == 0
        assert one.holder_wait_s("10.0.0.1", bot_holder(second), None, NOW + second) == 0


def test_neighbours_whose_keys_were_seen_before_go_on_while_somebody_guesses() -> None:
    one = gate(wrong=TWO)
    assert one.holder_wait_s("10.0.0.1", ADMIN_HOLDER, None, NOW) == 0
    for number in range(100):
        one.wrong_wait_s("10.0.0.1", f"guess {number}", NOW)
        one.wrong_wait_s("10.0.0.2", f"guess {number}", NOW)
    assert one.holder_wait_s("10.0.0.1", ADMIN_HOLDER, None, NOW) == 0
    assert one.holder_wait_s("10.0.0.2", ADMIN_HOLDER, None, NOW) == 1


def test_a_program_with_one_wrong_key_costs_its_neighbours_nothing() -> None:
    one = gate(wrong=TWO)
    assert {one.wrong_wait_s("10.0.0.1", "revoked", NOW) for _ in range(1000)} == {0}
    assert one.holder_wait_s("10.0.0.1", 8, None, NOW) == 0


def test_guesses_cannot_be_taken_for_repeats() -> None:
    """Whoever goes through more guesses than are remembered pays for each of them again."""
    one = gate(wrong=Rate(per_s=1, burst=2 * GUESSES_KEPT + 2))
    for number in range(2 * GUESSES_KEPT + 2):
        assert one.barred_s("6.6.6.6", NOW) == 0
        assert one.wrong_wait_s("6.6.6.6", f"guess {number % (GUESSES_KEPT + 1)}", NOW) == 0
    assert one.barred_s("6.6.6.6", NOW) == 1


def test_what_it_remembers_is_bounded() -> None:
    one = gate(stranger=TWO, wrong=TWO, key=TWO)
    for number in range(HOLDERS_MAX + 50):
        host = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        one.stranger_wait_s(host, NOW)
        one.wrong_wait_s(host, "guess", NOW)
        one.holder_wait_s(host, number, None, NOW + 10)
    assert (
        max(len(one._known), len(one._guesses), len(one._strangers), len(one._wrongs), len(one._keys))
        <= HOLDERS_MAX + 1
    )


def test_calls_from_within_the_process_and_limits_that_are_off_cost_nothing() -> None:
    one = gate(stranger=TWO, wrong=TWO)
    assert [one.stranger_wait_s(None, NOW) for _ in range(9)] == [0] * 9
    assert [one.wrong_wait_s(None, str(number), NOW) for number in range(9)] == [0] * 9
    free = gate()
    assert [free.stranger_wait_s("1.1.1.1", NOW) for _ in range(9)] == [0] * 9
    assert [free.wrong_wait_s("1.1.1.1", str(number), NOW) for number in range(9)] == [0] * 9
    assert [free.holder_wait_s("1.1.1.1", 1, None, NOW) for _ in range(9)] == [0] * 9
