"""Trees that mean harm: nested without end, named in no text, swapped while they are read, larger than they say."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from interfaces.errors import FileError, NameTooLong, TooLarge, WrongKind
from interfaces.fake import FakeTransport, MemoryFiles
from interfaces.filesystem.fake import FakeFilesystem
from tests.interfaces.conftest import Peer

LOCAL = pytest.mark.parametrize("peer", ["self", "uid"], indirect=True)


def nest(peer: Peer, levels: int) -> None:
    """Folders in one another, each with a file beside the next."""
    at = os.open(peer.home, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        os.close(os.open("f", os.O_CREAT, dir_fd=at))
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.fchown(below, peer.uid, -1)
        os.close(at)
        at = below
    os.close(at)


@LOCAL
def test_a_tree_of_any_depth_is_removed(peer: Peer) -> None:
    """Deeper than Python's stack, than a path may be long, and than descriptors reach."""
    nest(peer, 1500)
    peer.files.remove("", recursive=True)
    assert peer.files.list("") == []


@LOCAL
def test_removing_goes_on_where_it_stopped(peer: Peer) -> None:
    peer.command.check("mkdir many && cd many && seq 2500 | xargs touch && mkdir -p a/b/c e && touch a/b/c/d")
    files = peer.files._files
    assert not files.remove_tree("many", 0)
    while not files.remove_tree("many", 0.001):
        pass
    assert peer.files.list("") == []


def test_removing_by_listing_goes_on_and_has_a_limit() -> None:
    """Where the transport has no way of its own."""
    files = MemoryFiles()
    for folder in ("a", "a/b", "a/b/c", "a/e"):
        files.mkdir(folder)
    files.open("a/b/c/f", "create")
    assert not files.remove_tree("a", 0)
    assert files.remove_tree("a", 5)
    assert files.list("") == []
    files._nodes["deep"] = files._node("")
    path = "deep"
    for _ in range(20):
        path += "/" + "d" * 255
        files._nodes[path] = files._node("")
    with pytest.raises(NameTooLong, match="too deeply"):
        files.remove_tree("deep", 60)


@LOCAL
def test_a_path_has_a_bound_and_so_has_a_name(peer: Peer) -> None:
    nest(peer, 300)
    for path in ("/".join(["d"] * 300), "x" * 300):
        for act in (peer.files.read_bytes, peer.files.stat, lambda path: peer.files.write_bytes(path, b"x")):
            with pytest.raises(NameTooLong):
                act(path)
    assert {entry.name for entry in peer.files.list("")} == {"d", "f"}


@LOCAL
def test_what_is_no_file_is_said_to_be_none(peer: Peer, tmp_path: Path) -> None:
    peer.command.check("mkfifo pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(peer.home / "socket"))
        for name in ("pipe", "socket"):
            acts: list[Callable[[], object]] = [
                lambda name=name: peer.files.read_bytes(name),
                lambda name=name: peer.files.append(name, b"x"),
                lambda name=name: peer.files.list(name),
                lambda name=name: peer.files.download(name, tmp_path / "got"),
            ]
            for act in acts:
                with pytest.raises(WrongKind):
                    act()
            assert peer.files.stat(name).kind == "other"
            peer.files.remove(name)
    assert not (tmp_path / "got").exists()


def test_a_link_is_read_once(tmp_path: Path) -> None:
    """Whoever swaps it meanwhile does not get another link made than the one that was judged."""
    answers = iter(["inside", "../../../etc"])

    class Swapped(MemoryFiles):
        def readlink(self, path: str) -> str:
            return next(answers)

    transport, files = FakeTransport(), Swapped()
    transport.files = lambda root: files  # type: ignore[method-assign]
    files.mkdir("tree")
    files.symlink("inside", "tree/link")
    FakeFilesystem(transport).download("tree", tmp_path / "got")
    assert os.readlink(tmp_path / "got/link") == "inside"


@LOCAL
def test_a_sparse_file_is_refused_by_its_size_before_anything_is_copied(peer: Peer, tmp_path: Path) -> None:
    peer.command.check("mkdir tree && echo small >tree/a && truncate -s 100G tree/z && truncate -s 100G alone")
    for path in ("tree", "alone"):
        with pytest.raises(TooLarge, match="1000000 bytes"):
            peer.files.download(path, tmp_path / "got", limit=1_000_000)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_grows_while_it_is_copied_is_cut_off(tmp_path: Path) -> None:
    class Grows(MemoryFiles):
        def stat(self, path: str, *, follow: bool = True):  # type: ignore[no-untyped-def]
            found = super().stat(path, follow=follow)
            return type(found)(**{**vars(found), "size": 1})

    transport, files = FakeTransport(), Grows()
    transport.files = lambda root: files  # type: ignore[method-assign]
    files.open("f", "create").write(bytes(3_000_000))
    with pytest.raises(TooLarge):
        FakeFilesystem(transport).download("f", tmp_path / "got", limit=1_000_000)
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_text(peer: Peer, tmp_path: Path) -> None:
    """A name is bytes: it is listed, read, copied both ways, moved and removed like any other."""
    peer.command.check("mkdir tree && printf one >\"tree/$(printf 'a\\377b')\" && mkdir \"tree/$(printf '\\200')\"")
    assert [entry.name for entry in peer.files.list("tree")] == ["a\udcffb", "\udc80"]
    assert peer.files.read_text("tree/a\udcffb") == "one"
    peer.files.write_text("tree/\udc80/c\udcfe", "two")
    assert peer.files.download("tree", tmp_path / "got").files == 2
    assert (tmp_path / "got" / "\udc80" / "c\udcfe").read_text() == "two"
    peer.files.upload(tmp_path / "got", "again")
    peer.files.move("again/a\udcffb", "again/\udcfd")
    assert peer.files.stat("again/\udcfd").size == 3
    peer.files.chmod("again/\udcfd", 0o600)
    os.symlink("\udcfd", peer.home / "again" / "link")
    assert peer.files.read_text("again/link") == "one"
    with pytest.raises(FileError, match="No such"):
        peer.files.read_bytes("again/\udcfa")
    for name in ("tree", "again"):
        peer.files.remove(name, recursive=True)
    assert peer.files.list("") == []
