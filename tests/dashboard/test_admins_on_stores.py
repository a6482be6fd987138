"""People, sign-ins and the audit log on every store that there is."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from peik.admin.audit import Audit, Outcome
from peik.admin.model import Role
from peik.admin.people import People
from peik.admin.sign_ins import SignIns
from peik.core.events import Events
from peik.errors import Conflict, NotFound
from tests.storage.all_places import PLACES

PASSWORD = "a long enough password"


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
def test_people_sign_in_are_changed_and_are_signed_out_by_it(kind: Any, tmp_path: Path) -> None:
    async def main() -> None:
        place = kind(tmp_path)
        async with place.open() as store:
            people = People(store.documents, place.clock)
            sign_ins = SignIns(store.documents, people, place.clock, find_key=lambda digest: None, admin_key="k" * 40)
            made = await asyncio.gather(
                *(people.add("lena", Role.OPERATOR, PASSWORD) for _ in range(2)), return_exceptions=True
            )
            assert sorted(type(one).__name__ for one in made) == ["Conflict", "Person"]
            assert await people.is_right("lena", "something else") is None
            lena = await people.is_right("Lena", PASSWORD)
            assert lena is not None
            tokens = [await sign_ins.sign_in_person(lena, address="::1") for _ in range(2)]
            await sign_ins.sign_out(tokens[0])
            assert await sign_ins.find(tokens[0]) is None
            found = await sign_ins.find(tokens[1])
            assert (found is not None and (found.name, found.role)) == ("lena", Role.OPERATOR)
            await people.set_role("lena", Role.ADMIN)
            assert await sign_ins.find(tokens[1]) is None
            await people.remove("lena")
            with pytest.raises(NotFound):
                await people.set_role("lena", Role.ADMIN)
            with pytest.raises(Conflict):
                await asyncio.gather(*(people.add("aziz", Role.VIEWER, PASSWORD) for _ in range(2)))
            assert [one.name for one in await people.everybody()] == ["aziz"]

    asyncio.run(main())


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
def test_many_refusals_alike_are_one_line_with_their_number(kind: Any, tmp_path: Path) -> None:
    async def main() -> None:
        place = kind(tmp_path)
        async with place.open() as store:
            audit = Audit(store.documents, place.clock, Events())

            async def refuse(address: str) -> None:
                await audit.note_refused_again(
                    who="?", action="sign_in", target="key", detail="locked", address=address
                )

            await asyncio.gather(*(refuse(f"::{number % 2}") for number in range(200)))
            told = {line.address: line.detail for line in (await audit.find()).lines}
            assert told == {"::0": "locked, 64 times or more", "::1": "locked, 64 times or more"}
            place.clock.pass_ms(61_000)
            await refuse("::0")
            assert next(line.detail for line in (await audit.find()).lines) == "locked"

    asyncio.run(main())


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
def test_the_audit_log_is_read_backwards_by_who_and_what_and_old_lines_go(kind: Any, tmp_path: Path) -> None:
    async def main() -> None:
        place = kind(tmp_path)
        async with place.open() as store:
            audit = Audit(store.documents, place.clock, Events(), keep_s=60.0)
            for number in range(5):
                line = await audit.begin(who="lena", action="letters.retry", target=str(number))
                place.clock.pass_ms(1000)
                if number:
                    await audit.end(line, is_done=number % 2 == 0)
            await audit.note(who="aziz", action="keys.add", target="k", is_done=True)
            found = await audit.find(who="lena", action="letters", limit=3)
            assert [(one.target, one.outcome) for one in found.lines] == [
                ("4", Outcome.DONE), ("3", Outcome.REFUSED), ("2", Outcome.DONE),
            ]  # fmt: skip
            rest = await audit.find(who="lena", cursor=found.cursor, limit=3)
            assert [(one.target, one.outcome) for one in rest.lines] == [("1", Outcome.REFUSED), ("0", Outcome.BEGUN)]
            place.clock.pass_ms(58_000)
            assert await audit.sweep(at_ms=place.clock.wall_ms()) == 3
            assert [one.target for one in (await audit.find()).lines] == ["k", "4", "3"]

    asyncio.run(main())
