"""A broken toy is told."""

import pytest

from tests.alerts.alarm import Alarm, Hearing, alarm

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Apprise's plugins, not ours


@pytest.mark.raises_alert("toy-broken")
def test_a_broken_toy_is_told_with_how_many_are_left() -> None:
    async def story(stage: Alarm, hearing: Hearing) -> None:
        stage.peik.toys.break_one()
        assert "2 toys are left" in await hearing.begins("toy-broken", within_s=60)

    alarm(story)
