"""What a machine has written on its serial console: a blob whose URL Azure gives for some minutes."""

from __future__ import annotations

import urllib3

from blueprints.cloud.faults import CloudError, Meaning

MOST = 65_536
"""Bytes."""


def newest(url: str, *, deadline: float, ca_bundle: str) -> str:
    """The last 64 KiB behind the URL, which is a secret and in no message; empty where there is nothing yet."""
    pool = urllib3.PoolManager(ca_certs=ca_bundle or None, retries=False)
    timeout = urllib3.Timeout(connect=min(deadline, 10.0), read=deadline)
    try:
        length = int(_length(pool, url, timeout))
        if not length:
            return ""
        answer = pool.request("GET", url, headers={"Range": f"bytes={max(0, length - MOST)}-"}, timeout=timeout)
        if answer.status >= 400:
            raise _unreadable(f"HTTP {answer.status}")
        return answer.data[-MOST:].decode(errors="replace")
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise _unreadable(type(error).__name__) from None
    finally:
        pool.clear()


def _length(pool: urllib3.PoolManager, url: str, timeout: urllib3.Timeout) -> str:
    answer = pool.request("HEAD", url, timeout=timeout)
    if answer.status == 404:
        return "0"
    if answer.status >= 400:
        raise _unreadable(f"HTTP {answer.status}")
    return answer.headers.get("Content-Length") or "0"


def _unreadable(why: str) -> CloudError:
    return CloudError(Meaning.UNAVAILABLE, f"The console's text could not be read: {why}.")
