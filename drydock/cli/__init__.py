"""The command line. It asks everything of a `leases.client.Client` and knows nothing of the engine behind it.

Modules here import Django and the engine only once a command runs, so that `--help` and completion are quick.
"""

from __future__ import annotations


def main() -> None:
    """The `drydock` script."""
    from drydock.cli.program import app

    app(prog_name="drydock")
