"""Removing and measuring whatever a job can leave in its folder."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from peik.jobs.disk import remove, size_of

DEPTH = 3000
NOBODY = 65_534


def as_somebody(tmp_path: Path, act: Callable[[Path], None]) -> None:
    """Root may do anything, so if we are root it is done in a process that is not. Its folder is named from within, since what
    lies above may be closed to it."""
    tmp_path.chmod(0o777)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.chdir(tmp_path)
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            act(Path("folder"))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("dear")
    folder = tmp_path / "folder"
    (folder / "within").mkdir(parents=True)
    (folder / "out").symlink_to(precious)
    (folder / "within" / "up").symlink_to("../../precious")
    (folder / "within" / "file").symlink_to(precious / "letter")
    (folder / "within" / "loop").symlink_to(".")
    os.link(precious / "letter", folder / "same")
    assert size_of(folder) == 4
    remove(folder)
    assert not folder.exists()
    assert (precious / "letter").read_text() == "dear"


def test_a_folder_that_became_a_link_is_only_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("dear")
    (tmp_path / "folder").symlink_to(precious)
    assert size_of(tmp_path / "folder") == 0
    remove(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert (precious / "letter").exists()


def test_odd_things_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe\n")).write_text("odd")
    (folder / ("ن" * 100)).mkdir()
    with socket.socket(socket.AF_UNIX) as listening, (folder / "open").open("w") as still_open:
        listening.bind(os.path.relpath(folder / "socket"))
        still_open.write("x" * 100)
        still_open.flush()
        assert size_of(folder) == 103
        remove(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_tree_deeper_than_any_path_is_measured_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("down", dir_fd=here)
        there = os.open("down", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    file = os.open("bottom", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(file, b"x" * 77)
    os.close(file)
    os.close(here)
    assert size_of(folder) == 77
    remove(folder)
    assert list(tmp_path.iterdir()) == []


def test_what_may_not_be_written_to_is_removed_all_the_same(tmp_path: Path) -> None:
    def act(folder: Path) -> None:
        for name in ("closed/inner", "sealed/inner/more", "listed/inner"):
            (folder / name).mkdir(parents=True)
            (folder / name / "file").write_text("x")
            (folder / name / "file").chmod(0)
        (folder / "sealed/inner/more").chmod(0o500)
        (folder / "sealed/inner").chmod(0)
        (folder / "sealed").chmod(0o500)
        (folder / "closed").chmod(0)
        (folder / "listed").chmod(0o400)
        folder.chmod(0)
        remove(folder)
        assert not folder.exists()

    as_somebody(tmp_path, act)
    assert list(tmp_path.iterdir()) == []


def test_all_goes_but_what_cannot_and_that_is_said(tmp_path: Path) -> None:
    """A file in a folder of somebody else cannot be removed; its neighbours can."""
    if os.getuid() != 0:
        pytest.skip("only root can make folders of somebody else")
    folder = tmp_path / "folder"
    for name in ("a", "theirs", "z"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("x")
        if name != "theirs":
            os.chown(folder / name, NOBODY, NOBODY)
    os.chown(folder, NOBODY, NOBODY)

    def act(folder: Path) -> None:
        with pytest.raises(PermissionError):
            remove(folder)

    as_somebody(tmp_path, act)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["file"]
    remove(folder)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_gone(tmp_path: Path) -> None:
    remove(tmp_path / "folder")
    assert size_of(tmp_path / "folder") == 0
