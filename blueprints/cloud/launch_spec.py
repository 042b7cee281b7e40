"""The order from which a resource's instance is created, and the instance itself, both derived from the resource.

An order is always derived in the same way: random values and times were chosen once and are stored in the resource's
facts.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib

from blueprints.cloud import interruption
from blueprints.cloud.config import CloudConfig
from blueprints.cloud.values import Confidential, Instance, Lifecycle, Market, Order
from blueprints.specs import ResourceView, Spec
from blueprints.userdata import user_data
from drydock.core.errors import InvalidRequest
from interfaces.keys import KeyPair

_MADE = {one.value for one in Confidential}


def order(spec: Spec) -> Order:
    """Return the order for a build."""
    resource, config = spec.resource, _config(spec.resource)
    said, facts = resource.attributes, resource.facts
    market = Market(said.get("market", Market.ON_DEMAND))
    confidential = next((Confidential(name) for name in sorted(resource.traits & _MADE)), None)
    return Order(
        key=resource.key,
        token=token(spec),
        location=said.get("region", ""),
        zone=said.get("zone", ""),
        type=said["instance_type"],
        market=market,
        image=facts.get("image", ""),
        arch=said.get("arch", "x86_64"),
        disk_gib=facts.get("disk_gib") or None,
        disk_type=config.disk_type,
        network=config.network,
        public_address=config.public_address,
        ssh_port=config.ssh_port,
        ssh_from=config.ssh_from,
        user=config.user,
        public_key=facts["public_key"],
        user_data=_user_data(resource, config),
        confidential=confidential,
        max_price=facts.get("max_price"),
        options=config.options(),
        ends_after=config.longest_seconds or None,
        tags={**config.tags, **spec.tags},
    )


def token(spec: Spec) -> str:
    """Return the idempotency token of this attempt.

    The token differs between attempts, and between zones, types, markets, images and networks.
    """
    said, facts = spec.resource.attributes, spec.resource.facts
    what = [said.get(name, "") for name in ("region", "zone", "instance_type", "market")]
    text = "/".join(
        [spec.resource.key, facts["attempt"], *map(str, what), facts.get("image", ""), _config(spec.resource).network]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:48]


def instance(resource: ResourceView) -> Instance:
    """Return the resource's instance, as far as it is known here, for calls that take an instance.

    An orphan has only the facts with which it was listed.
    """
    said, facts = resource.attributes, resource.facts
    return Instance(
        id=facts.get("instance_id", ""),
        key=resource.key,
        state=Lifecycle(facts.get("seen", {}).get("state") or Lifecycle.PENDING),
        location=said.get("region") or facts.get("location", ""),
        zone=said.get("zone") or facts.get("zone", ""),
        type=said.get("instance_type", ""),
        market=Market(said.get("market", Market.ON_DEMAND)),
    )


def counted(resource: ResourceView) -> str:
    """Return the keys by which quotas count a resource, as in `Offer.counted`."""
    said = resource.attributes
    market = str(said.get("market", Market.ON_DEMAND))
    return "/".join((said.get("region", ""), resource.facts.get("family", ""), market))


def _user_data(resource: ResourceView, config: CloudConfig) -> str:
    facts = resource.facts
    make = functools.partial(
        user_data,
        user=config.user,
        public_key=facts["public_key"],
        host_key=_host_key(resource),
        ends_at=dt.datetime.fromisoformat(facts["ends_at"]) if facts.get("ends_at") else None,
        also=config.user_data,
        asked=resource.attributes.get("user_data"),
    )
    # Decided with the attempt, so that a create that is repeated under its token says the same.
    if facts.get("interruption"):
        with contextlib.suppress(InvalidRequest):  # no room beside what the operator and the lease say
            return make(programs=interruption.cloud_config(config.interruption))
    return make()


def _host_key(resource: ResourceView) -> KeyPair | None:
    """Return the host key to inject, or None if the guest generates its own."""
    private = resource.secrets.get("host_private")
    return KeyPair(private=private, public=resource.facts["host_keys"][0]) if private else None


def _config(resource: ResourceView) -> CloudConfig:
    config: CloudConfig = resource.blueprint.config
    return config
