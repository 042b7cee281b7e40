"""The kind dpf_cluster keeps the contract on real API servers, with the least role and DPF's controllers doubled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from blueprints.answers import Json
from blueprints.dpu.dpf_cluster.kind import DpfCluster
from blueprints.specs import Draft, ResourceView
from blueprints.testing.conformance import KindConformance, Outside
from tests.dpf.conftest import least
from tests.dpus.api import CLUSTER, SECRET, labels_of, name_of
from tests.dpus.clusterlinks import secret_of
from tests.dpus.conftest import _database as _database
from tests.dpus.user import User

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class OnDpf(KindConformance):
    """What built and registered clusters have in common."""

    pace = 0.2
    planted = "planted"

    @pytest.fixture(autouse=True)
    def _dpf(self, dpf: User) -> Iterator[None]:
        self.user, self.kubeconfig = dpf, least(dpf)
        dpf.double.start(0.05)
        yield
        dpf.double.stop()
        assert not dpf.double.errors

    @property
    def version(self) -> str:
        return "" if self.user.double.generation.devices else "v1.30.0"

    def config(self) -> Json:
        namespace = self.user.double.state.api.namespace
        return {"credential": "dpf", "namespace": namespace, "build": {"max_nodes": 4, "version": self.version}}

    def credentials(self) -> Mapping[str, Mapping[str, Any]]:
        return {"dpf": {"kubeconfig": self.kubeconfig}}

    def impossible(self) -> Json:
        return {"cluster": "another"}

    def outside(self) -> Sequence[Outside]:
        found = self.user.all(CLUSTER)
        return [Outside(name=name_of(one), tags=labels_of(one)) for one in found if name_of(one) != self.planted]

    def plant(self) -> None:
        if self.user.api.get(CLUSTER, self.planted) is None:
            self.secret("planted-kubeconfig")
            spec = {"type": "static", "maxNodes": 7, "kubeconfig": "planted-kubeconfig"}
            spec |= {"version": self.version} if self.version else {}
            self.user.api.create(CLUSTER, {"metadata": {"name": self.planted}, "spec": spec})

    def secret(self, name: str) -> None:
        if self.user.api.get(SECRET, name) is None:
            self.user.api.create(SECRET, secret_of(name, self.kubeconfig))

    def kill(self, resource: ResourceView) -> None:
        self.user.double.state.stranger.delete(CLUSTER, resource.facts["name"])

    def degrade(self, resource: ResourceView) -> bool:
        self.user.double.stop()

        def spoil(body: Json) -> None:
            body["status"]["phase"] = "NotReady"

        self.user.double.state.stranger.change(CLUSTER, resource.facts["name"], spoil, status=True)
        return True


class TestBuilt(OnDpf):
    """Clusters whose control plane kamaji runs."""

    kind = DpfCluster()


class TestRegistered(OnDpf):
    """Clusters that an operator registers with the secret of their kubeconfig."""

    kind = DpfCluster()

    def registration(self) -> Json:
        return {"name": "tenant", "kubeconfig": "tenant-kubeconfig", "max_nodes": 5, "version": self.version}

    def draft(self) -> Draft:
        return self.registered()

    def resource(self, draft: Draft | None = None, *, generation: int = 1) -> ResourceView:
        self.secret("tenant-kubeconfig")
        made = super().resource(draft, generation=generation)
        return replace(made, registration=self.registration())

    # The suite looks for the key among the names of objects; here the operator chooses the name.
    def test_what_was_built_is_listed_with_its_tags_and_can_be_destroyed_by_what_is_listed(self) -> None:
        resource = self.built()
        owned = {one.key: one for one in self.kind.owned(self.blueprint(), "conform1")}
        assert not owned[resource.key].named
        assert owned[resource.key].facts == {"name": "tenant"}
        self.destroyed(resource)
        assert not self.outside()
