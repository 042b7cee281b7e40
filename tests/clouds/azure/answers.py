"""What the double answers to one call, once it is let in: a path and a method to a status, a body and headers."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from azure.mgmt.compute import types as compute
from azure.mgmt.network import types as network

from tests.clouds.azure import catalogue
from tests.clouds.azure.faults import Refusal
from tests.clouds.azure.ground import Ground, check_tags
from tests.clouds.azure.shapes import problems
from tests.clouds.azure.things import COLLECTIONS, MACHINE, Json, Operation, Thing

_VERSION = "api-version=2024-07-01"
ALLOWED = {"api-version", "$filter", "$expand", "statusOnly", "$skiptoken", "$top", "$orderby",
           "sasUriExpirationTimeInMinutes", "monitor", "forceDeletion"}  # fmt: skip


@dataclasses.dataclass
class Call:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    body: Json
    headers: dict[str, str]


@dataclasses.dataclass
class Answer:
    """One response."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


class Answers:
    """ARM's paths, as far as machines need them."""

    def __init__(self, ground: Ground, url: str, page_size: int) -> None:
        self._ground, self._url, self.page_size = ground, url, page_size
        self._asked: set[str] = set()
        own = f"/subscriptions/{re.escape(ground.subscription)}"
        group = f"{own}/resourcegroups/{re.escape(ground.group)}"
        self._routes: list[tuple[str, re.Pattern[str], Callable[..., Answer]]] = [
            (method, re.compile(pattern + "$", re.IGNORECASE), to)
            for method, pattern, to in (
                ("GET", f"{own}/locations", self._locations),
                ("GET", group, self._group),
                ("GET", f"{own}/providers/Microsoft.Compute/skus", self._skus),
                ("GET", f"{own}/providers/Microsoft.Compute/virtualMachines", self._statuses),
                ("GET", f"{own}/providers/Microsoft.Compute/locations/([^/]+)/usages", self._usages),
                ("GET", f"{own}/providers/Microsoft.Network/locations/([^/]+)/usages", self._network_usages),
                ("GET", f"{own}/providers/Microsoft.Compute/locations/([^/]+)/operations/([^/]+)", self._operation),
                ("GET", f"{own}/providers/Microsoft.Compute/locations/([^/]+)/publishers/([^/]+)/artifacttypes/vmimage/"
                        "offers/([^/]+)/skus", self._image_skus),
                ("GET", f"{own}/providers/Microsoft.Compute/locations/([^/]+)/publishers/([^/]+)/artifacttypes/vmimage/"
                        "offers/([^/]+)/skus/([^/]+)/versions", self._versions),
                ("GET", f"{own}/providers/Microsoft.Compute/locations/([^/]+)/publishers/([^/]+)/artifacttypes/vmimage/"
                        "offers/([^/]+)/skus/([^/]+)/versions/([^/]+)", self._version),
                ("GET", f"({own}(?:/resourcegroups/.+)?)/providers/Microsoft.Authorization/permissions",
                 self._permissions),
                ("GET", f"{group}/providers/Microsoft.Compute/images", self._images),
                ("GET", f"{group}/providers/([^/]+/[^/]+)", self._listed),
                ("GET", f"({group}/providers/([^/]+/[^/]+)/[^/]+)", self._read),
                ("PUT", f"({group}/providers/([^/]+/[^/]+)/[^/]+)", self._put),
                ("PATCH", f"({group}/providers/([^/]+/[^/]+)/[^/]+)", self._patch),
                ("DELETE", f"({group}/providers/([^/]+/[^/]+)/[^/]+)", self._delete),
                ("POST", f"({group}/providers/Microsoft.Compute/virtualMachines/[^/]+)/(deallocate|powerOff|start|"
                         "restart|retrieveBootDiagnosticsData)", self._act),
                ("POST", f"({group}/providers/Microsoft.Compute/virtualMachines/[^/]+)/runCommand", self._command),
                ("GET", f"{own}/providers/Microsoft.Compute/locations/([^/]+)/operationResults/([^/]+)", self._told),
                ("PUT", f"({group}/providers/Microsoft.Network/networkSecurityGroups/[^/]+)/securityRules/([^/]+)",
                 self._put_rule),
                ("DELETE", f"({group}/providers/Microsoft.Network/networkSecurityGroups/[^/]+)/securityRules/([^/]+)",
                 self._delete_rule),
                ("PATCH", f"({group}/.+)/providers/Microsoft.Resources/tags/default", self._merge_tags),
            )
        ]  # fmt: skip

    def answer(self, call: Call) -> Answer:
        """Raises Refusal."""
        if "api-version" not in call.query:
            raise Refusal(400, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is "
                          "required for all requests.")  # fmt: skip
        unknown = set(call.query) - ALLOWED
        if unknown:
            raise Refusal(400, "InvalidRequestUri", f"Unknown query parameters: {sorted(unknown)}")
        self._ground.settle()
        for method, pattern, to in self._routes:
            found = pattern.match(call.path) if method == call.method else None
            if found:
                return to(call, *(unquote(one) for one in found.groups()))
        raise self._nowhere(call)

    def _nowhere(self, call: Call) -> Refusal:
        words = call.path.lower().split("/")
        if len(words) > 2 and words[2] != self._ground.subscription.lower():
            return Refusal(404, "SubscriptionNotFound", f"The subscription '{words[2]}' could not be found.")
        if len(words) > 4 and words[3] == "resourcegroups" and words[4] != self._ground.group.lower():
            return Refusal(404, "ResourceGroupNotFound", f"Resource group '{words[4]}' could not be found.")
        return Refusal(404, "InvalidResourceType", f"The double has no {call.method} {call.path}.")

    def _locations(self, call: Call) -> Answer:
        regions = [
            {
                "name": name,
                "displayName": shown,
                "metadata": {"regionType": "Physical", "geography": geography,
                             "physicalLocation": catalogue.PHYSICAL[name]},
                "availabilityZoneMappings": [{"logicalZone": one} for one in zones],
            }
            for name, (shown, geography, zones) in catalogue.LOCATIONS.items()
        ]  # fmt: skip
        logical = {"name": "global", "displayName": "Global", "metadata": {"regionType": "Logical"}}
        return Answer(body={"value": [*regions, logical]})

    def _group(self, call: Call) -> Answer:
        return Answer(body={"name": self._ground.group, "location": "eastus"})

    def _permissions(self, call: Call, scope: str) -> Answer:
        if call.query["api-version"] != "2022-04-01":
            raise Refusal(400, "InvalidApiVersionParameter", "The double knows 2022-04-01.")
        grants = self._ground.granted(scope)
        asked = "Microsoft.Authorization/permissions/read"
        if not any({"*", "*/read", asked} & {*one.actions} - {*one.but} for one in grants):
            raise Refusal(403, "AuthorizationFailed", "The client 'drydock' with object id '0' does not have "
                          f"authorization to perform action '{asked}' over scope '{scope}'.")  # fmt: skip
        return self._page(call, [one.json() for one in grants])

    def _skus(self, call: Call) -> Answer:
        chosen = re.fullmatch(r"location eq '([^']+)'", call.query.get("$filter", ""))
        if call.query.get("$filter") and not chosen:
            raise Refusal(400, "InvalidFilter", "The only filter is location eq 'NAME'.")
        found = [one for one in catalogue.skus() if not chosen or chosen[1].lower() == one["locations"][0].lower()]
        return self._page(call, found, size=40)

    def _usages(self, call: Call, location: str) -> Answer:
        families = {catalogue.family(f"Standard_{one[0]}") for one in catalogue.SIZES}
        used = self._ground.used(location)
        names = ["availabilitySets", "cores", "virtualMachines", "lowPriorityCores", *sorted(families)]
        found = [
            {
                "unit": "Count",
                "currentValue": used.get(name, 0),
                "limit": self._ground.limit(location, name),
                "name": {"value": name, "localizedValue": f"{name} in words"},
            }
            for name in names
        ]
        return self._page(call, found)

    def _network_usages(self, call: Call, location: str) -> Answer:
        used = self._ground.addresses(location)
        found = [
            {
                "id": f"{call.path}/{name}",
                "unit": "Count",
                "currentValue": used,
                "limit": self._ground.limit(location, name),
                "name": {"value": name, "localizedValue": f"{name} in words"},
            }
            for name in ("PublicIPAddresses", "StandardSkuPublicIpAddresses")
        ]
        return self._page(call, found)

    def _image_skus(self, call: Call, location: str, publisher: str, offer: str) -> Answer:
        return Answer(
            body=[{"name": one[2], "location": location, "id": one[2]} for one in catalogue.IMAGES
                  if one[:2] == (publisher, offer)]
        )  # fmt: skip

    def _versions(self, call: Call, location: str, publisher: str, offer: str, sku: str) -> Answer:
        self._feature(publisher, offer, sku)
        return Answer(body=[{"name": one, "location": location, "id": one} for one in catalogue.VERSIONS])

    def _version(self, call: Call, location: str, publisher: str, offer: str, sku: str, version: str) -> Answer:
        feature = self._feature(publisher, offer, sku)
        if version not in catalogue.VERSIONS:
            raise Refusal(404, "NotFound", f"Artifact {version} not found.")
        features = [{"name": "SecurityType", "value": feature}] if feature else []
        old = (publisher, offer, sku) in catalogue.OLD_IMAGES
        features += [] if old else [{"name": "DiskControllerTypes", "value": "SCSI, NVMe"}]
        about = {
            "features": features,
            "hyperVGeneration": "V1" if old else "V2",
            "osDiskImage": {"operatingSystem": "Linux"},
        }
        return Answer(body={"name": version, "location": location, "properties": about})

    def _feature(self, publisher: str, offer: str, sku: str) -> str:
        if (publisher, offer, sku) not in catalogue.IMAGES:
            raise Refusal(404, "NotFound", f"Artifact: VMImage was not found: {publisher} {offer} {sku}.")
        return catalogue.IMAGES[publisher, offer, sku]

    def _images(self, call: Call) -> Answer:
        group = f"/subscriptions/{self._ground.subscription}/resourceGroups/{self._ground.group}"
        names = ("golden-1", "golden-2", "other")
        id = f"{group}/providers/Microsoft.Compute/images/"
        return self._page(call, [{"id": id + one, "name": one, "location": "eastus"} for one in names])

    def _operation(self, call: Call, location: str, id: str) -> Answer:
        operation = self._ground.operations.get(id)
        if operation is None:
            raise Refusal(404, "NotFound", f"The operation {id} is not known any more.")
        if call.query.get("monitor"):
            return Answer(status=200 if operation.done else 202, headers=self._soon())
        return Answer(body=operation.json(time.monotonic()), headers=self._soon())

    def _statuses(self, call: Call) -> Answer:
        """statusOnly tells the power state, and little else."""
        full = call.query.get("statusOnly") != "true"
        found = [one.json() if full else self._status(one) for one in self._ground.things.of(MACHINE)]
        return self._page(call, found)

    def _status(self, thing: Thing) -> Json:
        kept = {name: thing.json()[name] for name in ("id", "name", "type", "location")}
        return {**kept, "properties": {"vmId": thing.properties["vmId"], "instanceView": thing.view()}}

    def _listed(self, call: Call, type: str) -> Answer:
        if call.query.get("$expand"):
            raise Refusal(400, "InvalidParameter", "instanceView needs a $filter here.")
        return self._page(call, [one.json() for one in self._ground.things.of(self._type(type))])

    def _read(self, call: Call, id: str, type: str) -> Answer:
        thing = self._ground.things.get(id)
        found = thing.json()
        if call.query.get("$expand") == "instanceView" and thing.type == MACHINE:
            found["properties"] = {**found["properties"], "instanceView": thing.view()}
        return Answer(body=found)

    def _put(self, call: Call, id: str, type: str) -> Answer:
        only_new = call.headers.get("if-none-match") == "*"
        thing, operation, new = self._ground.put(id, self._type(type), call.body, only_new=only_new)
        return Answer(201 if new else 200, thing.json(), self._headers(operation, thing.location))

    def _patch(self, call: Call, id: str, type: str) -> Answer:
        thing = self._ground.things.get(id)
        status = 200 if thing.type == MACHINE else 202
        return Answer(status, thing.json(), self._headers(self._ground.patch(thing, call.body), thing.location))

    def _delete(self, call: Call, id: str, type: str) -> Answer:
        thing = self._ground.things.find(id)
        if thing is None:
            return Answer(204)
        return Answer(202, None, self._headers(self._ground.delete(thing), thing.location))

    def _act(self, call: Call, id: str, verb: str) -> Answer:
        thing = self._ground.things.get(id)
        if verb.lower() != "retrievebootdiagnosticsdata":
            return Answer(202, None, self._headers(self._ground.act(thing, verb.lower()), thing.location))
        if not (thing.properties.get("diagnosticsProfile") or {}).get("bootDiagnostics", {}).get("enabled"):
            raise Refusal(409, "OperationNotAllowed", "Boot diagnostics are not enabled.")
        return Answer(body={"serialConsoleLogBlobUri": f"{self._url}/serial/{thing.name}?sig=secret-of-{thing.name}"})

    def _command(self, call: Call, id: str) -> Answer:
        thing = self._ground.things.get(id)
        wrong = problems(call.body, compute.RunCommandInput, "command")
        if wrong or call.body["commandId"] != "RunShellScript":
            raise Refusal(400, "InvalidParameter", "; ".join(wrong) or "The double runs RunShellScript.")
        place = f"{self._url}/subscriptions/{self._ground.subscription}/providers/Microsoft.Compute/locations"
        return Answer(
            202,
            None,
            {"Location": f"{place}/{thing.location}/operationResults/{thing.name}?{_VERSION}", **self._soon()},
        )

    def _told(self, call: Call, location: str, name: str) -> Answer:
        """The first time the agent is still at it."""
        if name not in self._asked:
            self._asked.add(name)
            return Answer(202, None, {"Location": f"{self._url}{call.path}?{_VERSION}", **self._soon()})
        said = f"Enable succeeded: \n[stdout]\n{self._ground.host_key(name)}\n\n[stderr]\n"
        status = {"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded"}
        return Answer(body={"value": [{**status, "message": said}]})

    def _put_rule(self, call: Call, id: str, name: str) -> Answer:
        wrong = problems(call.body, network.SecurityRule, "rule")
        if wrong:
            raise Refusal(400, "InvalidRequestContent", "; ".join(wrong))
        thing = self._ground.things.get(id)
        rules = [one for one in thing.properties.setdefault("securityRules", []) if one["name"] != name]
        wanted = call.body["properties"]
        if any(one["properties"]["priority"] == wanted["priority"] for one in rules):
            raise Refusal(400, "SecurityRuleConflict", f"Two rules have the priority {wanted['priority']}.")
        thing.properties["securityRules"] = [*rules, {"name": name, "properties": wanted}]
        return Answer(201, {"name": name, **call.body}, self._headers(self._ground.operation(lambda: None), "eastus"))

    def _delete_rule(self, call: Call, id: str, name: str) -> Answer:
        thing = self._ground.things.get(id)
        thing.properties["securityRules"] = [one for one in thing.properties["securityRules"] if one["name"] != name]
        return Answer(202, None, self._headers(self._ground.operation(lambda: None), "eastus"))

    def _merge_tags(self, call: Call, id: str) -> Answer:
        if set(call.body) != {"operation", "properties"} or call.body["operation"] != "Merge":
            raise Refusal(400, "InvalidRequestContent", "The double merges tags, and nothing else.")
        thing = self._ground.things.get(id)
        thing.body["tags"] = check_tags({**(thing.body.get("tags") or {}), **call.body["properties"]["tags"]})
        return Answer(body={"properties": {"tags": thing.body["tags"]}})

    def _type(self, given: str) -> str:
        if given.lower() not in COLLECTIONS:
            raise Refusal(404, "InvalidResourceType", f"The double has no {given}.")
        return COLLECTIONS[given.lower()]

    def _page(self, call: Call, found: list[Json], size: int = 0) -> Answer:
        size = size or self.page_size
        begin = int(call.query.get("$skiptoken", 0))
        body: Json = {"value": found[begin : begin + size]}
        if begin + size < len(found):
            kept = "&".join(f"{name}={value}" for name, value in call.query.items() if name != "$skiptoken")
            body["nextLink"] = f"{self._url}{call.path}?{kept}&$skiptoken={begin + size}".replace(" ", "%20")
        return Answer(body=body)

    def _headers(self, operation: Operation | None, location: str) -> dict[str, str]:
        if operation is None:
            return {}
        path = f"/subscriptions/{self._ground.subscription}/providers/Microsoft.Compute/locations/{location}"
        url = f"{self._url}{path}/operations/{operation.id}?api-version=2026-04-01"
        return {"Azure-AsyncOperation": url, "Location": f"{url}&monitor=true", **self._soon()}

    def _soon(self) -> dict[str, str]:
        return {"retry-after-ms": str(max(1, int(self._ground.duration * 500)))}
