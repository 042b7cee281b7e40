"""The kind bluefield_card keeps the contract, with the BMC of a card over TLS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from blueprints.answers import Hold, Json, Resolution
from blueprints.dpu.bluefield_card.kind import BluefieldCard
from blueprints.records.logins import LoginsInMemory
from blueprints.specs import Draft, ResourceView
from blueprints.testing.conformance import KindConformance, Outside
from tests.bmc.bluefield import FACTORY, SERIAL, bluefield

RETURNED = "Handed-back.2026"
pytestmark = pytest.mark.timeout(240, func_only=True)


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


class TestBluefieldCard(KindConformance):
    """A card with the factory's password, which gets one that operators know when it is handed back."""

    kind = BluefieldCard()

    @pytest.fixture(autouse=True)
    def _bmc(self) -> Iterator[None]:
        with bluefield() as self.bmc:
            yield
            assert not self.bmc.locked
            assert self.bmc.basic == 0
            assert self.bmc.most_open <= 1
        assert not self.outside()

    def config(self) -> Json:
        return {"return_credential": "returned"}

    def credentials(self) -> dict[str, dict[str, str]]:
        return {"returned": {"password": RETURNED}}

    def requirements(self) -> Json:
        return {"via": "bmc"}

    def registration(self) -> Json:
        # The certificate is unknown, so it is held for an operator.
        return {"serial": f" {SERIAL} ", "bmc": self.bmc.access(fingerprint="")}

    def resolve(self, hold: Hold) -> Resolution | None:
        assert "presents a certificate" in hold.what
        return Resolution(yes=True, actor="ada")

    def resource(self, draft: Draft | None = None, *, generation: int = 1) -> ResourceView:
        given = self.kind.Registration.model_validate(self.registration())
        stored = given.model_dump(mode="json", exclude_unset=True)
        self.bmc.reset()
        # Each card of the suite is another one, so its refused logins are.
        made = super().resource(draft, generation=generation)
        return replace(made, registration=stored, logins=LoginsInMemory())

    def begun_again(self, resource: ResourceView, built: ResourceView) -> ResourceView:
        return replace(resource, facts=built.facts, secrets=built.secrets, credential=built.credential)

    def outside(self) -> Sequence[Outside]:
        changed = self.bmc.password not in (FACTORY, RETURNED)
        return [Outside(name="a generated password")] if changed else []

    def kill(self, resource: ResourceView) -> None:
        self.bmc.silent = True

    def degrade(self, resource: ResourceView) -> bool:
        self.bmc.resources["/redfish/v1/Systems/Bluefield"]["Status"] = {"Health": "Warning", "HealthRollup": "Warning"}
        return True

    def destroyed(self, resource: ResourceView) -> None:
        self.bmc.silent = False
        super().destroyed(resource)

    @contextmanager
    def cut_off(self, resource: ResourceView) -> Iterator[None]:
        self.bmc.silent = True
        try:
            yield
        finally:
            self.bmc.silent = False
