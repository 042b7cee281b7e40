"""Trees that come as archives: what of them is taken."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from drydock_client import trees
from drydock_client.trees import tar


def archive(*entries: tar.Entry) -> io.BytesIO:
    """An archive of entries without content."""
    return io.BytesIO(b"".join(map(tar.header, entries)) + tar.END)


def folder(path: str) -> tar.Entry:
    """A folder in an archive."""
    return tar.Entry(path=path, kind="directory", permissions=0o755)


def test_a_link_through_a_link_is_left_out(tmp_path: Path) -> None:
    links = {
        "t/a/b/up": "../..", "t/q": "a/b/up/../../etc/passwd", "t/a/b/in": "../c", "t/a/b/far": "../../..",
        "t/x": "a/../y",
    }  # fmt: skip
    sent = archive(folder("t/a/b"), *(tar.Entry(path=at, kind="link", target=to) for at, to in links.items()))
    trees.unpack(sent.read, lambda name: tmp_path / name)
    assert {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_symlink()} == {
        "t/a/b/up",
        "t/a/b/in",
    }
    assert os.readlink(tmp_path / "t/a/b/up") == "../.."


def test_a_tree_that_is_too_deep_is_refused_before_it_is_made(tmp_path: Path) -> None:
    deepest = "/".join(["t", *["d"] * trees.MOST_DEEP])
    trees.unpack(archive(folder(deepest)).read, lambda name: tmp_path / "one" / name)
    with pytest.raises(trees.TooMuch, match="64"):
        trees.unpack(archive(folder(f"{deepest}/d")).read, lambda name: tmp_path / "two" / name)
    assert not (tmp_path / "two").exists()


def test_a_tree_that_is_too_deep_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "t" / "/".join(["d"] * (trees.MOST_DEEP + 1))).mkdir(parents=True)
    with pytest.raises(trees.TooMuch, match="64"):
        list(trees.pack(tmp_path / "t"))


def test_a_tree_of_too_much_is_neither_sent_nor_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t/one").mkdir(parents=True)
    sent = list(trees.pack(tmp_path / "t"))
    monkeypatch.setattr(trees, "MOST_ENTRIES", 1)
    with pytest.raises(trees.TooMuch, match="more than 1 "):
        list(trees.pack(tmp_path / "t"))
    with pytest.raises(trees.TooMuch, match="more than 1 "):
        trees.unpack(io.BytesIO(b"".join(sent)).read, lambda name: tmp_path / "to" / name)
