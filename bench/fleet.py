"""A fleet of clouds: a look through the catalogue against a read by primary key, and the status of many machines.

`python -m bench.fleet` on an empty database of its own (DRYDOCK_STATE); prints a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench import listing
from bench.figures import Figure, against, figure, show
from bench.installation import prepare

OFFERS = 20_000
MACHINES = 5_000
PLACES = 10
KIND = "fake_cloud"
_FILL = """
    INSERT INTO blueprints_listing (credential_id, kind, location, zone, type, market, price, price_source, vcpus,
        ram_mib, arch, gpu_maker, gpu_model, gpu_count, gpu_memory_mib, local_disk_gib, network, confidential, family,
        country, available)
    SELECT %(account)s, %(kind)s, 'r' || n %% %(places)s, 'r' || n %% %(places)s || 'abc'[n %% 3 + 1], 't' || n,
        CASE WHEN n %% 2 = 0 THEN 'on_demand' ELSE 'spot' END, (n * 7919 %% 10007) / 100.0, '', 2 ^ (n %% 8),
        2 ^ (n %% 8) * 4096, CASE WHEN n %% 5 = 0 THEN 'arm64' ELSE 'x86_64' END, '',
        CASE WHEN n %% 97 = 0 THEN 'a100' ELSE '' END, CASE WHEN n %% 97 = 0 THEN 1 ELSE 0 END, 0, 0, '',
        CASE WHEN n %% 31 = 0 THEN ARRAY['tdx'] ELSE '{}' END::varchar[], '', 'US', TRUE
    FROM generate_series(1, %(count)s) n"""


def figures(*, offers: int = OFFERS, machines: int = MACHINES, times: int = 40) -> Iterator[Figure]:
    """All figures, on rows of their own."""
    from blueprints.models import Blueprint, Credential
    from leases.engine.core.database import run

    account = Credential(name="bench")
    account.secrets = {"provider": "bench"}
    account.save()
    config = {"provider": "bench", "credential": "bench"}
    blueprint = Blueprint.objects.create(name="bench-cloud", kind=KIND, resource_type=KIND, config=config)
    run(_FILL.replace("'abc'[n %% 3 + 1]", "(ARRAY['a','b','c'])[n %% 3 + 1]"), {
        "account": account.pk, "kind": KIND, "places": PLACES, "count": offers,
    })  # fmt: skip
    run("VACUUM ANALYZE blueprints_listing")
    yield from _searches(offers, times)
    yield from listing.figures(account.pk, blueprint.pk, machines=machines, places=PLACES, kind=KIND)


def _searches(offers: int, times: int) -> Iterator[Figure]:
    from blueprints.amounts import Amounts
    from blueprints.offers import Sought
    from leases.engine.catalogue import offers as catalogue
    from leases.engine.core.database import rows

    some = rows("SELECT min(id) FROM blueprints_listing")[0][0]

    def by_key() -> object:
        return rows("SELECT * FROM blueprints_listing WHERE id = %s", (some,))

    cases: dict[str, dict[str, Any]] = {
        "8 processors, the cheapest": {"amounts": Amounts(cpu_millicores=8000)},
        "a GPU in two regions": {"gpu_model": "a100", "locations": ("r1", "r2"), "markets": ("on_demand", "spot")},
        "TDX below a price": {"confidential": ("tdx",), "max_price": 20.0, "markets": ("on_demand", "spot")},
        "nothing that fits": {"gpu_model": "h900"},
    }
    for name, asked in cases.items():
        sought = Sought(account="bench", **asked)
        spent, ratio = against(lambda s=sought: catalogue.find(KIND, s, limit=1), by_key, times)  # type: ignore[misc]
        yield figure(f"of {offers} offers: {name}", spent * 1000, "ms", "a read by primary key", ratio)
    yield from _pages(offers, by_key, times)


def _pages(offers: int, by_key: Callable[[], object], times: int) -> Iterator[Figure]:
    """What people page through: 50 at a time, of all accounts."""
    from blueprints.offers import Sought
    from leases.reports import offers as offer_search
    from leases.reports.offers import Search

    search = Search(sought=Sought(account="", markets=("on_demand", "spot")))
    pages: dict[str, Callable[[], object]] = {
        "a page of 50 by price": lambda: offer_search.offers(search, sort="price", after=None, limit=50),
        "a page of 50 instance types": lambda: offer_search.types(search, after=0, limit=50),
        "a page of 50 instance types, in the middle": lambda: offer_search.types(search, after=offers // 2, limit=50),
    }
    for name, page in pages.items():
        spent, ratio = against(page, by_key, times)
        yield figure(f"of {offers} offers: {name}", spent * 1000, "ms", "a read by primary key", ratio)


def main() -> None:
    prepare(max_resources=None, min_ready=0)
    show(figures())


if __name__ == "__main__":
    import django

    django.setup()
    main()
