"""Roles with the least privilege: exactly the verbs and resources that a kind uses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from blueprints.kube.objects import Json, ObjectType

READ, FOLLOW = ("get",), ("get", "list", "watch")
MANAGE = ("get", "list", "watch", "create", "patch", "delete")
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
_API = "rbac.authorization.k8s.io"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of a role: the verbs that an account may use on objects of a type. `names` limits it to some objects.

    The API server cannot limit `create` and `list` to names
    (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources).
    """

    type: ObjectType
    verbs: tuple[str, ...] = FOLLOW
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := [verb for verb in self.verbs if verb not in _VERBS] or not self.verbs:
            raise ValueError(f"a rule has verbs of {', '.join(_VERBS)}, not {unknown}")
        if "*" in (self.type.group, self.type.plural, *self.names) or not self.type.plural:
            raise ValueError("a rule names its resource")
        if self.names and {"create", "list", "watch"} & set(self.verbs):
            raise ValueError("create, list and watch cannot be limited to names")


def role(
    rules: Sequence[Rule],
    namespace: str,
    *,
    name: str = "drydock",
    account: str = "drydock",
    account_namespace: str = "",
) -> list[Json]:
    """Return a Role for these rules in a namespace, and its RoleBinding to a service account.

    An empty namespace gives a ClusterRole and its binding, for rules on types without namespace, such as Node.
    `account_namespace` is that of the account, by default the same.
    """
    for text in (name, account, *(one for one in (namespace, account_namespace) if one)):
        if len(text) > 63 or not _LABEL.match(text):
            raise ValueError(f"{text!r} is not a valid name")
    if not namespace and any(rule.type.namespaced for rule in rules):
        raise ValueError("a rule on a type with namespaces belongs into the role of a namespace")
    if namespace and any(not rule.type.namespaced for rule in rules):
        raise ValueError("a rule on a type without namespaces belongs into a cluster role")
    kind, metadata = ("Role", {"name": name, "namespace": namespace}) if namespace else ("ClusterRole", {"name": name})
    granted: Json = {
        "apiVersion": f"{_API}/v1", "kind": kind, "metadata": metadata,
        "rules": [_rule(rule) for rule in _merged(rules)],
    }  # fmt: skip
    binding: Json = {
        "apiVersion": f"{_API}/v1", "kind": f"{kind}Binding", "metadata": dict(metadata),
        "roleRef": {"apiGroup": _API, "kind": kind, "name": name},
        "subjects": [
            {"kind": "ServiceAccount", "name": account, "namespace": account_namespace or namespace or "default"}
        ],
    }  # fmt: skip
    return [granted, binding]


def _merged(rules: Sequence[Rule]) -> list[Rule]:
    """Return one rule for each type and names, in a fixed order."""
    found: dict[tuple[str, str, tuple[str, ...]], Rule] = {}
    for rule in rules:
        key = (rule.type.group, rule.type.plural, tuple(sorted(rule.names)))
        verbs = {*rule.verbs, *(found[key].verbs if key in found else ())}
        found[key] = Rule(type=rule.type, verbs=tuple(verb for verb in _VERBS if verb in verbs), names=key[2])
    return [found[key] for key in sorted(found)]


def _rule(rule: Rule) -> Json:
    made: Json = {"apiGroups": [rule.type.group], "resources": [rule.type.plural], "verbs": list(rule.verbs)}
    return made | ({"resourceNames": list(rule.names)} if rule.names else {})
