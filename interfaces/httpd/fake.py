"""A web server in memory, for tests: pages can be published and fetched, and errors can be provoked."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from interfaces.contract import StillMine
from interfaces.errors import ConfigRefused, NotRunning, PortTaken, WrongKind
from interfaces.files import normal
from interfaces.filesystem.contract import Transfer
from interfaces.filesystem.fake import FakeFilesystem
from interfaces.httpd.contract import Httpd, HttpdState, HttpdStatus, LogPart
from interfaces.httpd.site import Site
from interfaces.transport import Transport


def _always() -> None:
    """Let every operation continue, as for a lease that never ends."""


class FakeHttpd(Httpd):
    """A web server in memory. Set `config_error` to refuse configurations, or `port_taken` to refuse a start."""

    def __init__(
        self,
        transport: Transport | None = None,
        *,
        still_mine: StillMine = _always,
        site: Site | None = None,
    ) -> None:
        self.files = FakeFilesystem(transport, still_mine=still_mine)
        super().__init__(self.files.transport, still_mine=still_mine)
        self.site = site or Site(address="127.0.0.1", port=8080)
        self.config_error = ""
        self.port_taken = False
        self._state = HttpdState.STOPPED
        self._logs = {"access": bytearray(), "error": bytearray()}

    def fetch(self, path: str) -> bytes:
        """Return what a browser would get. Raises NotRunning, PathMissing."""
        if self._state is not HttpdState.RUNNING:
            raise NotRunning
        self._logs["access"] += f"GET /{path}\n".encode()
        try:
            return self.files.read_bytes(f"www/{path}")
        except WrongKind:
            return self.files.read_bytes(f"www/{path}/{self.site.index[0]}".replace("//", "/"))

    def fail(self) -> None:
        """Make the server fail."""
        self._state = HttpdState.FAILED

    def publish(self, path: str, content: bytes | str) -> str:
        where = f"www/{normal(path)}"
        self.files.mkdir(where.rpartition("/")[0])
        self.files.write_bytes(where, content.encode() if isinstance(content, str) else content)
        return self.uri(path)

    def publish_tree(self, local: Path, path: str = "") -> Transfer:
        return self.files.upload(local, f"www/{normal(path)}")

    def unpublish(self, path: str) -> None:
        self.files.remove(f"www/{normal(path)}", recursive=True)

    def uri(self, path: str = "") -> str:
        return self.site.uri(path)

    def start(self) -> HttpdStatus:
        self._watch("Starting the web server")
        if self._state is not HttpdState.RUNNING:
            self.test_config()
            if self.port_taken:
                raise PortTaken(f"Another program is already listening on {self.site.listen}.")
            self._state = HttpdState.RUNNING
        return self.status()

    def stop(self) -> HttpdStatus:
        self._watch("Stopping the web server")
        self._state = HttpdState.STOPPED
        return self.status()

    def restart(self) -> HttpdStatus:
        self.test_config()
        self.stop()
        return self.start()

    def reload(self) -> HttpdStatus:
        if self.status().state is not HttpdState.RUNNING:
            raise NotRunning
        self.test_config()
        return self.status()

    def status(self) -> HttpdStatus:
        self._watch("Reading the state of the web server")
        return HttpdStatus(state=self._state, pid=4711 if self._state is HttpdState.RUNNING else 0)

    def configure(self, site: Site) -> HttpdStatus:
        self.test_config()
        self.site = site
        return self.status()

    def test_config(self) -> None:
        self._watch("Testing the configuration")
        if self.config_error:
            self._logs["error"] += f"{self.config_error}\n".encode()
            raise ConfigRefused(self.config_error)

    def logs(self, kind: Literal["access", "error"], offset: int = 0, limit: int = 1 << 20) -> LogPart:
        self._watch("Reading a log")
        content = bytes(self._logs[kind][offset : offset + limit])
        return LogPart(content=content, next_offset=offset + len(content))
