"""What can be done to an instance that is there: stop, start, reboot, grow, change, tag, open, read its console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blueprints.cloud import client as cloud
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Rule
from blueprints.ec2 import network
from blueprints.ec2.calls import Answer, Calls, listed, tag_list
from blueprints.ec2.readings import described, root_of

CONSOLE_LIMIT = 65_536
"""Bytes: what EC2 keeps of a console."""


class Acts(
    cloud.StopsStarts,
    cloud.Reboots,
    cloud.ResizesVolume,
    cloud.ChangesType,
    cloud.Tags,
    cloud.Firewall,
    cloud.Console,
):
    """Base of `Ec2`: everything here is one call or two on `connection`, and idempotent."""

    connection: Calls

    def stop(self, instance: Instance) -> None:
        """Raises CloudError NOT_OFFERED for a spot instance: one-time requests cannot be stopped."""
        self.connection.call("stop_instances", instance.location, InstanceIds=[instance.id])

    def start(self, instance: Instance) -> None:
        """Raises CloudError CONFLICT while it is still stopping, NO_CAPACITY where its place was given away."""
        self.connection.call("start_instances", instance.location, InstanceIds=[instance.id])

    def reboot(self, instance: Instance) -> None:
        """Asks the guest, and cuts the power after four minutes if it does not."""
        self.connection.call("reboot_instances", instance.location, InstanceIds=[instance.id])

    def resize_volume(self, instance: Instance, disk_gib: int) -> None:
        """The guest's own file system is not grown here: cloud-init does that at the next boot. Raises CloudError
        CONFLICT while an earlier change is under way, for up to six hours."""
        root = root_of(self._described(instance)).get("Ebs") or {}
        if not root:
            raise CloudError(Meaning.NOT_FOUND, f"{instance.id} has no boot disk.")
        wanted = [root["VolumeId"]]
        found = next(listed(self.connection, "describe_volumes", instance.location, "Volumes", VolumeIds=wanted), None)
        if found is None:
            raise CloudError(Meaning.NOT_FOUND, f"EC2 does not know {root['VolumeId']}.")
        if found["Size"] < disk_gib:
            self.connection.call("modify_volume", instance.location, VolumeId=root["VolumeId"], Size=disk_gib)

    def change_type(self, instance: Instance, type_name: str) -> None:
        """Raises CloudError CONFLICT for one that is not stopped."""
        if self._described(instance).get("InstanceType") == type_name:
            return
        self.connection.call(
            "modify_instance_attribute",
            instance.location,
            InstanceId=instance.id,
            InstanceType={"Value": type_name},
        )

    def set_tags(self, instance: Instance, tags: Mapping[str, str]) -> None:
        """On the instance and on what is its own: disks, network cards, its security group."""
        found = self._described(instance)
        things = [instance.id]
        things += [one["Ebs"]["VolumeId"] for one in found.get("BlockDeviceMappings") or () if one.get("Ebs")]
        things += [one["NetworkInterfaceId"] for one in found.get("NetworkInterfaces") or ()]
        things += [one["GroupId"] for one in found.get("SecurityGroups") or () if one["GroupName"] == instance.key]
        self.connection.call("create_tags", instance.location, Resources=things, Tags=tag_list(dict(tags)))

    def open_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        """In the group of its own that `prepare` made."""
        group = network.own_group(self._described(instance), instance.key)
        for rule in rules:
            network.allow(self.connection, instance.location, group, rule)

    def close_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        """In the group of its own; where the instance is gone already there is nothing to close."""
        try:
            group = network.own_group(self._described(instance), instance.key)
        except CloudError as error:
            if error.meaning is Meaning.NOT_FOUND:
                return
            raise
        for rule in rules:
            network.deny(self.connection, instance.location, group, rule)

    def console(self, instance: Instance) -> str:
        """The newest 64 KiB. Types before Nitro keep it only from the last boot or stop."""
        try:
            answer = self._console(instance, Latest=True)
        except CloudError as error:
            if error.provider_code not in ("UnsupportedOperation", "Unsupported"):
                raise
            answer = self._console(instance)
        text: str = answer.get("Output") or ""
        return text.encode()[-CONSOLE_LIMIT:].decode(errors="replace")

    def _console(self, instance: Instance, **how: Any) -> Answer:
        return self.connection.call("get_console_output", instance.location, InstanceId=instance.id, **how)

    def _described(self, instance: Instance) -> Answer:
        for one in described(self.connection, instance.location, InstanceIds=[instance.id]):
            return one
        raise CloudError(Meaning.NOT_FOUND, f"EC2 does not know {instance.id}.")
