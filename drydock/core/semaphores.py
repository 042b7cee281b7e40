"""POSIX semaphores, which Celery's worker processes share. Linux keeps them in /dev/shm (`man 7 sem_overview`)."""

from __future__ import annotations

import multiprocessing


def problem() -> str:
    """Return why POSIX semaphores do not work on this machine and what to do; empty if they work."""
    try:
        multiprocessing.Lock()
    except (OSError, ImportError) as error:
        return (
            f"POSIX semaphores, which worker processes need, are not available ({error}). "
            "Mount shared memory: mount -t tmpfs -o mode=1777 tmpfs /dev/shm; in a container: --shm-size=64m."
        )
    return ""
