"""`drydock ramdisk build`: what it refuses. `tests/metal` builds one and boots it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drydock.core.errors import Conflict, DrydockError, InvalidRequest
from drydock.ramdisk import Request, build, packages, programs
from drydock.ramdisk.packages import Package

SOURCE = "deb https://deb.debian.org/debian bookworm main"


def attempt(to: Path, **fields: object) -> None:
    build(Request(to=to, **{"suite": "bookworm", "sources": [SOURCE], **fields}), lambda text: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"suite": "book worm"}, "is not the name of a Debian release"),
        ({"suite": "--help"}, "is not the name of a Debian release"),
        ({"sources": ["https://deb.debian.org/debian"]}, "is not a source of packages"),
        ({"sources": ["deb ftp://x y z"]}, "is not a source of packages"),
        ({"sources": ["deb https://x y\ndeb https://z y"]}, "is not a source of packages"),
        ({"add": ["vim;reboot"]}, "is not the name of a Debian package"),
        ({"add": ["vim,emacs"]}, "is not the name of a Debian package"),
        ({"like": Path("/nowhere/manifest.json")}, "is not the manifest of a ramdisk"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_anything_is_written(
    tmp_path: Path, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        attempt(tmp_path / "to", **fields)
    assert not (tmp_path / "to").exists()


def test_a_source_is_shown_without_its_password() -> None:
    line = "deb https://ada:secret@mirror.example.org/debian bookworm main"
    assert packages.without_login(line) == "deb https://mirror.example.org/debian bookworm main"
    with pytest.raises(InvalidRequest) as caught:
        packages.check("bookworm", [f"{line}\n"], ())
    assert "secret" not in str(caught.value)


def test_missing_programs_are_named_with_the_packages_that_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        InvalidRequest, match="not installed on this machine: apt, mmdebstrap, mtools, xorriso"
    ) as caught:
        attempt(tmp_path / "to")
    assert caught.value.hint.startswith("On Debian: apt install apt mmdebstrap mtools xorriso")


def doubles(folder: Path, monkeypatch: pytest.MonkeyPatch, mmdebstrap: str) -> None:
    """Programs that are there in name, and one that does what a test needs."""
    folder.mkdir()
    for name in programs.PACKAGES:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{mmdebstrap if name == 'mmdebstrap' else 'exit 0'}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_what_apt_says_is_told_and_files_of_an_earlier_build_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubles(tmp_path / "bin", monkeypatch, "echo 'I: start' >&2; echo 'E: Unable to locate package x' >&2; exit 100")
    to = tmp_path / "to"
    to.mkdir()
    for name in ("ramdisk.iso", "manifest.json"):
        (to / name).write_text("earlier")
    with pytest.raises(DrydockError, match=r"mmdebstrap failed \(exit code 100\): E: Unable to locate package x"):
        attempt(to)
    assert {one.name: one.read_text() for one in to.iterdir()} == {"ramdisk.iso": "earlier", "manifest.json": "earlier"}


def test_files_of_others_are_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doubles(tmp_path / "bin", monkeypatch, "exit 1")
    to = tmp_path / "to"
    to.mkdir()
    (to / "vmlinuz").write_text("the kernel of something else")
    with pytest.raises(Conflict, match="has files that no earlier build has made: vmlinuz"):
        attempt(to)


def test_a_time_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doubles(tmp_path / "bin", monkeypatch, "exit 1")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(InvalidRequest, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        attempt(tmp_path / "to")


def test_a_manifest_pins_names_versions_and_contents(tmp_path: Path) -> None:
    one = {"name": "zstd", "version": "1.5.4+dfsg2-5", "architecture": "amd64", "sha256": "00" * 32}
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"packages": [one]}))
    pins = packages.read_pins(path)
    assert pins == [Package(**one)]
    packages._compare(pins, pins)
    with pytest.raises(DrydockError, match=r"Missing: zstd 1\.5\.4\+dfsg2-5\. Instead: zstd 1\.5\.5\.") as caught:
        packages._compare([Package(**{**one, "version": "1.5.5"})], pins)
    assert "snapshot.debian.org" in caught.value.hint
    with pytest.raises(DrydockError, match="Missing: zstd"):
        packages._compare([Package(**{**one, "sha256": "11" * 32})], pins)
    path.write_text(json.dumps({"packages": [{**one, "version": "1\nPackage: *"}]}))
    with pytest.raises(InvalidRequest, match="names an impossible package"):
        packages.read_pins(path)
