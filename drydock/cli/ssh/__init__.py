"""Commands that use the system's ssh with the keys and host keys of leases.

`login` has `drydock ssh` and `port-forward`, `config` has `ssh-config`, and `connection` is the ssh that both start.
"""

from drydock.cli.ssh.config import add_ssh_config
from drydock.cli.ssh.login import add_ssh

__all__ = ["add_ssh", "add_ssh_config"]
