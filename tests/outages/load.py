"""A client under load: `python -m tests.outages.load OWNER`. It leases, waits, releases, over and over, until its input
ends, and says one line of JSON for each lease. It catches nothing: `Allocator` has to go on by itself."""

from __future__ import annotations

import json
import sys
import threading
import time


def main() -> None:
    """Work until standard input ends."""
    import django

    django.setup()
    from django.contrib.auth import get_user_model

    from leases.allocator import Allocator

    owner = get_user_model().objects.get(username=sys.argv[1])
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while not over.is_set():
        asked = time.time()
        with Allocator("fake_activated", owner=owner).allocate() as lease:
            print(json.dumps({"lease": lease.id, "asked": asked, "active": time.time()}), flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
