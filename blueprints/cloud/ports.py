"""Ports of a lease, open from outside as long as it lasts."""

from __future__ import annotations

from collections.abc import Sequence

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.cloud.client import Client, Firewall
from blueprints.cloud.order import instance
from blueprints.cloud.values import Rule
from blueprints.hosts import lease_of
from blueprints.specs import Spec


def open_ports(client: Client, spec: Spec, memo: Json) -> Answer:
    """Open what the lease asked for."""
    wanted = _rules(spec)
    if not wanted:
        return Ready()
    if not isinstance(client, Firewall):
        message = f"{client.provider} cannot open ports; ask without `ports`."
        return Failed(scope=Scope.BLUEPRINT, code="not_supported", message=message)
    client.open_ports(instance(spec.resource), wanted)
    return Ready(log=f"open: {', '.join(str(rule.port) for rule in wanted)}")


def close_ports(client: Client, spec: Spec, memo: Json) -> Answer:
    """Close them again, but for those that another lease on the machine has asked for too. One that was given the
    machine meanwhile may have found its port open just before it was closed: it is opened again."""
    mine = _rules(spec)
    if mine and isinstance(client, Firewall):
        there, shared = instance(spec.resource), _asked_by_others(spec)
        client.close_ports(there, [rule for rule in mine if rule.port not in shared])
        came = _asked_by_others(spec) - shared
        client.open_ports(there, again) if (again := [rule for rule in mine if rule.port in came]) else None
    return Ready()


def _rules(spec: Spec) -> Sequence[Rule]:
    """The SSH port is not among them: who may reach that is the blueprint's to say, and we need it ourselves."""
    asked = lease_of(spec).asked.requirements.ports or ()
    return [Rule(port=port) for port in sorted(set(asked)) if port != spec.config.ssh_port]


def _asked_by_others(spec: Spec) -> set[int]:
    return {port for other in lease_of(spec).others() for port in other.requirements.ports or ()}
