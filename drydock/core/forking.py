"""Import modules in threads of a process that is forked, such as the main process of a worker.

A child inherits the lock of a module that another thread is importing at that moment. Nobody releases it in the child,
which would wait forever when it imports the module itself, with all the rows that it has locked. So no process is
forked while a module is loaded here.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from types import ModuleType

_loading = threading.RLock()
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


def load(name: str) -> ModuleType:
    """Import the module with this name. A fork of this process waits meanwhile. Raises what the import raises."""
    with _loading:
        return import_module(name)
