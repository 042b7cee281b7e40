"""The transport of an `SshEndpoint`."""

from __future__ import annotations

import paramiko

from drydock.core.errors import InvalidRequest
from interfaces import launch as launching
from interfaces.deadline import Deadline
from interfaces.endpoints import SshEndpoint
from interfaces.errors import ConnectionLost
from interfaces.files import Files
from interfaces.ssh.connection import SshConnection, private_key_of
from interfaces.ssh.files import SftpFiles
from interfaces.ssh.pool import POOL
from interfaces.ssh.process import SshProcess
from interfaces.transport import Launch, Process, Transport


class SshTransport(Transport):
    """The transport to an account over SSH.

    All transports of this process with the same endpoint and key share their connections.
    """

    def __init__(self, endpoint: SshEndpoint, *, private_key: str, bastion_key: str) -> None:
        private_key_of(private_key)
        if endpoint.bastion is not None:
            private_key_of(bastion_key)
        if endpoint.home and not endpoint.home.startswith("/"):
            raise InvalidRequest("The home folder must be an absolute path.", field="home")
        self.endpoint = endpoint
        self._private_key, self._bastion_key = private_key, bastion_key
        self._files: list[SftpFiles] = []

    def start(self, launch: Launch, deadline: Deadline) -> Process:
        mark = launching.new_mark()
        script = launching.script_of(launch, self.endpoint.environment, self.endpoint.home, mark)
        connection, channel = self.session(deadline)
        try:
            connection.request(channel, launching.CLEAN_BOOTSTRAP, deadline)
        except BaseException:
            self.give_back(connection)
            raise
        return SshProcess(
            connection,
            channel,
            script=script,
            greeting=launching.Greeting(mark),
            give_back=lambda: self.give_back(connection),
        )

    def session(self, deadline: Deadline) -> tuple[SshConnection, paramiko.Channel]:
        """Return a connection and a new channel on it.

        A dead connection is replaced once. Release it with `give_back`.
        """
        for fresh in (False, True):
            connection = POOL.borrow(self.endpoint, self._private_key, self._bastion_key, deadline, fresh=fresh)
            try:
                return connection, connection.session(deadline)
            except ConnectionLost:
                self.give_back(connection)
                if fresh:
                    raise
            except BaseException:
                self.give_back(connection)
                raise
        raise ConnectionLost(may_have_run=False)

    def give_back(self, connection: SshConnection) -> None:
        """Give back the connection that `session` returned."""
        POOL.give_back(connection)

    def files(self, root: str) -> Files:
        files = SftpFiles(self, root, home=self.endpoint.home)
        self._files.append(files)
        return files

    def close(self) -> None:
        while self._files:
            self._files.pop().close()
        POOL.close_to(self.endpoint)
