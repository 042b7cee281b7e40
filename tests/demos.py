"""The frame of demos that the test peers carry: run to the end, stop everything, and say what did not come true."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from drydock.cli.toolkit.exits import stoppable, undisturbed
from drydock.demo.demo_output import DemoOutput
from drydock.demo.runner import clear, own_state
from tests.peers import PEERS, find


def run(name: str, story: Callable[[DemoOutput], None], *, settings: Mapping[str, str], page: str) -> int:
    """Run a demo that needs sshd, with these settings; its exit status. `page` is where to read on."""
    if find("sshd") is None:
        print(f"make {name} needs sshd: install the package {PEERS['sshd'].package}.", file=sys.stderr)
        return 2
    output = play(story, settings, what="demo")
    if output.broken:
        print(f"\nThe demo failed: {'; '.join(output.broken)}", file=sys.stderr)
        return 1
    output.scene(f"All of it came true. Next: {page}")
    return 0


def play(story: Callable[[DemoOutput], None], settings: Mapping[str, str], *, what: str) -> DemoOutput:
    """Run a story on engines of its own, and stop these. An error is a promise that was not kept."""
    output, state = DemoOutput(), own_state()
    os.environ |= settings
    try:
        with stoppable():
            story(output)
    except Exception as error:
        if os.environ.get("DRYDOCK_DEBUG"):
            raise
        output.promise(f"the {what} runs to its end", False, f"{type(error).__name__}: {error}")
    with undisturbed():
        clear(output, state)
    return output
