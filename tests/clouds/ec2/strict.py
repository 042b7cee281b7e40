"""moto made as strict as EC2: what it lets pass is refused, what it leaves out is done.

Sources: EC2's API reference for each action, "Error codes for the Amazon EC2 API", and "Ensuring idempotency in Amazon
EC2 API requests". Everything is put onto moto's own class of answers, so parsing and XML stay moto's.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import time
from collections.abc import Callable
from typing import Any, Protocol

from moto.core.responses import ActionResult, EmptyResult
from moto.core.types import Base64EncodedString
from moto.ec2 import urls, utils
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import instance_types
from moto.ec2.models.instances import InstanceState
from moto.ec2.responses import EC2Response

TYPES = (
    "c5.large", "c6a.xlarge", "f2.6xlarge", "g4dn.xlarge", "g5.xlarge", "hpc6a.48xlarge", "inf1.xlarge", "m5.large",
    "m5.xlarge", "m6a.large", "m6g.large", "mac2.metal", "p5.48xlarge", "r5.large", "t2.micro", "t3.medium", "t3.micro",
    "trn1.2xlarge", "u-6tb1.112xlarge", "x1.16xlarge",
)  # fmt: skip
"""moto knows 1395, and is slow to tell of all of them."""
USER_DATA_LIMIT = 16_384
_ENDED = ("shutting-down", "terminated")


class Cloud(Protocol):
    """What the double is to the answers below."""

    page: int
    tokens: dict[tuple[str, str, str], tuple[str, Any]]
    spot_requests: dict[str, dict[str, Any]]
    lag: float
    born: dict[str, float]
    consoles: dict[str, str]
    host_key: Callable[[str], str]

    def started(self, instance: Any) -> None: ...
    def ended(self, instance: Any, into: str) -> None: ...
    def restarted(self, instance: Any) -> None: ...


CLOUDS: dict[str, Cloud] = {}
"""Account -> the double that is this account."""


def _cloud(answer: Any) -> Cloud:
    return CLOUDS[answer.current_account]


def _page(answer: Any, items: list[Any], field: str) -> ActionResult:
    """At most MaxResults, and at most the double's page: EC2 may answer with fewer than asked for."""
    start = int(answer._get_param("NextToken") or 0)
    size = min(int(answer._get_param("MaxResults") or 1000), _cloud(answer).page)
    following = {"NextToken": str(start + size)} if start + size < len(items) else {}
    return ActionResult({field: items[start : start + size], **following})


class Strict(EC2Response):  # type: ignore[misc]
    """EC2's answers. Methods named like actions replace moto's."""

    def run_instances(self) -> ActionResult:
        cloud = _cloud(self)
        asked = json.dumps(self._get_params(), sort_keys=True, default=str)
        zone = self._zone()
        name = (self.region, zone if self._named_zone() else "", self._get_param("ClientToken"))
        if name in cloud.tokens:
            return self._again(cloud, name, asked)
        self._refuse(zone)
        answer = super().run_instances()
        cloud.tokens[name] = (asked, answer.result)
        for instance in answer.result.instances:
            cloud.born[instance.id] = time.monotonic()
            self._complete(cloud, instance)
            cloud.started(instance)
        return answer

    def _named_zone(self) -> bool:
        return bool(self._get_param("Placement.AvailabilityZone") or self._subnet())

    def _subnet(self) -> str:
        cards = self._get_param("NetworkInterfaces", [])
        return self._get_param("SubnetId") or (cards[0].get("SubnetId") if cards else "") or ""

    def _zone(self) -> str:
        if self._subnet():
            return str(self.ec2_backend.get_subnet(self._subnet()).availability_zone)
        return str(self._get_param("Placement.AvailabilityZone") or f"{self.region}a")

    def _again(self, cloud: Cloud, name: tuple[str, str, str], asked: str) -> ActionResult:
        before, reservation = cloud.tokens[name]
        if before != asked:
            raise EC2ClientError(
                "IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments"
                " used in previous request(s)."
            )  # fmt: skip
        if all(one.state in _ENDED for one in reservation.instances):
            raise EC2ClientError("IdempotentInstanceTerminated", "The instance for this client token was terminated.")
        return ActionResult(reservation)

    def _refuse(self, zone: str) -> None:
        name = self._get_param("InstanceType", "m1.small")
        offered = instance_types.INSTANCE_TYPE_OFFERINGS["availability-zone"].get(self.region, [])
        if not any(one["InstanceType"] == name for one in offered):
            raise EC2ClientError("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
        if not any(one["InstanceType"] == name and one["Location"] == zone for one in offered):
            raise EC2ClientError(
                "Unsupported", f"Your requested instance type ({name}) is not supported in your requested Availability"
                f" Zone ({zone})."
            )  # fmt: skip
        features = instance_types.INSTANCE_TYPES[name]["ProcessorInfo"].get("SupportedFeatures") or []
        if self._get_param("CpuOptions.AmdSevSnp") == "enabled" and "amd-sev-snp" not in features:
            raise EC2ClientError("Unsupported", f"AMD SEV-SNP is not supported for {name}.")
        if len(base64.b64decode(self._get_param("UserData") or "")) > USER_DATA_LIMIT:
            raise EC2ClientError("InvalidParameterValue", "User data is limited to 16384 bytes")
        spot = self._get_param("InstanceMarketOptions.MarketType") == "spot"
        if self._get_param("CreditSpecification.CpuCredits") and not name.startswith(("t2.", "t3.", "t3a.", "t4g.")):
            raise EC2ClientError("InvalidParameterCombination", f"CreditSpecification is not supported for {name}.")
        most = self._get_param("InstanceMarketOptions.SpotOptions.MaxPrice")
        if most and not re.fullmatch(r"\d+(\.\d+)?", most):
            raise EC2ClientError("InvalidParameterValue", f"Invalid value '{most}' for MaxPrice.")
        if most and float(most) < float(spot_price(name)):
            raise EC2ClientError("SpotMaxPriceTooLow", f"Your Spot request price of {most} is too low.")
        if "spot-instances-request" in self._parse_tag_specification() and not spot:
            raise EC2ClientError("InvalidParameterCombination", "Tags for spot-instances-request need a spot market.")

    def _complete(self, cloud: Cloud, instance: Any) -> None:
        tags = self._parse_tag_specification()
        for card in instance.nics.values():
            card.add_tags(tags.get("network-interface", {}))
            if not self._get_param("NetworkInterfaces"):
                card.delete_on_termination = True
        if not instance.security_groups:
            instance.security_groups = list(instance.nics[0].group_set)
        if instance.lifecycle == "spot":
            request = f"sir-{instance.id[2:10]}"
            options = self._get_param("InstanceMarketOptions.SpotOptions") or {}
            cloud.spot_requests[request] = {
                "SpotInstanceRequestId": request,
                "InstanceId": instance.id,
                "State": "active",
                "Type": options.get("SpotInstanceType", "one-time"),
                "InstanceInterruptionBehavior": options.get("InstanceInterruptionBehavior", "terminate"),
                "Tags": [{"Key": k, "Value": v} for k, v in tags.get("spot-instances-request", {}).items()],
                "region": self.region,
            }
            instance.spot_instance_request_id = request

    def describe_instances(self) -> ActionResult:
        wanted, ids = self._filters_from_querystring(), self._get_param("InstanceIds", [])
        if unseen := [one for one in ids if self._unseen(one)]:
            raise EC2ClientError("InvalidInstanceID.NotFound", f"The instance ID '{unseen[0]}' does not exist")
        if ids:
            found = self.ec2_backend.get_reservations_by_instance_ids(ids, filters=wanted)
        else:
            found = self.ec2_backend.describe_instances(filters=wanted)
        found = [one for one in found if not any(self._unseen(instance.id) for instance in one.instances)]
        return _page(self, found, "Reservations")

    def _unseen(self, instance_id: str) -> bool:
        cloud = _cloud(self)
        return time.monotonic() - cloud.born.get(instance_id, float("-inf")) < cloud.lag

    def terminate_instances(self) -> ActionResult:
        """Again and again, which moto does not survive."""
        told = []
        for instance in self._instances():
            before = InstanceState(instance.state, instance.state_code)
            if instance.state not in _ENDED:
                self.ec2_backend.terminate_instances([instance.id])
                _cloud(self).ended(instance, "terminated")
            now = {"Code": instance.state_code, "Name": instance.state}
            told.append({"InstanceId": instance.id, "CurrentState": now, "PreviousState": before})
        return ActionResult({"TerminatingInstances": told})

    def stop_instances(self) -> ActionResult:
        for instance in self._instances():
            self._must(instance, "pending", "running", "stopping", "stopped")
            if instance.lifecycle == "spot":
                raise EC2ClientError(
                    "UnsupportedOperation", f"You can't stop the Spot Instance '{instance.id}' because it is associated"
                    " with a one-time Spot Instance request."
                )  # fmt: skip
        before = {one.id: one.state for one in self._instances()}
        answer = super().stop_instances()
        for instance in self._instances():
            if before[instance.id] in ("pending", "running"):
                _cloud(self).ended(instance, "stopped")
        return answer

    def start_instances(self) -> ActionResult:
        for instance in self._instances():
            self._must(instance, "pending", "running", "stopped")
        before = {one.id: (one.state, one.nics[0].public_ip) for one in self._instances()}
        answer = super().start_instances()
        for instance in self._instances():
            state, address = before[instance.id]
            if state == "stopped":
                _cloud(self).started(instance)
            else:  # moto gives another address to what runs already
                instance.nics[0].public_ip = address
        return answer

    def reboot_instances(self) -> ActionResult:
        for instance in self._instances():
            self._must(instance, "running")
            _cloud(self).restarted(instance)
        return EmptyResult()

    def _instances(self) -> list[Any]:
        return list(self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", [])))

    def _must(self, instance: Any, *states: str) -> None:
        if instance.state not in states:
            raise EC2ClientError(
                "IncorrectInstanceState", f"The instance '{instance.id}' is not in a state from which this is possible:"
                f" it is {instance.state}."
            )  # fmt: skip

    def modify_instance_attribute(self) -> ActionResult:
        if self._get_param("InstanceType"):
            self._must(self.ec2_backend.get_instance(self._get_param("InstanceId")), "stopped")
        return super().modify_instance_attribute()

    def modify_volume(self) -> ActionResult:
        volume, size = self.ec2_backend.get_volume(self._get_param("VolumeId")), int(self._get_param("Size") or 0)
        if size and size < volume.size:
            raise EC2ClientError("InvalidParameterValue", "New size cannot be smaller than existing size")
        if volume.modifications:
            raise EC2ClientError("VolumeModificationRateExceeded", "You've reached the maximum modification rate.")
        return super().modify_volume()

    def delete_security_group(self) -> ActionResult:
        group = self._get_param("GroupId")
        used = [one for one in self.ec2_backend.all_instances() if one.state != "terminated"]
        if any(group in [g.id for g in one.security_groups] for one in used) or any(
            group in [g.id for g in card.group_set] for card in self.ec2_backend.enis.values()
        ):
            raise EC2ClientError("DependencyViolation", f"resource {group} has a dependent object")
        super().delete_security_group()
        return ActionResult({"Return": True, "GroupId": group})

    def delete_network_interface(self) -> ActionResult:
        card = self.ec2_backend.enis.get(self._get_param("NetworkInterfaceId"))
        if card is not None and card.instance is not None and card.instance.state != "terminated":
            raise EC2ClientError("InvalidNetworkInterface.InUse", f"The network interface {card.id} is in use.")
        return super().delete_network_interface()

    def describe_spot_instance_requests(self) -> ActionResult:
        wanted = self._filters_from_querystring()
        found = [one for one in _cloud(self).spot_requests.values() if one["region"] == self.region]
        return ActionResult({"SpotInstanceRequests": [one for one in found if _fits(one, wanted)]})

    def cancel_spot_instance_requests(self) -> ActionResult:
        ids = self._get_param("SpotInstanceRequestIds", [])
        for one in ids:
            _cloud(self).spot_requests[one]["State"] = "cancelled"
        return ActionResult(
            {"CancelledSpotInstanceRequests": [{"SpotInstanceRequestId": one, "State": "cancelled"} for one in ids]}
        )

    def describe_instance_types(self) -> ActionResult:
        found = self.ec2_backend.describe_instance_types(
            self._get_param("InstanceTypes", []), self._filters_from_querystring()
        )
        return _page(self, found, "InstanceTypes")

    def describe_instance_type_offerings(self) -> ActionResult:
        found = self.ec2_backend.describe_instance_type_offerings(
            self._get_param("LocationType"), self._filters_from_querystring()
        )
        return _page(self, found, "InstanceTypeOfferings")

    def describe_spot_price_history(self) -> ActionResult:
        """Two prices for each type and zone, the older one first: 0.9 an hour, and 0.01 for each letter since."""
        offered = instance_types.INSTANCE_TYPE_OFFERINGS["availability-zone"].get(self.region, [])
        now = dt.datetime.now(dt.UTC)
        found = [
            {
                "InstanceType": one["InstanceType"],
                "AvailabilityZone": one["Location"],
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": price,
                "Timestamp": now - dt.timedelta(hours=hours),
            }
            for one in offered
            for hours, price in ((9, "0.900000"), (1, spot_price(one["InstanceType"])))
        ]
        return _page(self, found, "SpotPriceHistory")

    def get_console_output(self) -> ActionResult:
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        nitro = instance_types.INSTANCE_TYPES[instance.instance_type]["Hypervisor"] == "nitro"
        if self._get_param("Latest") and not nitro:
            raise EC2ClientError("UnsupportedOperation", "This instance type does not support retrieving the latest")
        text = _cloud(self).consoles.get(instance.id, "")
        name = next((tag["value"] for tag in instance.get_tags() if tag["key"] == "Name"), "")
        if line := _cloud(self).host_key(name):
            block = ("-----BEGIN SSH HOST KEY KEYS-----", line, "-----END SSH HOST KEY KEYS-----")
            text += "".join(f"[   9.1] cloud-init[7]: {one}\r\n" for one in block)
        output = {"Output": Base64EncodedString.from_raw_string(text)} if text else {}
        return ActionResult({"InstanceId": instance.id, "Timestamp": dt.datetime.now(dt.UTC), **output})


def spot_price(name: str) -> str:
    """What the double asks for a type on the spot market now."""
    return f"{len(name) / 100:.6f}"


def _fits(one: dict[str, Any], wanted: dict[str, Any]) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
    facts = {"state": {one["State"]}, "tag-key": {*tags}, **{f"tag:{name}": {value} for name, value in tags.items()}}
    return all(facts.get(name, set()) & {*values} for name, values in wanted.items())


def install() -> None:
    """Once for the process: fewer types, the filter that moto lacks, and the answers above."""
    urls.url_paths["{0}/"] = Strict.dispatch
    utils.filter_dict_attribute_mapping["client-token"] = "client_token"
    kept = [one for one in instance_types.InstanceTypeBackend.instance_types if one["InstanceType"] in TYPES]
    instance_types.InstanceTypeBackend.instance_types = kept
    for places in instance_types.INSTANCE_TYPE_OFFERINGS.values():
        for region, offered in places.items():
            places[region] = [one for one in offered if one["InstanceType"] in TYPES]
