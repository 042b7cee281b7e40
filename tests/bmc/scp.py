"""The transfer by SCP as NVIDIA's BMC makes it: a real `scp` process, which logs in with the BMC's key.

The rules are those of the firmware (https://github.com/NVIDIA/phosphor-bmc-code-mgmt, `bmc/scp-transfer`): the old
protocol, the keys of PublicKeyExchange and no others, and "Sending file modes:" in the log of a transfer. An OpenSSH
client stands for Dropbear's.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interfaces.keys import KeyPair, new_key_pair
from tests.bmc.bluefield import Reply, _refusal

ACTIONS = "/redfish/v1/UpdateService/Actions/Oem"
EXCHANGE = f"{ACTIONS}/NvidiaUpdateService.PublicKeyExchange"
UNKNOWN_HOST = "Please provide server's public key using PublicKeyExchange"


@dataclass
class Scp:
    """The servers that the BMC knows, and its own key."""

    key: KeyPair = field(default_factory=lambda: new_key_pair("root@dpu-bmc"))
    known: list[str] = field(default_factory=list)
    """Lines of known_hosts, `address type key`."""
    ports: dict[str, int] = field(default_factory=dict)
    """Address -> port of a server that stands for one on port 22."""
    logs: list[str] = field(default_factory=list)
    """The output of the client."""
    sent: str = ""
    """The answer to an exchange in place of the key."""

    def exchange(self, given: dict[str, Any]) -> Reply:
        address, key = given["RemoteServerIP"], given["RemoteServerKeyString"]
        if len(key.split()) != 2:
            return _refusal("400 Bad Request", "ActionParameterValueTypeError")
        if (line := f"{address} {key}") not in self.known:
            self.known.append(line)
        said = "Please add the following public key info to ~/.ssh/authorized_keys on the remote server"
        infos = [{"Message": said, "MessageArgs": [self.sent or self.key.public]},
                 {"Message": "The request completed successfully.", "MessageArgs": []}]  # fmt: skip
        return "200 OK", {"@Message.ExtendedInfo": infos}, []

    def run(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run `scp` or `ssh` as the BMC: with its key, and with the servers that it knows."""
        with tempfile.TemporaryDirectory(prefix="drydock-bmc-") as name:
            folder = Path(name)
            (folder / "key").touch(mode=0o600)
            (folder / "key").write_text(self.key.private)
            (folder / "known").write_text("".join(f"{line}\n" for line in self.known))
            options = [
                "BatchMode=yes", "IdentitiesOnly=yes", f"IdentityFile={folder}/key", "StrictHostKeyChecking=yes",
                f"UserKnownHostsFile={folder}/known", "GlobalKnownHostsFile=/dev/null", "ConnectTimeout=10",
            ]  # fmt: skip
            chosen = [word for option in options for word in ("-o", option)]
            return subprocess.run(
                [words[0], "-F", "/dev/null", *chosen, *words[1:]],
                input=given, capture_output=True, timeout=60, check=False,
            )  # fmt: skip

    def to(self, address: str) -> list[str]:
        """Return the options that lead to the server that stands for an address."""
        return ["-o", f"HostKeyAlias={address}", "-o", f"Port={self.ports.get(address, 22)}"]

    def fetch(self, uri: str, username: str) -> tuple[bytes, str]:
        """Fetch a file. Returns its content, and the message with which the task fails if there is one."""
        address, _, path = uri.partition("/")
        with tempfile.TemporaryDirectory(prefix="drydock-boot-") as folder:
            target = Path(folder) / "boot"
            done = self.run("scp", "-O", "-v", *self.to(address), f"{username}@{address}:{path}", str(target))
            log = done.stderr.decode(errors="replace")
            self.logs.append(log)
            if "Host key verification failed" in log:
                return b"", UNKNOWN_HOST
            if "Sending file modes:" not in log or done.returncode:
                return b"", f"The transfer of '{path.rpartition('/')[2]}' failed."
            return target.read_bytes(), ""
