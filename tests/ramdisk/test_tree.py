"""The files of the ramdisk, and the archive that the kernel unpacks."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from drydock.core.errors import DrydockError
from drydock.ramdisk.tree import Tree


def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.size, made.mode, made.mtime = len(content), 0o644, 12345
    for field, value in fields.items():
        setattr(made, field, value)
    return made, content


def packages(*members: tuple[tarfile.TarInfo, bytes]) -> tarfile.TarFile:
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w") as archive:
        for one, content in members:
            archive.addfile(one, io.BytesIO(content))
    stored.seek(0)
    return tarfile.open(fileobj=stored)


def packed(tree: Tree, epoch: int = 1_700_000_000) -> bytes:
    written = io.BytesIO()
    tree.pack(written, epoch=epoch)
    return written.getvalue()


def unpacked(content: bytes, folder: Path) -> Path:
    """Unpack it with the real program."""
    folder.mkdir()
    done = subprocess.run(["cpio", "-id", "--quiet"], input=content, cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def cpio() -> None:
    from tests.peers import require

    require("cpio")


def test_the_kernel_finds_files_folders_and_links(cpio: None, tmp_path: Path) -> None:
    tree = Tree(packages(
        member("./usr/bin/tool", b"#!/bin/sh\n", mode=0o755), member("./etc/", type=tarfile.DIRTYPE, mode=0o755),
        member("./etc/name", b"x" * 5), member("./etc/link", type=tarfile.SYMTYPE, linkname="name"),
        member("./etc/hard", type=tarfile.LNKTYPE, linkname="./etc/name"),
    ))  # fmt: skip
    tree.write("deep/er/own", "ours\n", 0o600)
    root = unpacked(packed(tree), tmp_path / "root")
    assert (root / "usr/bin/tool").read_bytes() == b"#!/bin/sh\n"
    assert (root / "usr/bin/tool").stat().st_mode & 0o777 == 0o755
    assert (root / "etc/hard").read_bytes() == b"xxxxx"
    assert (root / "etc/link").readlink() == Path("name")
    assert (root / "deep/er/own").read_text() == "ours\n"
    assert (root / "deep/er/own").stat().st_mode & 0o777 == 0o600
    assert (root / "bin").readlink() == Path("usr/bin")


def test_files_outside_usr_are_moved_into_it_with_their_links(cpio: None, tmp_path: Path) -> None:
    tree = Tree(packages(
        member("./bin/dash", b"shell"), member("./bin/sh", type=tarfile.SYMTYPE, linkname="dash"),
        member("./lib/a/b", type=tarfile.SYMTYPE, linkname="../../bin/dash"),
    ))  # fmt: skip
    root = unpacked(packed(tree), tmp_path / "root")
    assert (root / "usr/bin/dash").read_bytes() == b"shell"
    assert (root / "usr/bin/sh").readlink() == Path("/usr/bin/dash")
    assert (root / "usr/lib/a/b").readlink() == Path("/usr/bin/dash")


def test_equal_files_give_equal_bytes_in_whatever_order_and_at_whatever_time_they_came() -> None:
    one, two = member("./usr/a", b"a"), member("./usr/b", b"b")
    late = member("./usr/a", b"a", mtime=99999)
    assert packed(Tree(packages(one, two))) == packed(Tree(packages(two, late)))
    assert packed(Tree(packages(one, two))) != packed(Tree(packages(one, member("./usr/b", b"c"))))


def test_keys_and_names_of_the_building_machine_and_set_user_id_bits_stay_out() -> None:
    content = packed(Tree(packages(
        member("./etc/resolv.conf", b"nameserver 192.0.2.1"), member("./etc/hostname", b"builder-7"),
        member("./usr/bin/su", b"su", mode=0o4755), member("./usr/share/doc/x/copyright", b"by somebody"),
    )))  # fmt: skip
    for text in (b"192.0.2.1", b"builder-7", b"by somebody"):
        assert text not in content
    at = content.index(b"usr/bin/su\0") - 110
    assert int(content[at + 14 : at + 22], 16) == 0o100755


def test_a_file_that_is_missing_is_named() -> None:
    tree = Tree(packages(member("./boot/vmlinuz-6.1.0-2", b"k"), member("./boot/vmlinuz-6.1.0-1", b"k")))
    assert tree.found("boot/vmlinuz-*") == "boot/vmlinuz-6.1.0-2"
    with pytest.raises(DrydockError, match=r"No package contains the file usr/lib/shim/shimx64\.efi\.signed"):
        tree.read("usr/lib/shim/shimx64.efi.signed")
    with pytest.raises(DrydockError, match="No package contains the file boot/other"):
        tree.found("boot/other*")
