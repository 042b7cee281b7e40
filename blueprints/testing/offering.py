"""Conformance: kinds that build what a provider offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from blueprints.contract import Offers
from blueprints.matching import misses
from blueprints.offers import Account, Offer
from blueprints.specs import Owned
from blueprints.testing.bench import TAGS
from blueprints.testing.phases import Phases, needs
from blueprints.testing.rules import frozen, json_safe


class Offering(Phases):
    """Tests of locations, the inventory, drafts made from offers, and the status of the machines built."""

    @needs(Offers)
    def test_the_inventory_is_the_same_again_with_names_that_are_unique(self) -> None:
        first, second = self._inventory(), self._inventory()
        assert first, "nothing is offered in any place"
        assert [_kept(one) for one in first] == [_kept(one) for one in second]
        assert len({one.name for one in first}) == len(first)
        for offer in first:
            frozen(offer)
            assert offer.price is None or offer.price >= 0
            assert offer.market in ("on_demand", "spot")

    @needs(Offers)
    def test_places_are_unique_and_the_same_again(self) -> None:
        kind, account = self.offering(), self.account()
        names = [place.name for place in kind.places(account)]
        assert len(set(names)) == len(names)
        assert names == [place.name for place in kind.places(account)]
        assert set(kind.located(self.blueprint().config)) <= set(names) or names == [""]

    @needs(Offers)
    def test_a_wrong_account_is_an_error_and_no_empty_inventory(self) -> None:
        for secrets in self.wrong_secrets():
            assert self._refusal(secrets), "the provider did not refuse wrong_secrets()"

    @needs(Offers)
    def test_a_draft_of_an_offer_is_what_was_asked(self) -> None:
        config, asked = self.blueprint().config, self.asked()
        for offer in self.offers():
            draft = self.offering().draft(config, asked, offer)
            assert draft == self.offering().draft(config, asked, offer)
            assert (draft.offer, draft.price) == (offer.name, offer.price)
            assert asked.amounts.fits_in(draft.capacity)
            required = asked.requirements.model_dump(mode="json", exclude_none=True)
            assert not misses(self.kind.matches, draft.attributes, required)
            self.kind.Attributes.model_validate(draft.attributes)
            json_safe("facts of a draft", draft.facts)

    @needs(Offers)
    def test_what_is_sought_names_the_account_and_is_frozen(self) -> None:
        config = self.blueprint().config
        for asked in (None, self.asked()):
            sought = self.offering().sought(config, asked)
            frozen(sought)
            assert sought.account in self.credentials()

    @needs(Offers)
    def test_what_was_built_is_observed_with_its_status_until_it_is_gone(self) -> None:
        resource = self.built()
        seen = {one.key: one for one in self._observed(TAGS["drydock-installation"])}
        assert resource.key in seen
        assert TAGS.items() <= seen[resource.key].tags.items()
        assert seen[resource.key].state
        json_safe("facts of what is observed", seen[resource.key].facts)
        assert resource.key not in {one.key for one in self._observed("another1")}
        self.destroyed(resource)
        left = {one.key: one for one in self._observed(TAGS["drydock-installation"])}
        assert resource.key not in left or left[resource.key].lost

    def _refusal(self, secrets: Mapping[str, str]) -> str:
        """Return the error that an account with wrong secrets gets, or an empty string if the secrets are accepted."""
        kind, wrong = self.offering(), Account(name=self.account().name, secrets=secrets)
        try:
            for place in kind.places(wrong):
                kind.inventory(wrong, place.name)
        except Exception as error:
            return str(error)
        return ""

    def _observed(self, installation: str) -> Sequence[Owned]:
        kind, account = self.offering(), self.account()
        return [one for place in kind.places(account) for one in kind.observe(account, place.name, installation)]

    def _inventory(self) -> list[Offer]:
        kind, account = self.offering(), self.account()
        found = [offer for place in kind.places(account) for offer in kind.inventory(account, place.name)]
        return sorted(found, key=lambda offer: offer.name)


def _kept(offer: Offer) -> dict[str, object]:
    """Return the fields of an offer that stay the same from one poll to the next."""
    return asdict(replace(offer, price=None, price_source="", boot_seconds=None, available=True))
