"""A folder that behaves as the kernel's `/sys/kernel/config/tsm/report` does in a TDX guest.

For each folder that appears in it and whose `inblob` has 64 bytes, `provider` and `outblob` are written. Unlike the
kernel, it cannot be removed by rmdir, so `over` removes it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

Answer = Callable[[bytes], bytes | None]


class Double:
    """`answer` returns the quote for report data, or None for no quote at all."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.provider = "tdx_guest"
        self.asked: list[bytes] = []
        self.names: list[str] = []
        self._base = Path(tempfile.mkdtemp(prefix="drydock-tsm-"))
        self._base.chmod(0o711)
        self.folder = self._base / "report"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="tsm double")
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.wait(0.01):
            for report in self.folder.iterdir():
                with contextlib.suppress(OSError):
                    self._look(report)

    def _look(self, report: Path) -> None:
        content = (report / "inblob").read_bytes()
        if len(content) != 64 or report.name in self.names:
            return
        self.names.append(report.name)
        self.asked.append(content)
        quote = self.answer(content)
        if quote is not None:
            (report / "provider").write_text(f"{self.provider}\n")
            (report / "new").write_bytes(quote)
            (report / "new").rename(report / "outblob")

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        shutil.rmtree(self._base)


@contextlib.contextmanager
def double(answer: Answer) -> Iterator[Double]:
    made = Double(answer)
    try:
        yield made
    finally:
        made.end()
