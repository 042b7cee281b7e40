"""The ramdisk: a Debian that machines boot from memory, to be inspected, erased and written to.

It has an SSH server, the agent of this installation, and the tools for disks. `build` makes it from Debian's packages;
equal packages give equal bytes.
"""

from drydock.ramdisk.build import FILES, LABEL, Request, Result, build

__all__ = ["FILES", "LABEL", "Request", "Result", "build"]
