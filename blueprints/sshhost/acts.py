"""What the steps of ssh_host do to a registered host beside its accounts."""

from __future__ import annotations

from blueprints.accounts.acts import looked
from blueprints.answers import Answer, Json, Ready
from blueprints.hosts import HostAttributes, observed
from blueprints.hostshell import NeedsOperator, told
from blueprints.specs import Spec
from blueprints.sshhost import drafts
from blueprints.sshhost.config import Registration


@told
def apply(spec: Spec, memo: Json) -> Answer:
    """What the config and the registration say now, whatever they said before. Calls no host."""
    view = spec.resource
    draft = drafts.registered(spec.config, Registration.model_validate(view.registration or drafts.known(view)))
    found_anew = dict.fromkeys(HostAttributes.model_fields)
    return Ready(
        facts=draft.facts, attributes={**found_anew, **draft.attributes}, traits=draft.traits,
        capacity=drafts.capacity(draft.capacity, draft.facts["given"], view.facts),
    )  # fmt: skip


@told
def reach(spec: Spec, memo: Json) -> Answer:
    """Connect by the pinned key; see that it is the host that was registered."""
    found = looked(spec)
    wrong = drafts.contradictions(spec.resource.attributes, found)
    if wrong:
        raise NeedsOperator(f"It is another host than was registered: {'; '.join(wrong)}.")
    given = spec.resource.facts.get("given", [])
    return Ready(
        facts=found,
        attributes=observed(found),
        capacity=drafts.capacity(spec.resource.capacity, given, found),
        log=f"connected as {spec.resource.facts['user']}",
    )
