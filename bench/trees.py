"""Trees of resources: an accelerator among the parts of many hosts, a whole host, and both together.

`python -m bench.trees [hosts]` on an empty database of its own (DRYDOCK_STATE); prints a table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from bench import population
from bench.figures import Figure, figure, show, timed
from bench.installation import prepare

HOSTS = 10_000
PARTS = 8
WHOLES, CARDS = "fake", "fake_cloud"
"""The types of hosts and of their cards."""


def figures(*, hosts: int = HOSTS, times: int = 60) -> Iterator[Figure]:
    """All figures. A claim in a tree is compared with one of the same type where no resource has relatives."""
    owner, pools = 0, {}
    for kind in (WHOLES, CARDS):
        for name in (f"bench-plain-{kind}", f"bench-tree-{kind}"):
            owner, pools[name] = prepare(kind, name, max_resources=0, min_ready=0)
    nine = [{"type": WHOLES}, *[{"type": CARDS}] * PARTS]
    near = [
        {"type": WHOLES, "exclusive": True}, *[{"type": CARDS, "requirements": {"color": "gpu"}}] * PARTS,
        {"type": CARDS, "requirements": {"color": "nic"}},
    ]  # fmt: skip
    both = [{"type": WHOLES, "exclusive": True}, *[{"type": CARDS}] * PARTS]
    for kind in (WHOLES, CARDS):
        population.resources(pools[f"bench-plain-{kind}"], kind, hosts)
    plain = {kind: timed(_claim(owner, kind), times) for kind in (WHOLES, CARDS)}
    group = timed(_group(owner, nine), max(3, times // 6))
    population.remove(list(pools.values()))
    population.trees(pools[f"bench-tree-{WHOLES}"], pools[f"bench-tree-{CARDS}"], WHOLES, CARDS, hosts, parts=PARTS)

    def compared(name: str, kind: str, **asked: Any) -> Figure:
        spent = timed(_claim(owner, kind, **asked), times)
        return figure(f"tree: {name}", spent * 1000, "ms", "a plain claim", spent / plain[kind])

    yield compared(f"one of {PARTS * hosts} cards", CARDS)
    yield compared(f"one of {hosts} hosts, whole", WHOLES, exclusive=True)
    yield compared(f"one of {hosts} hosts, a slot", WHOLES)
    spent = timed(_group(owner, both, same="host"), max(3, times // 6))
    yield figure(f"tree: a host and {PARTS} cards in a group", spent * 1000, "ms", "a plain group", spent / group)
    population.positions(pools[f"bench-tree-{WHOLES}"], pools[f"bench-tree-{CARDS}"], CARDS)
    spent = timed(_group(owner, near, same="host", near="require"), max(3, times // 6))
    yield figure(f"tree: a host and {PARTS} cards near a NIC", spent * 1000, "ms", "a plain group", spent / group)
    population.occupy(pools[f"bench-tree-{WHOLES}"])
    yield compared("a whole host, all others have a leased card", WHOLES, exclusive=True)
    population.close_wholes(pools[f"bench-tree-{WHOLES}"], hosts // 2)
    yield compared("a card, half of the hosts are closed", CARDS)
    population.close_wholes(pools[f"bench-tree-{WHOLES}"], hosts)
    yield compared("no card, all hosts are closed", CARDS)
    yield compared("no whole host, all hosts are closed", WHOLES, exclusive=True)


def _claim(owner: int, resource_type: str, **asked: Any) -> Callable[[], None]:
    """A lease, released at once."""
    from django.contrib.auth import get_user_model

    from leases.allocator import Allocator
    from leases.messaging import hints

    user = get_user_model()._default_manager.get(pk=owner)

    def claim() -> None:
        with hints.collected():
            Allocator(resource_type, owner=user, **asked).allocate().release()

    return claim


def _group(owner: int, asked: list[dict[str, Any]], *, same: str = "", near: str = "") -> Callable[[], None]:
    """A group, granted and released."""
    from leases.engine.lifecycle import release
    from leases.engine.queue import groups
    from leases.engine.scheduling import request
    from leases.messaging import hints
    from leases.validation.requests import read

    requests = [read(one) for one in asked]

    def together() -> None:
        with hints.collected():
            group, ids = request.request_group(requests, owner, actor="bench", same=same, near=near)
            outcome = groups.advance(group)
            assert outcome is groups.Outcome.GRANTED, outcome
            for lease_id in ids:
                release.release(lease_id, actor="bench")

    return together


def main() -> None:
    given = [int(word) for word in sys.argv[1:] if word.isdigit()]
    show(list(figures(hosts=given[0] if given else HOSTS)))


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    django.setup()
    main()
