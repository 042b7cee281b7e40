"""Make the pictures of the README: `make pictures`.

Runs the commands that the pictures show in an installation of its own, in a temporary folder, and ends it afterwards.
The terminal becomes SVG through rich, the console PNG through a Chromium that Playwright drives.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from drydock.demo import captured

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM = Path(sys.executable).parent / "drydock"
COLUMNS, LINES = 104, 50
LARGEST = 200_000
"""Bytes. A picture that is larger makes every clone slower."""
PATIENCE = 120.0
READ = 1 << 16

SETUP = (
    "drydock blueprints add this-machine local_host slots=4",
    "drydock blueprints add folders storage",
    "drydock blueprints add sites webroot",
)
LEASE = (
    "drydock lease host --vcpus 1 -- uname -sm",
    "drydock lease host --keep --name mine --ttl 1h",
    "drydock run mine -- sh -c 'echo hello > greeting; ls'",
    "drydock lease webroot --keep --name site",
    "drydock leases",
    "drydock resources",
)
GPUS = "drydock blueprints add gpus accelerators captured={tree}"
GPU = "drydock lease accelerator -r class=gpu --keep --name gpu --ttl 1h"
WAITING = ("drydock explain host --vcpus 10000",)


def typed(command: str, environment: dict[str, str]) -> str:
    """Run a command as on a terminal. Returns what it writes, with colours; progress on standard error is dimmed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    words = [str(PROGRAM), *shlex.split(command)[1:]]
    with subprocess.Popen(words, env=environment, cwd=environment["HOME"], stdin=slave, stdout=slave,
                          stderr=subprocess.PIPE) as process:  # fmt: skip
        os.close(slave)
        shown = b"".join(_read(master, process)).decode().replace("\r\n", "\n")
    os.close(master)
    if process.returncode not in (0, 6):  # 6: refused, which is what `explain` is shown for
        raise SystemExit(f"{command} failed with {process.returncode}:\n{shown}")
    return shown


def _read(master: int, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield what comes from both streams, in the order in which it comes."""
    assert process.stderr is not None
    streams = [master, process.stderr.fileno()]
    while streams:
        for stream in select.select(streams, [], [], PATIENCE)[0] or streams:
            try:
                part = os.read(stream, READ)
            except OSError:  # EIO: the command has closed its side of the terminal
                part = b""
            if not part:
                streams.remove(stream)
            else:
                yield part if stream == master else b"\x1b[2m" + part + b"\x1b[0m"


def draw(commands: tuple[str, ...], environment: dict[str, str], name: str, title: str) -> None:
    """Run commands and write an SVG of the terminal that shows them."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    for command in commands:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        if shown := typed(command, environment).strip("\n"):
            console.print(Text.from_ansi(shown))
    drawn = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    # Fonts of another site: where a page shows the picture, they are not loaded anyway.
    keep(name + ".svg", re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL).encode())


def keep(name: str, content: bytes) -> None:
    """Write a picture."""
    if len(content) > LARGEST:
        raise SystemExit(f"{name} has {len(content)} bytes; at most {LARGEST} are allowed.")
    (HERE / name).write_bytes(content)
    print(f"{(HERE / name).relative_to(ROOT)}: {len(content) // 1000} kB")


@contextmanager
def web(environment: dict[str, str], log: Path) -> Iterator[str]:
    """Run `make up`'s processes and yield the address of the console."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as out, subprocess.Popen(
        [sys.executable, "-m", "drydock.up"], env=environment | {"DRYDOCK_WEB_PORT": str(port)}, cwd=ROOT,
        stdout=out, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            _until_ready(address, process, log)
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


def _until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"{address}/readyz", timeout=5):  # noqa: S310 - our own process
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"The web process is not ready:\n{log.read_text()}")


def photograph(address: str, password: str, lease_id: int) -> None:
    """Sign in to the console and write a PNG of the overview, of a lease and of the hardware."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("Chromium is needed for the pictures of the console (Debian: apt install chromium).")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        page = browser.new_page(base_url=address, viewport={"width": 1200, "height": 800}, color_scheme="light")
        page.goto("/admin/")
        page.fill("input[name=username]", "admin")
        page.fill("input[name=password]", password)
        page.click("input[type=submit]")
        _take(page, "/admin/", "console.png")
        _take(page, f"/admin/leases/lease/{lease_id}/change/", "lease.png")
        _take(page, "/admin/hardware/", "hardware.png")
        browser.close()


def _take(page: Page, address: str, name: str) -> None:
    page.goto(address)
    page.wait_for_load_state("networkidle")
    keep(name, page.screenshot())


def give_back(environment: dict[str, str]) -> None:
    """End the leases, and remove what is built: a storage is a file system mounted below the temporary folder."""
    typed("drydock release site mine gpu", environment)
    typed("drydock blueprints disable gpus", environment)
    for device in json.loads(typed("drydock resources list --blueprint gpus --json", environment)):
        typed(f"drydock resources retire {device['id']}", environment)
    until = time.monotonic() + PATIENCE
    while len(json.loads(typed("drydock resources --json", environment))) > 1 and time.monotonic() < until:
        typed("drydock reclaim", environment)  # the site first, then the storage that it was on


def main() -> None:
    """Make every picture."""
    with tempfile.TemporaryDirectory(prefix="dd-", dir="/tmp") as folder:  # sockets want a short path
        Path(folder).chmod(0o711)
        home = Path(folder) / "home"
        home.mkdir()
        environment = {
            "HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS), "DRYDOCK_STATE": str(Path(folder) / "state"), "DRYDOCK_USER": "ada",
        }  # fmt: skip
        log = Path(folder) / "up.log"
        with web(environment, log) as address:
            found = re.search(r"sign in as admin with (\S+)", log.read_text())
            if found is None:
                raise SystemExit(f"No password was printed:\n{log.read_text()}")
            try:
                for command in SETUP:
                    typed(command, environment)
                draw(LEASE, environment, "terminal", "drydock")
                draw(WAITING, environment, "explain", "drydock explain")
                captured.write(Path(folder) / "captured")
                typed(GPUS.format(tree=Path(folder) / "captured"), environment)
                typed(GPU, environment)
                photograph(address, found[1], json.loads(typed("drydock show site --json", environment))["id"])
            finally:
                give_back(environment)


if __name__ == "__main__":
    main()
