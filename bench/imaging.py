"""Writing an image to a disk: the ramdisk's agent against `curl | dd`, from the same server to the same file.

`python -m bench.imaging [MiB]` needs no database; prints a table.
"""

from __future__ import annotations

import hashlib
import http.server
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figures import Figure, figure, seconds, show

MIB = 1024
AT_LEAST = 0.8
_CHUNK = 1 << 20
_TOOLS = ("curl", "dd")


def figures(*, mib: int = MIB, rounds: int = 3) -> Iterator[Figure]:
    """All figures. The three ways take turns, and meet the same noise."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        print(f"{' and '.join(missing)} are not installed, so no image is written.", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="dd-bench-image-", dir=_folder()) as name:
        disk = _Disk(Path(name), mib)
        with _served(disk.image) as url:
            ways: dict[str, Callable[[], float]] = {
                "curl": lambda: seconds(lambda: disk.piped(url)), "agent": lambda: disk.written(url),
                "unread": lambda: disk.written(url, read_back=False),
            }  # fmt: skip
            for way in ways.values():
                way()
            rates: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, work in ways.items():
                    rates[way].append(mib / work())
    piped, agent, unread = (statistics.median(one) for one in rates.values())
    yield figure(f"curl | dd of an image of {mib} MiB", piped, "MiB/s")
    name = "the agent: downloaded, hashed, written and read back"
    yield figure(name, agent, "MiB/s", f"{AT_LEAST:g} x curl | dd", _ratio(rates["agent"], rates["curl"]) / AT_LEAST)
    yield figure("the same against curl | dd", agent, "MiB/s", "curl | dd", _ratio(rates["agent"], rates["curl"]))
    yield figure("the same without reading back", unread, "MiB/s", "curl | dd", _ratio(rates["unread"], rates["curl"]))


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def _folder() -> str:
    """The folder of the disk: of the file system that is measured."""
    return os.environ.get("DRYDOCK_BENCH_DISK") or tempfile.gettempdir()


class _Disk:
    """A machine with one disk, a regular file, as the agent finds it below a folder."""

    def __init__(self, folder: Path, mib: int) -> None:
        self._root, self.image = folder / "machine", folder / "image.raw"
        self._node = self._root / "dev" / "vda"
        self._sha256 = _made(self.image, mib)
        about = {
            "sys/block/vda/size": str((mib + 16) * 2048), "sys/block/vda/removable": "0", "sys/block/vda/ro": "0",
            "sys/block/vda/dev": "254:0", "sys/block/vda/queue/logical_block_size": "512",
            "sys/block/vda/serial": "bench", "proc/self/mountinfo": "22 1 0:20 / / rw - rootfs rootfs rw",
            "proc/swaps": "Filename Type Size Used Priority",
        }  # fmt: skip
        for path, text in about.items():
            file = self._root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        (self._root / "run").mkdir()
        self._node.parent.mkdir()
        with self._node.open("wb") as opened:
            opened.truncate((mib + 16) << 20)

    def piped(self, url: str) -> None:
        """Write the image as everybody does."""
        with subprocess.Popen(["curl", "-sf", url], stdout=subprocess.PIPE) as curl:
            words = ["dd", f"of={self._node}", "bs=1M", "conv=notrunc,fsync", "iflag=fullblock", "status=none"]
            subprocess.run(words, stdin=curl.stdout, check=True)
        if curl.returncode:
            raise RuntimeError(f"curl ended with {curl.returncode}.")

    def written(self, url: str, *, read_back: bool = True) -> float:
        """Write the image by the agent in a process of its own. Return its seconds, without the start of Python."""
        words = ["-m", "bench.imaging", "write", str(self._root), url, self._sha256, str(int(read_back))]
        told = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True).stdout
        return float(told)


def _made(file: Path, mib: int) -> str:
    """Make an image with a partition table, and return its SHA-256."""
    digest, piece = hashlib.sha256(), os.urandom(_CHUNK)
    with file.open("wb") as opened:
        for number in range(mib):
            content = number.to_bytes(8, "big") + piece[8:]
            if not number:
                content = bytes(510) + b"\x55\xaa" + content[512:]
            opened.write(content)
            digest.update(content)
    return digest.hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        file: Path = self.server.file  # type: ignore[attr-defined]
        size = file.stat().st_size
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        with file.open("rb") as opened:
            offset = 0
            while offset < size:
                offset += os.sendfile(self.connection.fileno(), opened.fileno(), offset, size - offset)

    def log_message(self, *words: Any) -> None:
        pass


@contextmanager
def _served(file: Path) -> Iterator[str]:
    """Serve the image. The kernel copies it, so that the server takes little of the processors."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.file = file  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/image.raw"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Silent:
    """Takes the reports of a job."""

    def report(self, percent: float, sentence: str) -> None:
        pass


def _write(root: str, url: str, sha256: str, read_back: str) -> None:
    """Carry out the job of `drydock-agent disks write` in this process, with or without reading back."""
    from drydock_agent.disks import deployment, requests
    from drydock_agent.disks.machine import Machine

    if read_back == "0":
        deployment._Deployment._read_back = lambda *_: None  # type: ignore[method-assign]
    request = requests.write_request({"url": url, "sha256": sha256, "format": "raw", "disk": {"name": "vda"}})
    machine = Machine(root)
    disk, silent = deployment.target(machine, request), _Silent()
    print(seconds(lambda: deployment.write(machine, request, disk, silent)))  # type: ignore[arg-type]


def main() -> None:
    if sys.argv[1:2] == ["write"]:
        return _write(*sys.argv[2:])
    given = [int(word) for word in sys.argv[1:] if word.isdigit()]
    return show(list(figures(mib=given[0] if given else MIB)))


if __name__ == "__main__":
    main()
