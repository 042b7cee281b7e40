"""The provider contract's client for one account at Amazon EC2.

It uses botocore, the library under boto3. Only this module imports the SDK.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, ClassVar

import botocore.loaders
import botocore.parsers
import botocore.session
from botocore import exceptions as boto
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)

from blueprints.cloud import client as cloud
from blueprints.cloud import rates
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Image, Instance, InstanceType, Lifecycle, Location, Order, Quota, Remnant, Rule
from blueprints.ec2 import account, instances, market, network, permissions
from blueprints.ec2.api import Answer, Calls, client_token, filters, listed, tag_list, tagged
from blueprints.ec2.config import Credential
from blueprints.ec2.errors import refused
from blueprints.ec2.instances import describe, launch, root_of
from blueprints.specs import Problem

_READS = ("describe_", "get_", "list_")
RATES = {"read": (20.0, 100.0), "write": (5.0, 50.0), "launch": (2.0, 5.0)}
"""Maps a type of call to calls per second and to calls at once (burst). The values are the lowest for each type in
"Request throttling for the Amazon EC2 API" (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html);
other services are counted as reads."""
CONSOLE_LIMIT = 65_536
"""Maximum size in bytes of the console output that EC2 keeps."""
_ATTEMPTS = 3
"""Attempts for a call that only reads. A call that changes something is sent only once, so that its outcome is either
known or AMBIGUOUS."""
_LAUNCHES = ("run_instances", "start_instances")
_UNSENT = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)
_LOST = (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError)
_NOBODY = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.UnknownCredentialError,
    boto.ProfileNotFound,
    boto.ConfigNotFound,
    boto.ConfigParseError,
    boto.InvalidConfigError,
    boto.NoAuthTokenError,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.LoginError,
    boto.MetadataRetrievalError,
    boto.RefreshWithMFAUnsupportedError,
)
_MODELS = botocore.loaders.create_loader()
"""Models of the services' APIs, loaded once for all clients because they take megabytes."""

# At DEBUG it writes requests with all that is in them.
logging.getLogger("botocore").setLevel(logging.INFO)

_VALUES = re.compile(r"value: .*?(?=, type:|, valid|\n|$)", re.DOTALL)


@contextmanager
def translated(*, changes: bool) -> Iterator[None]:
    """Translate every botocore error to a CloudError. `changes` is true for calls that do more than read.

    If no connection was made, nothing was sent. After that, only an explicit refusal by EC2 proves that nothing
    happened.
    """
    try:
        yield
    except boto.ClientError as error:
        answer = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        code, message = str(answer.get("Code", "")), str(answer.get("Message", ""))
        raise refused(code, message, status, changes=changes) from error
    except boto.ParamValidationError as error:
        # The values of a request may be secrets.
        raise CloudError(Meaning.INVALID, _VALUES.sub("value left out", str(error))[:500]) from None
    except _UNSENT as error:
        raise CloudError(Meaning.UNAVAILABLE, f"EC2 cannot be reached: {error}"[:500]) from error
    except boto.SSLError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise CloudError(Meaning.INVALID, f"EC2's certificate is not trusted: {error}"[:500]) from error
        raise _lost(error, changes=changes) from error
    except (*_LOST, botocore.parsers.ResponseParserError) as error:
        raise _lost(error, changes=changes) from error
    except _NOBODY as error:
        raise CloudError(Meaning.CREDENTIALS, f"No AWS credentials were found: {error}"[:500]) from error
    except boto.BotoCoreError as error:
        raise CloudError(Meaning.INVALID, f"The configuration of the AWS client is invalid: {error}"[:500]) from error


def _speaks(client: Any, operation: str, answer: Answer) -> bool:
    """Return whether an answer has any field of this operation's output.

    botocore accepts any XML, so a page with status 200 from another service is parsed to an empty answer. EC2 includes
    the list in a description even if it is empty.
    """
    shape = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[operation]).output_shape
    wanted = set(shape.members) - {"NextToken"} if shape is not None else set()
    return not wanted or bool(wanted & set(answer))


def _lost(error: Exception, *, changes: bool) -> CloudError:
    meaning = Meaning.AMBIGUOUS if changes else Meaning.UNAVAILABLE
    return CloudError(meaning, f"EC2's answer was lost: {error}"[:500])


def _session(profile: str = "") -> Any:
    core = botocore.session.Session(profile=profile or None)
    core.register_component("data_loader", _MODELS)
    return core


class _Role(CredentialProvider):  # type: ignore[misc]
    """Credentials of a role assumed with the credentials of a session; renewed before they expire."""

    METHOD = "assume-role"

    def __init__(self, fetcher: Any) -> None:
        super().__init__()
        self._fetcher = fetcher

    def load(self) -> Any:
        return DeferredRefreshableCredentials(method=self.METHOD, refresh_using=self._fetcher.fetch_credentials)


class Connection:
    """`api.Calls` with botocore: one account, with a client for each service and region. Thread-safe."""

    def __init__(self, credential: Credential, deadline: float) -> None:
        self._credential, self._deadline = credential, deadline
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._lock = Lock()

    def call(self, operation: str, region: str, *, service: str = "ec2", **parameters: Any) -> Answer:
        """Make one call, at the account's rate in this process.

        Waits for at most half the deadline until the rate limit allows the call.
        """
        changes = not operation.startswith(_READS)
        rate = self._rate(operation, region, service)
        rate.take(self._deadline / 2)
        try:
            with translated(changes=changes):
                client = self._client(service, region, changes)
                answer: Answer = getattr(client, operation)(**parameters)
            if not _speaks(client, operation, answer):
                raise _lost(ValueError(f"it is not an answer to {operation}"), changes=changes)
            return answer
        except CloudError as error:
            if error.meaning is Meaning.THROTTLED:
                rate.drain()
            raise

    def pages(self, operation: str, region: str, *, service: str = "ec2", **parameters: Any) -> Iterator[Answer]:
        """Yield the pages of a list, with one call for each page."""
        token: dict[str, str] = {}
        while True:
            answer = self.call(operation, region, service=service, **parameters, **token)
            yield answer
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    def descriptions(self) -> dict[str, str]:
        """Return the name that AWS gives each region, as botocore ships it."""
        with translated(changes=False):
            data = self._core().get_component("data_loader").load_data("partitions")
        return {
            name: region.get("description", "")
            for partition in data["partitions"]
            for name, region in partition["regions"].items()
        }

    def _rate(self, operation: str, region: str, service: str) -> rates.Rate:
        sort = "read" if operation.startswith(_READS) else "launch" if operation in _LAUNCHES else "write"
        per_second, burst = RATES[sort]
        given, share = self._credential, self._credential.rate
        who = (given.endpoint, given.role_arn or given.access_key_id or given.profile)
        return rates.shared((service, who, region, sort), per_second * share, max(1.0, burst * share))

    def _client(self, service: str, region: str, changes: bool) -> Any:
        # Making clients is not safe for threads, using them is.
        with self._lock:
            wanted = (service, region, changes)
            if wanted not in self._clients:
                if self._session is None:
                    self._session = self._assumed(self._core())
                self._clients[wanted] = self._session.create_client(service, region_name=region, **self._how(changes))
            return self._clients[wanted]

    def _how(self, changes: bool) -> dict[str, Any]:
        attempts = 1 if changes else _ATTEMPTS
        each = self._deadline / attempts
        config = Config(
            connect_timeout=each / 4,
            read_timeout=each * 3 / 4,
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=32,
        )
        given = self._credential
        return {"config": config, "endpoint_url": given.endpoint or None, "verify": given.ca_bundle or None}

    def _core(self) -> Any:
        given = self._credential
        core = _session(given.profile)
        if given.access_key_id:
            token = given.session_token.get_secret_value() or None
            core.set_credentials(given.access_key_id, given.secret_access_key.get_secret_value(), token)
        return core

    def _assumed(self, base: Any) -> Any:
        given = self._credential
        if not given.role_arn:
            return base
        external = {"ExternalId": given.external_id.get_secret_value()} if given.external_id.get_secret_value() else {}
        source = base.get_credentials()
        if source is None:
            raise boto.NoCredentialsError()

        def creator(service: str, **keys: Any) -> Any:
            return base.create_client(service, region_name=given.region, **self._how(changes=False), **keys)

        fetcher = AssumeRoleCredentialFetcher(
            creator, source, given.role_arn, extra_args={"RoleSessionName": "drydock", **external}
        )
        core = _session()
        core.register_component("credential_provider", CredentialResolver(providers=[_Role(fetcher)]))
        return core


class Actions(
    cloud.StopsStarts,
    cloud.Reboots,
    cloud.ResizesVolume,
    cloud.ChangesType,
    cloud.Tags,
    cloud.Firewall,
    cloud.Console,
):
    """Base of `Ec2`: operations on an existing instance.

    Each makes one or two calls on `connection`, and is idempotent.
    """

    connection: Calls

    def stop(self, instance: Instance) -> None:
        """Stop the instance. Raises CloudError NOT_OFFERED for a spot instance: one-time requests cannot be stopped."""
        self.connection.call("stop_instances", instance.location, InstanceIds=[instance.id])

    def start(self, instance: Instance) -> None:
        """Start the instance.

        Raises CloudError CONFLICT while it is still stopping, NO_CAPACITY if its capacity was given to another
        customer.
        """
        self.connection.call("start_instances", instance.location, InstanceIds=[instance.id])

    def reboot(self, instance: Instance) -> None:
        """Reboot the instance by asking the guest. EC2 cuts the power if that takes more than four minutes."""
        self.connection.call("reboot_instances", instance.location, InstanceIds=[instance.id])

    def resize_volume(self, instance: Instance, disk_gib: int) -> None:
        """Grow the volume. cloud-init grows the guest's file system at the next boot.

        Raises CloudError CONFLICT while an earlier change is under way, for up to six hours.
        """
        root = root_of(self._described(instance)).get("Ebs") or {}
        if not root:
            raise CloudError(Meaning.NOT_FOUND, f"{instance.id} has no boot disk.")
        wanted = [root["VolumeId"]]
        found = next(listed(self.connection, "describe_volumes", instance.location, "Volumes", VolumeIds=wanted), None)
        if found is None:
            raise CloudError(Meaning.NOT_FOUND, f"EC2 reports that {root['VolumeId']} does not exist.")
        if found["Size"] < disk_gib:
            self.connection.call("modify_volume", instance.location, VolumeId=root["VolumeId"], Size=disk_gib)

    def change_type(self, instance: Instance, type_name: str) -> None:
        """Change the type. Raises CloudError CONFLICT for an instance that is not stopped."""
        if self._described(instance).get("InstanceType") == type_name:
            return
        self.connection.call(
            "modify_instance_attribute",
            instance.location,
            InstanceId=instance.id,
            InstanceType={"Value": type_name},
        )

    def set_tags(self, instance: Instance, tags: Mapping[str, str]) -> None:
        """Set tags on the instance and on its own disks, network cards and security group."""
        found = self._described(instance)
        things = [instance.id]
        things += [one["Ebs"]["VolumeId"] for one in found.get("BlockDeviceMappings") or () if one.get("Ebs")]
        things += [one["NetworkInterfaceId"] for one in found.get("NetworkInterfaces") or ()]
        things += [one["GroupId"] for one in found.get("SecurityGroups") or () if one["GroupName"] == instance.key]
        self.connection.call("create_tags", instance.location, Resources=things, Tags=tag_list(dict(tags)))

    def open_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        """Open ports in the security group that `prepare` created."""
        group = network.own_group(self._described(instance), instance.key)
        for rule in rules:
            network.allow(self.connection, instance.location, group, rule)

    def close_ports(self, instance: Instance, rules: Sequence[Rule]) -> None:
        """Close ports in the instance's own security group. Does nothing if the instance no longer exists."""
        try:
            group = network.own_group(self._described(instance), instance.key)
        except CloudError as error:
            if error.meaning is Meaning.NOT_FOUND:
                return
            raise
        for rule in rules:
            network.deny(self.connection, instance.location, group, rule)

    def console(self, instance: Instance) -> str:
        """Return the newest 64 KiB of the console output.

        Types before Nitro keep only that since the last boot or stop.
        """
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
        for one in describe(self.connection, instance.location, InstanceIds=[instance.id]):
            return one
        raise CloudError(Meaning.NOT_FOUND, f"EC2 reports that {instance.id} does not exist.")


class Ec2(
    Actions,
    cloud.Client,
    cloud.IdempotentCreate,
    cloud.UserData,
    cloud.Spot,
    cloud.ConfidentialGuests,
    cloud.Quotas,
    cloud.MachineImage,
    cloud.ListsRemains,
    cloud.Permissions,
    cloud.Networks,
):
    """One account at EC2.

    cloud-init creates the accounts in guests from the user data, so `order.user` and `order.public_key` are unused.
    """

    provider: ClassVar[str] = "ec2"
    unseen_for: ClassVar[float] = 300.0
    """Five minutes: EC2 is eventually consistent, and its documentation tells callers to retry for that long ("Eventual
    consistency in the Amazon EC2 API", https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html).
    """
    types_every: ClassVar[float] = 600.0
    """A long interval, because a poll takes about twenty calls, and types and prices rarely change."""

    def __init__(self, credential: Credential, *, deadline: float = 20.0) -> None:
        """Connect to an account.

        `deadline` is the maximum number of seconds for one call, including retries of reads.
        """
        self.credential = credential
        self.connection = Connection(credential, deadline)

    def identity(self) -> str:
        """Return the account's number."""
        return str(self.connection.call("get_caller_identity", self.credential.region, service="sts")["Account"])

    def locations(self) -> Sequence[Location]:
        """Return the regions enabled for the account, with their zones: one call, and one for each region."""
        given = self.credential
        return account.locations_of(self.connection, given.region, given.regions, self.connection.descriptions())

    def types(self, location: str) -> Sequence[InstanceType]:
        """Return all types of a region with zones, on-demand and spot prices (each price names its source)."""
        given = self.credential
        asked = (given.endpoint or "aws") if given.price_list else ""
        on_demand = market.on_demand(self.connection, location, path=given.prices, cloud=asked)
        spot = market.spot(self.connection, location)
        both = {name: [*spot.get(name, ())] for name in {*on_demand, *spot}}
        for name, price in on_demand.items():
            both[name].insert(0, price)
        return market.types_of(self.connection, location, both)

    def instances(self, location: str, tags: Mapping[str, str]) -> Sequence[Instance]:
        """Return the instances, including those that ended within the last hour as long as EC2 lists them."""
        found = instances.describe(self.connection, location, Filters=tagged(dict(tags)), MaxResults=1000)
        leaving = instances.leaving(self.connection, location, tags) if any(map(instances.is_spot, found)) else {}
        read = [instances.instance_of(one, location) for one in found]
        return [replace(one, leaving=leaving.get(one.id, "")) for one in read]

    def prepare(self, order: Order) -> Mapping[str, str]:
        """Create a security group for the instance. Return its subnet and the requirements of its image as well."""
        found = account.image_description(self.connection, order.location, order.image)
        vpc, subnet = network.place(self.connection, order)
        return {
            "group": network.group(self.connection, order, vpc),
            "vpc": vpc,
            "subnet": subnet,
            "root_device": found["RootDeviceName"],
            "disk_gib": str(instances.image_of(found).disk_gib or 1),
        }

    def create(self, order: Order, prepared: Mapping[str, str]) -> Instance:
        """Make one RunInstances request.

        If the token's instance has already ended, it is returned as terminated: another attempt needs another token.
        """
        try:
            answer = self.connection.call("run_instances", order.location, **launch(order, prepared))
        except CloudError as error:
            ended = self.find(order) if error.provider_code == "IdempotentInstanceTerminated" else None
            if ended is None:
                raise
            return ended
        return instances.instance_of(answer["Instances"][0], order.location)

    def find(self, order: Order) -> Instance | None:
        """Find the instance by client token, or by name if EC2's filter finds nothing (yet).

        An instance found by name must have the token of this order.
        """
        token = client_token(order)
        by_name = [*tagged({network.NAME: order.key})]
        for wanted in (filters(client_token=token), by_name):
            found = [
                one for one in instances.describe(self.connection, order.location, Filters=wanted)
                if one.get("ClientToken") == token
            ]  # fmt: skip
            if found:
                return instances.best_of(instances.instance_of(one, order.location) for one in found)
        return None

    def instance(self, location: str, zone: str, key: str, instance_id: str) -> Instance | None:
        """Read an instance by id, or by key if the id is unknown because the answer to the create was lost.

        Return None only if EC2 says that the id does not exist and no instance has this name either, because reads may
        lag.
        """
        if not instance_id:
            return instances.best_of(instances.instances_of(self.connection, location, key))
        try:
            found = instances.describe(self.connection, location, InstanceIds=[instance_id])
        except CloudError as error:
            if error.provider_code != "InvalidInstanceID.NotFound":
                raise
            by_name = tagged({network.NAME: key}) if key else filters(instance_id=instance_id)
            found = instances.describe(self.connection, location, Filters=by_name)
            return next(
                (instances.instance_of(one, location) for one in found if one["InstanceId"] == instance_id), None
            )
        for one in found:
            if one["InstanceId"] == instance_id:
                return instances.instance_of(one, location)
        raise CloudError(Meaning.UNAVAILABLE, f"EC2's answer to a request for {instance_id} is about another instance.")

    def ended(self, instance: Instance) -> Instance:
        """Return what EC2 still reports about an instance that no longer exists."""
        said = f"EC2 reports that {instance.id or instance.key} does not exist (InvalidInstanceID.NotFound)."
        return replace(instance, state=Lifecycle.TERMINATED, reason=said)

    def terminate(self, instance: Instance) -> None:
        """Terminate the instance, with its disks and network card.

        If EC2 reports that the instance does not exist, that counts as success here but proves nothing; `instance`
        confirms it.
        """
        try:
            self.connection.call("terminate_instances", instance.location, InstanceIds=[instance.id])
        except CloudError as error:
            if error.provider_code != "InvalidInstanceID.NotFound":
                raise

    def sweep(
        self, location: str, zone: str, key: str, tags: Mapping[str, str], *, known: Sequence[str] = (),
        report: Callable[[str], object] = cloud.ignore,
    ) -> Sequence[str]:  # fmt: skip
        """Delete the objects under a key.

        These are instances of lost attempts, spot requests, disks, network cards and the security group.
        """
        return instances.sweep(self.connection, location, key, tags, known=known, report=report)

    def remains(self, location: str, tags: Mapping[str, str]) -> Sequence[Remnant]:
        """Return open spot requests, unused volumes and network cards, and all security groups."""
        wanted = [location] if location else [one.name for one in self.locations() if one.available]
        return [one for place in wanted for one in instances.remains(self.connection, place, tags)]

    def image(self, location: str, wanted: Mapping[str, str], arch: str) -> Image:
        """Return the image that `wanted`, with the fields of `config.Image`, selects."""
        return account.newest_image(self.connection, location, wanted, arch)

    def images(self, location: str, name: str) -> Sequence[Image]:
        """Return matching images of this account, Amazon, Debian and Ubuntu."""
        return account.fitting_images(self.connection, location, name)

    def quotas(self, location: str) -> Sequence[Quota]:
        """Return the quotas. Needs the permission servicequotas:ListServiceQuotas."""
        if location:
            return account.quotas_of(self.connection, location)
        return [one for there in self.locations() if there.available for one in self.quotas(there.name)]

    def permissions(self, order: Order) -> Sequence[cloud.Permission]:
        """Check permissions with about thirty DryRun calls in the order's region."""
        given = self.credential
        order = replace(order, location=order.location or given.region)
        return permissions.permissions(self.connection, order, price_list=given.price_list, amazon=not given.endpoint)

    def network_problems(self, order: Order, zones: Sequence[str]) -> Sequence[Problem]:
        """Check the subnet, or the default VPC's subnets."""
        return network.problems(self.connection, order, zones)
