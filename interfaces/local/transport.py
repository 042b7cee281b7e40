"""The transport of a `LocalEndpoint`."""

from __future__ import annotations

import os
from dataclasses import replace

from drydock.core.errors import InvalidRequest
from interfaces.deadline import Deadline
from interfaces.endpoints import LocalEndpoint
from interfaces.files import Files
from interfaces.local.files import LocalFiles
from interfaces.local.process import LocalProcess
from interfaces.transport import Launch, Process, Transport


class LocalTransport(Transport):
    """The transport to an account on this machine. Raises InvalidRequest unless we are root or that account."""

    def __init__(self, endpoint: LocalEndpoint) -> None:
        if os.geteuid() not in (0, endpoint.uid):
            raise InvalidRequest("Only root can run commands as another account.", field="uid")
        self.endpoint = endpoint
        self._files: list[LocalFiles] = []

    def unbounded(self) -> LocalTransport:
        """Return a transport to the account without limits, to end its processes even if they have reached a limit."""
        return LocalTransport(replace(self.endpoint, processes=0, open_files=0, cgroup=""))

    def start(self, launch: Launch, deadline: Deadline) -> Process:
        deadline.check("Starting a process")
        return LocalProcess(launch, self.endpoint)

    def files(self, root: str) -> Files:
        files = LocalFiles(os.path.join(self.endpoint.home, root), self.endpoint)
        self._files.append(files)
        return files

    def close(self) -> None:
        while self._files:
            self._files.pop().close()
