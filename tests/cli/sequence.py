"""Many commands in one process: `python -m tests.cli.sequence`, their words as a JSON list of lists on stdin.

Prints a JSON list of [exit code, standard output, standard error].
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from typing import Any


def _one(command: Any, words: Sequence[str]) -> tuple[int, str, str]:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command(list(words), prog_name="drydock")
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    import typer.main

    from drydock.cli.program import app

    commands = typer.main.get_command(app)
    print(json.dumps([_one(commands, words) for words in json.load(sys.stdin)]))
