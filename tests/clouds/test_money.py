"""What a machine costs besides its offer's price, and how much it may cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from blueprints.amounts import Amounts
from blueprints.azure.kind import AzureHost
from blueprints.cloud.kind import CloudHost
from blueprints.ec2.kind import Ec2Host
from blueprints.ec2.market import table
from blueprints.gce.kind import GceHost
from blueprints.offers import Offer

TYPE = "m6a.large"


def _draft(kind: CloudHost, market: str = "on_demand", traits: tuple[str, ...] = ("sev_snp",), **more: Any) -> Any:
    config = kind.Config(credential="account", **more)
    requirements = SimpleNamespace(max_price=None, image=None, user_data=None)
    asked: Any = SimpleNamespace(
        requirements=requirements, amounts=Amounts(), traits=frozenset(traits), preferred_traits=frozenset(),
        forbidden_traits=frozenset(),
    )  # fmt: skip
    offer = Offer(
        location="us-east-1", zone="us-east-1a", type=TYPE, market=market, price=0.2, price_source="provider",
        vcpus=2, ram_mib=8192, confidential=("sev_snp",),
    )  # fmt: skip
    return kind.draft(config, asked, offer)


def test_amazons_fee_for_sev_snp_is_in_the_price() -> None:
    draft = _draft(Ec2Host())
    assert draft.price == pytest.approx(0.22)
    assert draft.attributes["price"] == pytest.approx(0.22)
    assert draft.facts["price_source"] == "provider, with the surcharge for sev_snp"


def test_on_the_spot_market_it_is_a_tenth_of_the_price_on_demand() -> None:
    usual = table().regions["us-east-1"].get(TYPE)
    draft = _draft(Ec2Host(), "spot")
    if usual is None:
        assert draft.facts["price_source"] == "provider, without the surcharge for sev_snp"
    else:
        assert draft.price == pytest.approx(0.2 + 0.1 * usual)


def test_googles_surcharge_is_said_to_be_missing() -> None:
    draft = _draft(GceHost())
    assert (draft.price, draft.facts["price_source"]) == (0.2, "provider, without the surcharge for sev_snp")


@pytest.mark.parametrize(("kind", "traits"), [(AzureHost(), ("sev_snp",)), (Ec2Host(), ()), (GceHost(), ())])
def test_without_a_surcharge_the_price_is_the_offers(kind: CloudHost, traits: tuple[str, ...]) -> None:
    draft = _draft(kind, traits=traits)
    assert (draft.price, draft.facts["price_source"]) == (0.2, "provider")


def test_what_costs_too_much_with_its_surcharge_is_not_built() -> None:
    draft = _draft(Ec2Host(), max_price=0.21)
    assert draft.facts["max_price"] == 0.21
    assert "$0.22" in draft.refused
    assert not _draft(Ec2Host(), max_price=0.22).refused
    assert not _draft(Ec2Host(), max_price=0.21, traits=()).refused
