"""`drydock hosts`: bare-metal hosts from registration to proven erasure.

`commands` has the commands, `imports` registers the hosts of a file one by one, and `spreadsheet`, `ironic` and `maas`
read the files. `validation` has the command `validate`. `rows` is what these have in common.
"""

from drydock.cli.hosts.commands import add_hosts

__all__ = ["add_hosts"]
