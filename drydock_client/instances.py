"""Instances: whole cloud machines, requested and shown in the words that clouds use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import InstanceInfo


class Instances(Operations):
    """Whole cloud machines as instances. Every user may request them."""

    @operation(
        "POST", "instances", "Request an instance", scope="lease", status=201, body="InstanceRequest",
        query="NewInstance", spread="wanted", key="idempotency_key", location="instances/{0.id}", waits="instance",
        owned=True,
    )  # fmt: skip
    def create_instance(self, wanted: Mapping[str, Any]) -> InstanceInfo:
        """Request an instance. It is pending until a machine is ready.

        `wanted` has the fields of `leases.operations.instances.InstanceRequest`.
        """

    @operation(
        "GET", "instances", "List instances", query="Instances", names={"states": "state"}, cursor="before", owned=True
    )
    def instances(
        self, *, states: Collection[str] = (), location: str = "", instance_type: str = "", tag: str = "",
        name: str = "", all: bool = False, limit: int = 200,
    ) -> list[InstanceInfo]:  # fmt: skip
        """List instances, newest first. Ended ones are included only with `all`, or if `states` has their state."""

    @operation("GET", "instances/{id}", "Get an instance, or wait for it", query="Wait", waits="instance")
    def instance(self, id: int) -> InstanceInfo:
        """Return one instance."""

    @operation("DELETE", "instances/{id}", "Terminate an instance", scope="lease")
    def end_instance(self, id: int) -> InstanceInfo:
        """Terminate an instance. Terminating it again has no effect."""

    @operation(
        "POST", "instances/{id}/{act}", "Stop, start or reboot an instance", scope="lease",
        acts={
            "stop": ("Stop an instance", ""), "start": ("Start an instance", ""),
            "reboot": ("Reboot an instance", ""),
        },
    )  # fmt: skip
    def change_instance(self, id: int, act: str) -> InstanceInfo:
        """Request that an instance be stopped, started or rebooted.

        The instance's state shows the progress. 409 if the instance's cloud does not support the action; the message
        names the missing capability.
        """
