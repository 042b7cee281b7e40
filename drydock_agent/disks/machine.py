"""The machine whose disks are worked on: where its files are, and how its tools are run."""

from __future__ import annotations

import dataclasses
import os
import selectors
import shutil
import stat
import subprocess
import time
from pathlib import Path

from drydock_agent.disks.errors import DiskError

_PATHS = "/usr/local/sbin:/usr/sbin:/sbin"
_TEXT, _OUTPUT, _PIECE = 1 << 20, 4 << 20, 1 << 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """The output of a tool, and its exit code."""

    code: int
    text: str
    error: str = ""

    @property
    def ok(self) -> bool:
        """Return whether the tool ended with exit code 0."""
        return self.code == 0

    @property
    def reason(self) -> str:
        """Return why the tool failed: its last words, and the exit code."""
        lines = (self.error.strip() or self.text.strip()).splitlines()
        return f"{' '.join(' '.join(lines[-3:]).split())[:300] or 'it printed nothing'} (exit code {self.code})"


class Machine:
    """This machine, or with a `root` a folder that stands for it, whose disks are regular files in ROOT/dev."""

    def __init__(self, root: str = "") -> None:
        self.root = Path(root).resolve() if root else Path("/")
        self.is_real = not root
        self.inherited: tuple[int, ...] = ()
        """File descriptors that tools inherit."""
        if not self.root.is_dir():
            raise DiskError("bad_request", f"The folder {root} of --root does not exist.")

    @property
    def state(self) -> Path:
        """The folder for jobs. It ends with the boot."""
        return self.root / "run" / "drydock-agent"

    def text(self, path: Path | str) -> str:
        """Return a small file without surrounding white space, or an empty string if it cannot be read."""
        try:
            with open(self.root / path, "rb") as opened:
                return opened.read(_TEXT).decode("utf-8", "replace").replace("\0", "").strip()
        except OSError:
            return ""

    def number(self, path: Path | str) -> int:
        """Return the number in a file, or 0."""
        text = self.text(path)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0

    def names(self, path: Path | str) -> list[str]:
        """Return the names in a folder, or none if it cannot be read."""
        try:
            return sorted(os.listdir(self.root / path))[:10_000]
        except OSError:
            return []

    def inside(self, path: Path | str) -> Path | None:
        """Return where a path leads when its links are followed, or None if that is missing or outside of the root."""
        try:
            found = (self.root / path).resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        return found if found.is_relative_to(self.root) else None

    def node(self, name: str) -> Path:
        """Return the path of a disk in /dev. Raises DiskError if it is a link, or not a disk."""
        path = self.root / "dev" / name
        try:
            mode = os.lstat(path).st_mode
        except OSError as error:
            raise DiskError("no_disk", f"/dev/{name} cannot be used: {error.strerror}.") from None
        if not (stat.S_ISBLK(mode) if self.is_real else stat.S_ISREG(mode)):
            wanted = "a block device" if self.is_real else "a regular file, as disks are with --root"
            raise DiskError("no_disk", f"/dev/{name} is not {wanted}.")
        return path

    def find(self, tool: str) -> str:
        """Return the path of a tool, or an empty string if it is not installed."""
        return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:{_PATHS}") or ""

    def run(self, *argv: str, seconds: float = 60.0, given: bytes = b"") -> Output:
        """Run a tool. Raises DiskError if it is not installed, does not end in time, or prints too much."""
        process = self.started(*argv, stdin=subprocess.PIPE if given else subprocess.DEVNULL)
        try:
            if given and process.stdin is not None:
                process.stdin.write(given)
                process.stdin.close()
            texts = _read(process, argv[0], time.monotonic() + seconds)
        except BrokenPipeError:
            texts = ["", "it did not read its input"]
        finally:
            end(process)
        return Output(code=process.returncode, text=texts[0], error=texts[1])

    def started(self, *argv: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a tool in the session of this program. Raises DiskError if it is not installed."""
        tool = self.find(argv[0])
        if not tool:
            raise DiskError("no_tool", f"{argv[0]} is not installed on this machine.")
        extra = {} if self.is_real else {"EFIVARFS_PATH": f"{self.root}/sys/firmware/efi/efivars/"}
        return subprocess.Popen(
            (tool, *argv[1:]), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", **extra}, pass_fds=self.inherited,
        )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a tool if it still runs, and close its pipes. One in an uninterruptible sleep is left to the kernel."""
    if process.poll() is None:
        process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.returncode = -9


def _read(process: subprocess.Popen[bytes], tool: str, until: float) -> list[str]:
    """Read both outputs until the tool ends."""
    assert process.stdout is not None
    assert process.stderr is not None
    pieces: dict[int, bytearray] = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for handle in pieces:
            selector.register(handle, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                raise DiskError("tool_timeout", f"{tool} did not end in time.")
            for key, _ in ready:
                piece = os.read(key.fd, _PIECE)
                pieces[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
                elif len(pieces[key.fd]) > _OUTPUT:
                    raise DiskError("tool_output", f"{tool} printed more than {_OUTPUT >> 20} MiB.")
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise DiskError("tool_timeout", f"{tool} did not end in time.") from None
    return [piece.decode("utf-8", "replace") for piece in pieces.values()]
