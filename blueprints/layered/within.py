"""A transport confined to a folder of another transport's account.

Resources on a leased host use it to provide interfaces.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace

from interfaces.deadline import Deadline
from interfaces.files import Files
from interfaces.transport import Launch, Process, Transport


class Within(Transport):
    """Processes and paths start in `folder` (absolute on the host).

    `env` is added to the environment of processes; without it the folder is also their HOME.
    """

    def __init__(self, outer: Transport, folder: str, *, env: Mapping[str, str] | None = None) -> None:
        self.outer = outer
        self.folder = folder
        self._env = {"HOME": folder} if env is None else dict(env)

    def start(self, launch: Launch, deadline: Deadline) -> Process:
        env = {**self._env, **launch.env}
        return self.outer.start(replace(launch, cwd=self._joined(launch.cwd), env=env), deadline)

    def files(self, root: str) -> Files:
        return self.outer.files(self._joined(root))

    def close(self) -> None:
        self.outer.close()

    def _joined(self, path: str) -> str:
        # Never with a slash at the end: it would follow a link that stands in the folder's place.
        return posixpath.join(self.folder, path) if path else self.folder


def account_of(transport: Transport) -> Transport:
    """Return the transport to the account itself, outside any folder."""
    while isinstance(transport, Within):
        transport = transport.outer
    return transport
