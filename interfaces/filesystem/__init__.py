"""Files of a leased resource, confined to its root."""

from interfaces.filesystem.contract import Filesystem, Progress, Transfer
from interfaces.filesystem.rooted import RootedFilesystem

__all__ = ["Filesystem", "Progress", "RootedFilesystem", "Transfer"]
