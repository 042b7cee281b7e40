"""The demo, run by `make demo` and `drydock demo`.

`script` contains the scenes, `runner` gives them their own state folder and checks that nothing is left behind, and
`demo_output` prints the progress.
"""

from drydock.demo.runner import main

__all__ = ["main"]
