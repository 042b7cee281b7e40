"""The first steps of a DPU: its card, what is decided once, what fits, by which route, and the hold of the host."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from blueprints import hosts
from blueprints.answers import Answer, Failed, Json, Maintenance, Need, NeededLease, Ready, Scope
from blueprints.bluefield import hold_card
from blueprints.bluefield.access import has_bmc, login_of, opened
from blueprints.bluefield.bfcfg import HASH, bf_cfg
from blueprints.bluefield.cards import BMC, RSHIM
from blueprints.bluefield.dpus import of_card
from blueprints.dpu.bluefield.config import Config
from blueprints.hostshell import NeedsOperator, told
from blueprints.specs import Asked, ResourceView, Spec, Whole
from blueprints.userdata import user_data
from drydock.core.errors import InvalidRequest
from interfaces.keys import KeyPair, new_key_pair

if TYPE_CHECKING:
    from blueprints.bluefield.session import CardSession

CARD, CARD_TYPE = "card", "dpu_card"
HOST = f"{CARD}.host"
"""The host that the leased card is in, as a relation of maintenance."""
CONTROL, HOST_KEY, PATH = "private_key", "host_private", "image_path"
"""Names of secrets: the key of the control account, the host key of the DPU, and the path of the published file."""

ROUTE, FOLDER = "route", "rshim_folder"
"""Facts: how the image gets to the card, and the folder of its rshim on its host."""
BY_BMC, BY_SCP, BY_RSHIM = "bmc", "scp", "rshim"
"""Routes: the BMC fetches the image from a web root or by SCP, or the host of the card writes it to the rshim."""


def card_of(spec: Spec) -> ResourceView:
    """Return the card of a DPU. Raises NeedsOperator if its lease is gone."""
    held = spec.parents.get(CARD) or spec.resource.parents.get(CARD)
    if held is None:
        raise NeedsOperator("The DPU has no lease on a card any more.")
    return held.resource


def session(spec: Spec) -> AbstractContextManager[CardSession]:
    """Log in to the BMC of the card."""
    card = card_of(spec)
    return opened(card, login_of(card), spec.deadline * 0.8)


def wanted_card(config: Config) -> Json:
    """Return what the config requires of a card. Of several generations, each is checked after the lease."""
    generation = {"model": config.models[0]} if len(config.models) == 1 else {}
    return {**generation, **config.card}


def lease_of_card(config: Config, asked: Asked | None) -> NeededLease:
    """Return the lease of the card that a DPU for this request is installed on."""
    via = RSHIM if config.card.get("via") == RSHIM else BMC
    requirements = {**wanted_card(config), **of_card(asked.requirements if asked is not None else None), "via": via}
    return NeededLease(name=CARD, type=CARD_TYPE, requirements=requirements, exclusive=True)


def have_card(spec: Spec, memo: Json) -> Answer:
    """Lease a card for life."""
    return Ready() if CARD in spec.parents else Need(leases=(lease_of_card(spec.config, spec.asked),))


@told
def lock_card(spec: Spec, memo: Json) -> Answer:
    """Take the lock on the serial number of the leased card, so that nothing else installs the same card."""
    card = card_of(spec)
    return hold_card(spec, str(card.attributes.get("serial") or card.identity), card) or Ready()


@told
def check_compatible(spec: Spec, memo: Json) -> Answer:
    """Check that the card is a DPU, that the image is made for it, and that its address is known."""
    config: Config = spec.config
    card = card_of(spec).attributes
    serial, model = str(card.get("serial", "")), card.get("model")
    if card.get("mode") == "nic":
        message = f"Card {serial} is in NIC mode: it has no operating system that could be installed. Set its mode."
        return Failed(scope=Scope.OFFER, code="nic_mode", message=message)
    if model and config.models and model not in config.models:
        made_for = ", ".join(config.models)
        message = f"The image {config.image} is made for {made_for}, and card {serial} is a {model}."
        return Failed(scope=Scope.BLUEPRINT, code="image_for_other_card", message=message)
    address = config.address_of(serial)
    if not address:
        message = f"The address of the DPU on card {serial} is unknown. Add it to `addresses` of the blueprint."
        return Failed(scope=Scope.OFFER, code="address_unknown", message=message)
    if config.versions and not has_bmc(card_of(spec)):
        message = f"Card {serial} has no BMC that reports versions. Remove `versions` from the blueprint."
        return Failed(scope=Scope.OFFER, code="versions_unknown", message=message)
    names = ("model", "memory_gib", "ports", "host", "serial")
    attributes = {name: card[name] for name in names if card.get(name) is not None}
    facts = {"card": serial, "address": address, "port": config.ssh_port, "user": config.user}
    return Ready(attributes=attributes, facts=facts)


@told
def choose_route(spec: Spec, memo: Json) -> Answer:
    """Choose how the image gets to the card: by HTTPS, HTTP or SCP to its BMC or, if it knows none, by rshim."""
    config: Config = spec.config
    card = card_of(spec)
    serial = spec.resource.facts["card"]
    known, wanted = protocols_of(card), "HTTPS" if config.webroot.get("tls") else "HTTP"
    if has_bmc(card) and (not known or wanted in known):
        return Ready(facts={ROUTE: BY_BMC})
    why = f"The BMC of card {serial} fetches images by {', '.join(known)}, not {wanted}." if known else ""
    why = why or f"Card {serial} has no BMC."
    scp = has_bmc(card) and "SCP" in known
    if scp and config.scp is not None:
        return Ready(facts={ROUTE: BY_SCP}, log=f"{why} It fetches the image by SCP from a leased host.")
    others = ["set `scp`, so that the BMC fetches the image from a host by SCP"] if scp else []
    others += [requirement(tls=name == "HTTPS") for name in ("HTTPS", "HTTP") if name in known]
    return _by_host(spec, why, others)


def protocols_of(card: ResourceView) -> list[str]:
    """Return the protocols by which the BMC of a card fetches images; empty if it does not report them."""
    return [str(one).upper() for one in card.facts.get("card", {}).get("protocols", ())]


def _by_host(spec: Spec, why: str, others: Sequence[str]) -> Answer:
    """Choose rshim from the host of the card. `others` are settings that would lead to another route."""
    card = card_of(spec)
    folder = spec.config.rshim_of(spec.resource.facts["card"])
    if not folder:
        settings = sentence_of(*others, "set `rshim`, so that the image is installed from the host of the card")
        message = f"{why} {settings}, or update the BMC."
        return Failed(scope=Scope.OFFER, code="protocol", message=message)
    if host_of(card) is None:
        message = (
            f"{why} The image must be installed from the host of the card, and its host is unknown. "
            f"{sentence_of(*others, 'register it')}."
        )
        return Failed(scope=Scope.OFFER, code="host_unknown", message=message)
    return Ready(facts={ROUTE: BY_RSHIM, FOLDER: folder}, log=f"{why} The image is installed by {folder} of the host.")


def requirement(*, tls: bool) -> str:
    """Return advice to require a web root with or without TLS."""
    return f"let `webroot` require tls: {str(tls).lower()}"


def sentence_of(*advice: str) -> str:
    """Return a sentence, without its full stop, that joins pieces of advice as alternatives."""
    said = ", or ".join(advice)
    return said[0].upper() + said[1:]


def by_rshim(spec: Spec) -> bool:
    """Return whether the image is installed by rshim from the host of the card, and not by its BMC."""
    return bool(spec.resource.facts.get(ROUTE) == BY_RSHIM)


def by_scp(spec: Spec) -> bool:
    """Return whether the BMC fetches the image by SCP."""
    return bool(spec.resource.facts.get(ROUTE) == BY_SCP)


def host_of(card: ResourceView) -> Whole | None:
    """Return the host that a card is in; None if that is unknown."""
    return next((one for one in reversed(card.part_of) if one.type == hosts.HOST), None)


@told
def decide(spec: Spec, memo: Json) -> Answer:
    """Make the keys of the DPU and the path of its file, once, before anything is written."""
    if PATH in spec.resource.secrets:
        return Ready()
    control, host = new_key_pair("drydock"), new_key_pair("drydock-host")
    kept = {CONTROL: control.private, HOST_KEY: host.private, PATH: f"{secrets.token_hex(24)}.bfb"}
    facts = {"public_key": control.public, "host_keys": [host.public]}
    try:
        _bf_cfg(spec, control.public, host)
    except (InvalidRequest, ValueError) as error:
        return Failed(scope=Scope.BLUEPRINT, code="bf_cfg", message=str(error))
    return Ready(facts=facts, secrets=kept)


def bf_cfg_of(spec: Spec) -> bytes:
    """Return the bf.cfg of a DPU, the same each time."""
    facts = spec.resource.facts
    host = KeyPair(private=spec.resource.secrets[HOST_KEY], public=facts["host_keys"][0])
    return _bf_cfg(spec, facts["public_key"], host)


def _bf_cfg(spec: Spec, public_key: str, host: KeyPair) -> bytes:
    config: Config = spec.config
    made = user_data(user=config.user, public_key=public_key, host_key=host)
    return bf_cfg(
        parameters=config.parameters, password_hash=_password_hash(spec), user_data=made, name=spec.resource.key
    )


def _password_hash(spec: Spec) -> str:
    name = spec.config.password_credential
    if not name:
        return ""
    found = spec.resource.blueprint.credentials.get(name, {}).get("password_hash", "")
    if not HASH.fullmatch(found):
        raise NeedsOperator(
            f"The credential {name!r} has no password_hash that can be used.",
            hint="Store the output of `openssl passwd -6` as password_hash.",
        )
    return found


@told
def hold_host(spec: Spec, memo: Json) -> Answer:
    """Let nobody else be on the host of the card, because its network goes away while the card is installed."""
    return vacate_host(spec, f"A DPU is installed on card {card_of(spec).name}.")


def vacate_host(spec: Spec, sentence: str) -> Answer:
    """Wait until nobody else is on the host of the card, and tell those who are why."""
    if not card_of(spec).part_of:
        return Ready(log="The card is part of no host that Drydock knows, so nobody else is told.")
    wanted = Maintenance(relation=HOST, action="vacate", holders="wait", sentence=sentence)
    return Ready() if wanted.name in spec.granted else Need(maintenance=wanted)
