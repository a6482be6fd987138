"""In the copy: the new page is rendered, in the navigation, and for those who are signed in only."""

from pathlib import Path

from tests.dashboard.visiting import House, visit


def test_it_is_rendered_and_found_from_the_first_page(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            assert "/admin/toys" in (await browser.get("/admin")).links
            page = await browser.get("/admin/toys")
            assert (page.status, "There are 3 toys." in page.text) == (200, True)
        async with home.stranger() as stranger:
            assert "There are" not in (await stranger.get("/admin/toys")).text

    visit(tmp_path, story)
