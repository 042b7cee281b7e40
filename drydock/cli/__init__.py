"""The command line.

It does everything through a `drydock_client.protocol.Client`, and does not depend on the engine behind it. Its modules
import Django and the engine only when a command runs, so that `--help` and completion are fast.
"""

from __future__ import annotations


def main() -> None:
    """Run the `drydock` program."""
    from drydock.cli.program import app

    app(prog_name="drydock")
