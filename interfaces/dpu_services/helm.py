"""Checks of the Helm values that an owner gives for a chart.

Values are input to a chart of an operator, on a cluster that others use too. Where its pods run (namespace, cluster,
node) is set by Drydock alone, so values cannot name it at any depth.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from drydock.core.errors import InvalidRequest

LARGEST = 64 << 10
"""Maximum size of the values in bytes, as JSON in UTF-8."""
DEEPEST = 20
"""Maximum number of objects and lists within one another."""
_LONGEST_NAME = 253
_LONGEST_PATH = 200
_WHOLE = range(-(1 << 63), 1 << 63)
_SHOWN = 63
RESERVED_DOMAINS = ("dpu.nvidia.com", "kubernetes.io", "k8s.io")
"""Domains whose labels and annotations are set by DPF, Kubernetes and Drydock."""
_PLACING = frozenset(
    {
        "affinity", "clusterselector", "deployincluster", "dpuclusterselector", "dpudeviceselector", "dpunodeselector",
        "dpuselector", "exposedports", "kubeconfig", "namespace", "namespaceoverride", "nodeaffinity",
        "nodeaffinitypreset", "nodename", "nodeselectorterms", "podaffinity", "podaffinitypreset", "podantiaffinity",
        "podantiaffinitypreset", "schedulername", "servicedaemonset", "targetnamespace", "topologyspreadconstraints",
    }
)  # fmt: skip
"""Names of values that say where pods run, in lower case without separators.

`serviceDaemonSet` and `exposedPorts` are the values through which DPF itself passes node selector, labels and ports to
a chart (doca-platform, `internal/dpuservice/controllers/dpuservice_controller.go`).
"""
_BESIDE = frozenset({"extradeploy", "extramanifests", "extraobjects", "fullnameoverride", "nameoverride"})
"""Names of values with which charts create further objects, or objects under the names of another release's."""

_PLACING_ENDS = ("nodeselector", "nodeselectors", "tolerations")
"""Ends of such names, because charts with several workloads have one for each, such as `controllerNodeSelector`."""


def checked_values(values: Any, field: str = "values") -> dict[str, Any]:
    """Return a copy of Helm values. Raises InvalidRequest with the path of the first value that is refused.

    Null is refused because Helm removes the chart's own value for it, such as a limit
    (https://helm.sh/docs/chart_template_guide/values_files/).
    """
    if not isinstance(values, Mapping):
        raise InvalidRequest("Helm values must be an object.", field=field)
    for where, value, depth in _inside(values, field):
        if isinstance(value, Mapping | list | tuple):
            if depth > DEEPEST:
                raise InvalidRequest(f"Helm values are nested at most {DEEPEST} levels deep.", field=field)
        else:
            _check_scalar(value, where)
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=dict)
    if (size := len(text.encode())) > LARGEST:
        raise InvalidRequest(f"Helm values have at most {LARGEST} bytes, but these have {size}.", field=field)
    found: dict[str, Any] = json.loads(text)
    return found


def _inside(values: Mapping[str, Any], field: str) -> Iterator[tuple[str, Any, int]]:
    """Yield each value with its path and the number of objects and lists around and including it."""
    left: list[tuple[str, Any, int]] = [(field, values, 1)]
    size = 0
    while left:
        where, value, depth = left.pop()
        size += len(value) + 2 if isinstance(value, Mapping | list | tuple | str) else 1
        if size > LARGEST:  # JSON is no shorter, and the rest need not be looked at
            raise InvalidRequest(f"Helm values have at most {LARGEST} bytes.", field=field)
        yield where, value, depth
        if isinstance(value, Mapping):
            for name in value:
                _check_name(name, where)
            left += [(f"{where}.{name}"[:_LONGEST_PATH], one, depth + 1) for name, one in value.items()]
        elif isinstance(value, list | tuple):
            left += [(f"{where}.{number}"[:_LONGEST_PATH], one, depth + 1) for number, one in enumerate(value)]


def _check_name(name: Any, where: str) -> None:
    fits = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable() and name.strip() == name
    if not fits:
        raise InvalidRequest(
            f"{str(name)[:_SHOWN]!r} cannot be the name of a Helm value.",
            field=where, hint=f"Names have 1 to {_LONGEST_NAME} printable characters.",
        )  # fmt: skip
    plain = re.sub(r"[-_.\s]", "", name).lower()
    if plain in _PLACING or plain.endswith(_PLACING_ENDS):
        raise InvalidRequest(
            "Drydock sets namespace, cluster, node and ports of a service; its values cannot.", field=f"{where}.{name}"
        )
    if plain in _BESIDE:
        raise InvalidRequest(
            "A service has the objects of its chart, under names of its own; its values cannot change that.",
            field=f"{where}.{name}",
        )
    check_domain(name, f"{where}.{name}")


def check_domain(name: str, field: str) -> None:
    """Raise InvalidRequest if the name of a label or annotation is reserved."""
    domain = name.partition("/")[0].lower() if "/" in name else ""
    if name.lower().startswith("drydock") or any(
        domain == one or domain.endswith(f".{one}") for one in RESERVED_DOMAINS
    ):
        raise InvalidRequest(f"The label {name[:_SHOWN]!r} is reserved.", field=field)


def _check_scalar(value: Any, where: str) -> None:
    if value is None:
        raise InvalidRequest("Helm values cannot be null, which would remove a value of the chart.", field=where)
    if isinstance(value, str):
        if odd := next((c for c in value if c == "\0" or 0xD800 <= ord(c) <= 0xDFFF), ""):
            raise InvalidRequest(f"The value contains the character U+{ord(odd):04X}.", field=where)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest("The value is not a number.", field=where)
    elif isinstance(value, int):
        if value not in _WHOLE:
            raise InvalidRequest("The value is an integer of more than 64 bits.", field=where)
    else:
        raise InvalidRequest(f"A Helm value cannot be a {type(value).__name__}.", field=where)
