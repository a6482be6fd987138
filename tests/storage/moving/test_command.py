"""`peik migrate` as people and scripts see it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.storage.moving.filling import fill, folder, keep_file, url_of
from tests.storage.places import Place, SqlitePlace

COMMAND = "import typer; from peik.storage.cli import migrate; typer.run(migrate)"


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )


async def fill_whole(place: Place) -> None:
    async with place.open() as store:
        await fill(store)
    await keep_file(place, b"picture")


def filled(tmp_path: Path) -> tuple[SqlitePlace, SqlitePlace]:
    origin = SqlitePlace(folder(tmp_path, "from"))
    asyncio.run(fill_whole(origin))
    return origin, SqlitePlace(folder(tmp_path, "to"))


def test_it_tells_what_it_moved(tmp_path: Path) -> None:
    origin, target = filled(tmp_path)
    ended = run("--from", url_of(origin), "--to", url_of(target))
    assert ended.returncode == 0, ended.stderr
    assert "letters" in ended.stdout
    assert f"Set PEIK_STORE to {url_of(target)} and start Peik" in ended.stderr
    again = run("--from", url_of(origin), "--to", url_of(target))
    assert again.returncode == 0
    assert "nothing left to do" in again.stderr


def test_a_script_gets_one_document(tmp_path: Path) -> None:
    origin, target = filled(tmp_path)
    ended = run("--from", url_of(origin), "--to", url_of(target), "--json")
    told = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr, told["was_done"]) == (0, "", False)
    assert (told["counts"]["bots"], told["counts"]["files"], told["missing_files"]) == (2, 1, 1)
    assert set(told["digests"]) == set(told["counts"])


def test_a_dry_run_counts_and_makes_nothing(tmp_path: Path) -> None:
    origin, target = filled(tmp_path)
    ended = run("--from", url_of(origin), "--to", url_of(target), "--dry-run", "--json")
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["dry_run"], told["counts"]["consumers"], told["counts"]["files"]) == (0, True, 2, 2)
    assert not target.path.exists()


def test_a_refusal_is_a_sentence_and_an_exit_code(tmp_path: Path) -> None:
    origin, target = filled(tmp_path)
    asyncio.run(fill_whole(target))
    ended = run("--from", url_of(origin), "--to", url_of(target))
    assert ended.returncode == 4
    assert "is not empty" in ended.stderr
    told = json.loads(run("--from", url_of(origin), "--to", url_of(target), "--json").stderr)
    assert (told["status"], told["code"]) == (409, "target_not_empty")


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    origin, _ = filled(tmp_path)
    for url in ("redis://127.0.0.1:1/0", "postgresql://nobody:secret@127.0.0.1:1/none"):
        ended = run("--from", url_of(origin), "--to", url)
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        assert "Cannot" in ended.stderr
        assert "secret" not in ended.stderr


def test_an_address_with_a_password_may_stand_in_a_file(tmp_path: Path) -> None:
    origin, target = filled(tmp_path)
    (tmp_path / "from.url").write_text(url_of(origin) + "\n")
    assert run("--from", f"@{tmp_path / 'from.url'}", "--to", url_of(target)).returncode == 0
    assert run("--from", f"@{tmp_path / 'none.url'}", "--to", url_of(target)).returncode == 2


def test_files_may_lie_in_a_folder_that_nodes_share(tmp_path: Path) -> None:
    origin, target = filled(tmp_path)
    shared = folder(tmp_path, "shared")
    ended = run("--from", url_of(origin), "--to", url_of(target), "--to-files", str(shared), "--json")
    assert ended.returncode == 0, ended.stderr
    assert [path.read_bytes() for path in shared.iterdir()] == [b"picture"]
    third = SqlitePlace(folder(tmp_path, "third"))
    again = run("--from", url_of(target), "--to", url_of(third), "--from-files", str(shared), "--json")
    assert json.loads(again.stdout)["counts"]["files"] == 1
