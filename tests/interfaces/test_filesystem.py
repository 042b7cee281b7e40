"""What `filesystem` promises, over every transport and in memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from drydock.core.errors import InvalidRequest
from interfaces.deadline import Cancel
from interfaces.errors import (
    Cancelled,
    DeadlineExceeded,
    FileError,
    LeaseEnded,
    PathEscape,
    PathExists,
    PathMissing,
    PermissionRefused,
    QuotaExceeded,
    TooLarge,
    WrongKind,
)
from interfaces.fake import FakeTransport, MemoryFiles
from interfaces.files import MOST_LISTED, Entry
from interfaces.filesystem import Filesystem, Progress, RootedFilesystem
from interfaces.filesystem.fake import FakeFilesystem
from interfaces.filesystem.trees import MOST_DEEP
from interfaces.ssh.transport import SshTransport
from tests.interfaces.conftest import AS_ROOT, KINDS, Peer, always, peer_of


# The real ones are tried over each transport; the fake once.
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "every" in metafunc.fixturenames:
        metafunc.parametrize("every", [*KINDS, "fake"], indirect=True)


@pytest.fixture
def every(request: pytest.FixtureRequest, home: Path) -> Iterator[Filesystem]:
    if request.param == "fake":
        yield FakeFilesystem()
        return
    with peer_of(request.param, home, request) as peer:
        yield peer.files


def link(files: Filesystem, target: str, path: str) -> None:
    files._files.symlink(target, path)  # type: ignore[attr-defined]


def names(files: Filesystem, path: str = "") -> list[str]:
    return [entry.name for entry in files.list(path)]


def test_what_is_written_is_read(every: Filesystem) -> None:
    every.write_bytes("a", bytes(range(256)))
    every.write_text("ü €\n'\"$(x).txt", "tïme")
    assert every.read_bytes("a") == bytes(range(256))
    assert every.read_text("ü €\n'\"$(x).txt") == "tïme"
    every.write_bytes("a", b"new")
    assert b"".join(every.read_parts("a")) == b"new"
    every.append("a", b" and more")
    every.append("b", b"first")
    assert (every.read_bytes("a"), every.read_bytes("b")) == (b"new and more", b"first")
    assert names(every) == ["a", "b", "ü €\n'\"$(x).txt"]


def test_large_files_pass_part_by_part(every: Filesystem) -> None:
    parts = [bytes([number]) * 1_000_003 for number in range(9)]
    every.write_parts("big", iter(parts), permissions=0o600)
    assert b"".join(every.read_parts("big")) == b"".join(parts)
    assert every.stat("big").size == 9_000_027
    assert every.stat("big").permissions == 0o600
    with pytest.raises(TooLarge):
        every.read_bytes("big", limit=1000)


def test_reading_starts_no_thread(every: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    every.write_bytes("a", bytes(100_000))
    every.list("")
    started, start = list[str](), threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda one: (started.append(one.name), start(one)))
    assert every.read_bytes("a") == bytes(100_000)
    assert not started, "nobody would see an error in it"


def test_folders(every: Filesystem) -> None:
    every.mkdir("a/b/c")
    every.mkdir("a/b/c")
    with pytest.raises(PathExists):
        every.mkdir("a/b", parents=False)
    with pytest.raises(PathMissing):
        every.mkdir("x/y", parents=False)
    every.write_bytes("a/file", b"")
    with pytest.raises(WrongKind):
        every.mkdir("a/file/below")
    assert [(entry.name, entry.kind) for entry in every.list("a")] == [("b", "directory"), ("file", "file")]
    assert every.exists("a/b/../b/./c/")
    assert not every.exists("nothing")
    assert not every.exists("a/file/below")


def test_moving_and_removing(every: Filesystem) -> None:
    every.mkdir("a/b")
    every.write_bytes("a/one", b"1")
    every.write_bytes("a/b/two", b"2")
    every.move("a/one", "a/b/two")
    assert every.read_bytes("a/b/two") == b"1"
    every.move("a/b", "c")
    assert names(every, "c") == ["two"]
    with pytest.raises(PathExists):
        every.remove("c")
    every.remove("c", recursive=True)
    every.remove("c")
    every.remove("a")
    assert names(every) == []
    with pytest.raises(PathMissing):
        every.move("nothing", "else")
    every.write_bytes("x", b"")
    every.remove("", recursive=True)
    assert names(every) == []


def test_permissions(every: Filesystem) -> None:
    every.write_bytes("run", b"", permissions=0o700)
    every.chmod("run", 0o640)
    assert every.stat("run").permissions == 0o640


def test_kinds_are_not_mixed_up(every: Filesystem) -> None:
    every.mkdir("folder")
    for act in (every.read_bytes, lambda path: every.write_bytes(path, b"")):
        with pytest.raises(FileError):
            act("folder")
    with pytest.raises(PathMissing):
        every.read_bytes("nothing")
    with pytest.raises(PathMissing):
        every.write_bytes("nothing/file", b"")
    assert names(every) == ["folder"]
    with pytest.raises(InvalidRequest):
        every.write_bytes("", b"")


ESCAPES = [
    "..",
    "../x",
    "a/../../x",
    "/etc/passwd",
    "/",
    "out",
    "out/x",
    "up/x",
    "chain/x",
    "deep/er/x",
    "loop",
    "loop/x",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_nothing_leads_out(every: Filesystem, path: str) -> None:
    every.mkdir("a/b")
    every.mkdir("deep")
    link(every, "/etc", "out")
    link(every, "../..", "up")
    link(every, "a/b/../../up", "chain")
    link(every, "../up", "deep/er")
    link(every, "loop", "loop")
    every.write_bytes("ok", b"")
    over_ssh = isinstance(every.transport, SshTransport)
    acts: list[Callable[[], object]] = [
        lambda: every.read_bytes(path),
        lambda: every.append(path, b"x"),
        lambda: every.list(path),
        lambda: every.stat(path),
        lambda: every.mkdir(f"{path}/new"),
        lambda: every.write_bytes(f"{path}/new", b""),
        lambda: every.move("ok", f"{path}/new"),
        lambda: every.move(f"{path}/new", "ok"),
        lambda: every.remove(f"{path}/new", recursive=True),
        lambda: every.chmod(f"{path}/new", 0o777),
    ]
    for number, act in enumerate(acts):
        if path.startswith("loop") and over_ssh:
            # Links in a circle lead nowhere; an SFTP server calls that missing.
            with contextlib.suppress(PathMissing):
                act()
            continue
        with pytest.raises(FileError) as caught:
            act()
        assert isinstance(caught.value, PathEscape), (number, caught.value)
    assert every.exists("ok")


def test_a_nul_is_refused(every: Filesystem) -> None:
    for act in (every.read_bytes, every.list, every.mkdir, lambda path: every.write_bytes(path, b"")):
        with pytest.raises(InvalidRequest):
            act("a\0b")


def test_links_that_stay_inside_work(every: Filesystem) -> None:
    every.mkdir("a/b")
    every.write_bytes("a/b/file", b"here")
    link(every, "a/b", "short")
    link(every, "../../a/b/file", "a/b/round")
    assert every.read_bytes("short/file") == every.read_bytes("a/b/round") == b"here"
    assert every.stat("short").kind == "directory"
    assert every.stat("short", follow=False).kind == "link"
    every.remove("short", recursive=True)
    assert every.read_bytes("a/b/file") == b"here"


@pytest.mark.parametrize("peer", KINDS, indirect=True)
def test_a_name_that_is_no_text_can_be_seen_and_removed(peer: Peer) -> None:
    peer.command.check("mkdir tree && touch \"tree/$(printf 'a\\377b')\"")
    (entry,) = peer.files.list("tree")
    assert entry.name == "a\udcffb"
    assert peer.files.stat(f"tree/{entry.name}").size == 0
    peer.files.remove("tree", recursive=True)
    assert not (peer.home / "tree").exists()


def test_removing_and_replacing_a_link_never_touches_what_it_leads_to(every: Filesystem) -> None:
    every.mkdir("tree")
    link(every, "/etc", "tree/out")
    link(every, "/etc/passwd", "file")
    every.remove("tree", recursive=True)
    with pytest.raises(PathEscape):
        every.write_bytes("file", b"x")
    every.remove("file")
    assert names(every) == []
    assert Path("/etc/passwd").exists()


def test_a_failed_write_leaves_what_was_there(every: Filesystem) -> None:
    every.write_bytes("file", b"before")

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("torn")

    with pytest.raises(RuntimeError, match="torn"):
        every.write_parts("file", parts())
    assert every.read_bytes("file") == b"before"
    assert names(every) == ["file"]


def test_readers_see_the_old_or_the_new(peer: Peer) -> None:
    files, seen = peer.files, set()
    files.write_bytes("file", b"a" * 400_000)
    stop = threading.Event()

    def write() -> None:
        for number in range(12):
            files.write_bytes("file", b"ab"[number % 2 :][:1] * 400_000)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set():
        seen.add((peer.home / "file").read_bytes())
    writer.join()
    assert seen <= {b"a" * 400_000, b"b" * 400_000}


def test_trees_go_there_and_back(every: Filesystem, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub/empty").mkdir(parents=True)
    (tree / "sub/data").write_bytes(os.urandom(700_000))
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    (tree / "short").symlink_to("sub/data")
    (tree / "out").symlink_to("/etc")
    (tree / "sub/up").symlink_to("../../x")
    os.mkfifo(tree / "pipe")
    seen: list[Progress] = []
    sent = every.upload(tree, "to/there", progress=seen.append)
    assert (sent.files, sent.bytes, len(sent.skipped)) == (2, 700_010, 3)
    assert (seen[-1].files, seen[-1].bytes) == (2, 700_010)
    back = tmp_path / "back"
    assert every.download("to/there", back).files == 2
    assert (back / "sub/data").read_bytes() == (tree / "sub/data").read_bytes()
    assert (back / "run").stat().st_mode & 0o777 == 0o755
    assert os.readlink(back / "short") == "sub/data"
    assert sorted(path.name for path in back.rglob("*")) == ["data", "empty", "run", "short", "sub"]
    every.upload(tree, "to/there")
    every.download("to/there/run", tmp_path / "single")
    assert (tmp_path / "single").read_text() == "#!/bin/sh\n"


def test_a_download_writes_nowhere_else(every: Filesystem, tmp_path: Path) -> None:
    every.mkdir("tree")
    link(every, "/etc", "tree/a")
    link(every, "..", "tree/b")
    every.write_bytes("tree/c", b"good")
    (tmp_path / "outside").mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "c").symlink_to(tmp_path / "outside/planted")
    with pytest.raises(PathEscape):
        every.download("tree", target)
    (target / "c").unlink()
    assert every.download("tree", target).skipped == ("tree/a", "tree/b")
    assert os.listdir(tmp_path / "outside") == []


def test_a_link_through_a_link_does_not_leave_the_tree(every: Filesystem, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a/b/c").mkdir(parents=True)
    (tree / "a/b/c/up").symlink_to("../../..")
    (tree / "q").symlink_to("a/b/c/up/../../../etc/passwd")
    (tree / "a/down").symlink_to("../a/b/./c")
    assert every.upload(tree, "t").skipped == ("tree/q",)
    assert every.stat("t/a/down").kind == "directory"
    link(every, "a/b/c/up/../../../etc/passwd", "t/q")
    assert every.download("t", tmp_path / "back").skipped == ("t/q",)


def test_what_one_copy_left_leads_the_next_nowhere(every: Filesystem, tmp_path: Path) -> None:
    every.mkdir("tree/a")
    link(every, "..", "tree/a/p")
    (tmp_path / "back").mkdir()
    every.download("tree", tmp_path / "back/here")
    every.remove("tree/a/p")
    every.mkdir("tree/a/p")
    link(every, "../..", "tree/a/p/z")
    with pytest.raises(WrongKind):
        every.download("tree", tmp_path / "back/here")
    assert not (tmp_path / "back/here/z").is_symlink()


def test_trees_are_bounded_both_ways(every: Filesystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deepest = "/".join(["d"] * MOST_DEEP)
    (tmp_path / "fits" / deepest).mkdir(parents=True)
    (tmp_path / "deep" / deepest / "d").mkdir(parents=True)
    every.upload(tmp_path / "fits", "fits")
    every.download("fits", tmp_path / "back")
    assert (tmp_path / "back" / deepest).is_dir()
    every.mkdir(f"fits/{deepest}/d")
    for act in (partial(every.upload, tmp_path / "deep", "x"), partial(every.download, "fits", tmp_path / "y")):
        with pytest.raises(TooLarge, match="64"):
            act()
    monkeypatch.setattr("interfaces.filesystem.trees.MOST_ENTRIES", 3)
    (tmp_path / "few/1/2/3").mkdir(parents=True)
    every.upload(tmp_path / "few", "few")
    (tmp_path / "few/1/2/3/4").mkdir()
    every.mkdir("few/1/2/3/4")
    for act in (partial(every.upload, tmp_path / "few", "x"), partial(every.download, "few", tmp_path / "y")):
        with pytest.raises(TooLarge, match="more than 3 "):
            act()


def test_a_folder_of_a_tree_is_looked_at_once(tmp_path: Path) -> None:
    looked: list[str] = []

    class Counted(MemoryFiles):
        def stat(self, path: str, *, follow: bool = True) -> Entry:
            looked.append(path)
            return super().stat(path, follow=follow)

    transport = FakeTransport()
    transport.files = lambda root: Counted()  # type: ignore[method-assign]
    (tmp_path / "/".join(["d"] * 40)).mkdir(parents=True)
    FakeFilesystem(transport).upload(tmp_path / "d", "to")
    assert sorted(set(looked)) == sorted(looked)


def test_a_folder_of_very_many_is_not_listed_but_can_be_removed(every: Filesystem) -> None:
    files = every._files  # type: ignore[attr-defined]
    every.mkdir("many")
    for number in range(150):
        files.mkdir(f"many/{number}")
    assert len(files.list("many", most=150)) == 150
    with pytest.raises(TooLarge, match="more than 149 entries"):
        files.list("many", most=149)
    every.remove("many", recursive=True)
    assert names(every) == []


@pytest.mark.parametrize("peer", KINDS, indirect=True)
def test_listing_is_bounded(peer: Peer) -> None:
    peer.command.check(f"mkdir many && cd many && seq {MOST_LISTED} | xargs touch")
    assert len(peer.files.list("many")) == MOST_LISTED
    peer.command.check("touch many/more")
    with pytest.raises(TooLarge, match="10000"):
        peer.files.list("many")
    assert peer.files.read_bytes("many/more") == b""


def test_the_size_limit_is_asked_before_each_write(peer: Peer) -> None:
    asked: list[int] = []

    def usage_check(extra: int) -> None:
        asked.append(extra)
        if sum(asked) > 1_000_000:
            raise QuotaExceeded

    files = RootedFilesystem(peer.transport, still_mine=always, usage_check=usage_check)
    files.write_bytes("fits", bytes(900_000))
    acts: list[Callable[[], object]] = [
        lambda: files.write_bytes("more", bytes(200_000)),
        lambda: files.append("fits", bytes(200_000)),
    ]
    for act in acts:
        with pytest.raises(QuotaExceeded):
            act()
    assert names(files) == ["fits"]
    assert files.stat("fits").size == 900_000


@pytest.fixture
def small_disk(home: Path) -> Iterator[None]:
    """The home is on a disk of half a MiB."""
    if not AS_ROOT:
        pytest.skip("only root makes a disk")
    made = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=0755", "drydock-test", str(home)]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    yield
    subprocess.run(["umount", "-l", str(home)], check=True)


@pytest.mark.usefixtures("small_disk")
def test_on_a_full_disk_a_write_is_refused_clearly_and_leaves_what_was_there(peer: Peer) -> None:
    files = peer.files
    files.write_bytes("kept", b"as it was")
    for act in (
        lambda: files.write_bytes("kept", bytes(1 << 20)),
        lambda: files.write_bytes("new", bytes(1 << 20)),
        lambda: files.write_parts("new", (bytes(1 << 18) for _ in range(4))),
    ):
        with pytest.raises(QuotaExceeded if peer.kind != "ssh" else FileError):
            act()
    assert files.read_bytes("kept") == b"as it was"
    assert names(files) == ["kept"]
    files.write_bytes("fits", bytes(1 << 17))


def test_the_end_of_the_lease_and_of_time(home: Path) -> None:
    ended = False

    def still_mine() -> None:
        if ended:
            raise LeaseEnded

    files = FakeFilesystem(still_mine=still_mine)
    files.write_bytes("a", b"x" * 3_000_000)
    with pytest.raises(DeadlineExceeded):
        files.read_bytes("a", timeout=0)
    ended = True
    for act in (files.list, lambda: files.read_bytes("a"), lambda: files.write_bytes("a", b"")):
        with pytest.raises(LeaseEnded):
            act()


def test_an_upload_can_be_cancelled(every: Filesystem, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(5):
        (tmp_path / f"tree/{number}").write_bytes(bytes(300_000))
    cancel = Cancel()
    with pytest.raises(Cancelled):
        every.upload(tmp_path / "tree", "t", progress=lambda _: cancel.cancel(), cancel=cancel)
    assert not [name for name in names(every, "t") if name.startswith(".")]


@pytest.mark.skipif(not AS_ROOT, reason="only root works as another account")
@pytest.mark.parametrize("peer", ["uid"], indirect=True)
def test_as_root_the_account_of_the_lease_does_it(peer: Peer) -> None:
    peer.files.mkdir("a")
    peer.files.write_bytes("a/mine", b"")
    assert (peer.home / "a/mine").stat().st_uid == peer.uid
    secret = peer.home / "root-only"
    secret.write_text("x")
    secret.chmod(0o600)
    with pytest.raises(PermissionRefused):
        peer.files.read_bytes("root-only")
    (peer.home / "closed").mkdir(mode=0o700)
    for act in (lambda: peer.files.list("closed"), lambda: peer.files.write_bytes("closed/x", b"")):
        with pytest.raises(PermissionRefused):
            act()


SWAP = """
import os, sys
os.chdir(sys.argv[1])
print("ready", flush=True)
while True:
    for make in (lambda: os.mkdir("x"), lambda: os.symlink(sys.argv[2], "x")):
        try:
            make()
        except FileExistsError:
            pass
        try:
            os.rename("x", "old")
        except OSError:
            pass
        try:
            os.unlink("old")
        except OSError:
            try:
                os.rmdir("old")
            except OSError:
                os.system("rm -rf old")
"""


@pytest.mark.parametrize("peer", ["self", "uid"], indirect=True)
def test_a_link_swapped_in_meanwhile_leads_nowhere(peer: Peer) -> None:
    inside, outside = peer.home / "inside", peer.home / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        folder.chmod(0o777)
    (outside / "bait").write_text("secret")
    files = RootedFilesystem(peer.transport, still_mine=always, root="inside")
    swapper = subprocess.Popen([sys.executable, "-c", SWAP, str(inside), str(outside)], stdout=subprocess.PIPE)
    try:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        for number in range(400):
            acts: list[Callable[[], object]] = [
                partial(files.write_bytes, f"x/new{number}", b"x"),
                partial(files.append, "x/bait", b"x"),
                partial(files.mkdir, "x/folder"),
                partial(files.remove, "x/bait"),
            ]
            for act in acts:
                with contextlib.suppress(FileError):
                    act()
            with contextlib.suppress(FileError):
                assert files.read_bytes("x/bait") != b"secret"
    finally:
        swapper.kill()
        swapper.communicate()
    assert os.listdir(outside) == ["bait"]
    assert (outside / "bait").read_text() == "secret"


def test_a_pipe_or_device_in_the_way_holds_nobody_up(peer: Peer) -> None:
    peer.command.check("mkfifo pipe")
    for act in (lambda: peer.files.read_bytes("pipe"), lambda: peer.files.append("pipe", b"x")):
        with pytest.raises(FileError):
            act()


def test_fakes_of_one_transport_share_their_files() -> None:
    transport = FakeTransport()
    FakeFilesystem(transport).write_bytes("a", b"x")
    assert FakeFilesystem(transport).read_bytes("a") == b"x"
    assert not FakeFilesystem(transport, root="else").exists("a")
