"""Grant the maintenance that runs wait for: wait for other leases to end, and switch machines off or reboot them.

A machine is switched only once for all runs that wait for the switch.

No machine is switched while a step that must not be interrupted runs on it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db.models.functions import Now

from blueprints import registry
from blueprints.contract import Powers, Reboots, Step
from drydock.core.units import in_words
from leases.engine.core.database import attempt, rows, run
from leases.engine.core.runs import plan_of, start
from leases.engine.core.specs import config
from leases.engine.core.transitions import record_event
from leases.engine.placement.pending import read_json
from leases.engine.resources import maintenance
from leases.messaging import hints
from leases.models import Resource, Run


def advance(current: Run) -> bool:
    """Advance the maintenance that a run waits for. Return True once it is granted.

    Call inside a transaction, with the run locked.
    """
    asked: dict[str, Any] = dict(current.maintenance or {})
    target = asked["resource"]
    if asked["relation"] == maintenance.SELF:
        return _begin_act(current)
    asked.setdefault("at", maintenance.now())
    waits_for = list[int]()
    if asked["holders"] != "tell" and not asked.get("cycle"):
        without_idle = maintenance.vacates(current, asked["action"])
        waits_for = maintenance.holders_of(target, current, without_idle=without_idle)
    if waits_for and maintenance.now() - asked["at"] >= settings.DRYDOCK.maintenance_patience_seconds:
        return _give_up(current, {**asked, "failed": _still_held(target, waits_for)})
    free = not waits_for
    if asked["action"] in SWITCHES:
        granted = free and _switched(target, current, asked)
    else:
        granted = free and not _others_alone(target, current.pk, with_sharers=asked["action"] == "alone")
    if granted:
        Run.objects.filter(pk=current.pk).update(
            maintenance={**asked, "granted": True}, due_at=rows("SELECT clock_timestamp()")[0][0]
        )
        hints.after_commit("step", current.pk)
    elif asked != current.maintenance:
        Run.objects.filter(pk=current.pk).update(maintenance=asked)
    return granted


def _give_up(current: Run, asked: dict[str, Any]) -> bool:
    """Make the run due, whose step then fails. Always returns False, because the maintenance is not granted."""
    Run.objects.filter(pk=current.pk).update(maintenance=asked, due_at=Now())
    hints.after_commit("step", current.pk)
    return False


def _still_held(target: int, holders: list[int]) -> str:
    """Return a sentence that names the first lease that still holds the target, and its end."""
    name, until = rows(
        "SELECT r.name, to_char(l.until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') FROM leases_lease l, leases_resource r"
        " WHERE l.id = %s AND r.id = %s",
        (holders[0], target),
    )[0]
    ends = f"ends at {until} UTC" if until else "has no end"
    waited = in_words(settings.DRYDOCK.maintenance_patience_seconds)
    return f"Maintenance of {name} waited {waited} for lease {holders[0]}, which {ends}."


def _begin_act(current: Run) -> bool:
    """Let an act begin once no other lease holds its resource and no other run has been granted its maintenance."""
    resource_id = current.resource_id
    alone = _others_alone(resource_id, current.pk, with_sharers=True)
    if alone or maintenance.tree_holders(resource_id, current.wanted.get("lease")):
        return False
    # The run itself keeps the resource in maintenance from now on, and may ask for maintenance of another one.
    Run.objects.filter(pk=current.pk).update(maintenance=None, waits_for="", sentence="", due_at=Now())
    hints.after_commit("step", current.pk)
    return True


_TREE = (
    "SELECT %(target)s UNION SELECT id FROM drydock_above(%(target)s) UNION SELECT id FROM drydock_below(%(target)s)"
)
_BELOW = "SELECT %(target)s UNION SELECT id FROM drydock_below(%(target)s)"
_TOP = "coalesce((SELECT id FROM drydock_above(%(target)s) ORDER BY n DESC LIMIT 1), %(target)s)"
_ALONE = f"""
    SELECT 1 FROM leases_run n WHERE n.id <> %(but)s AND (
        EXISTS (SELECT FROM {maintenance.GRANTED} g WHERE (g ->> 'granted')::boolean
            AND g ->> 'action' = ANY(%(actions)s) AND (g ->> 'resource')::bigint IN ({_TREE}))
        OR (n.phase = 'act' AND n.waits_for <> 'maintenance' AND n.resource_id IN ({_TREE}))) LIMIT 1"""


def _others_alone(target: int, but: int, *, with_sharers: bool = False) -> bool:
    """Return whether another run holds the target, something in it, or a whole around it alone.

    With `with_sharers`, a run that has vacated it counts too. Locks the topmost resource, so that two runs are never
    granted parts of one tree together.
    """
    given = {"target": target, "but": but, "actions": ["alone", *(["vacate"] if with_sharers else [])]}
    rows(f"SELECT 1 FROM leases_resource WHERE id = {_TOP} FOR NO KEY UPDATE", given)
    return bool(rows(_ALONE, given))


_MAY_STILL_ASK = f"""
    SELECT 1 FROM leases_run n WHERE n.id <> %(but)s AND n.phase IN ('build', 'activate', 'update', 'act')
        AND n.waits_for NOT IN ('maintenance', 'operator') AND (
            n.resource_id IN ({_TREE}) OR EXISTS (SELECT FROM leases_lease c WHERE c.resource_id IN ({_TREE})
                AND c.need <> '' AND c.state = 'active'
                AND (c.for_lease_id = n.lease_id OR (n.lease_id IS NULL AND c.for_resource_id = n.resource_id))))
        AND NOT EXISTS (SELECT FROM {maintenance.GRANTED} g WHERE (g ->> 'granted')::boolean
            AND g ->> 'action' = ANY(%(switches)s) AND (g ->> 'resource')::bigint = %(target)s) LIMIT 1"""


def _gathers(target: int, but: int, since: float) -> bool:
    """Return whether a power cycle waits for other runs in the tree of the target, which may still ask for it too."""
    if maintenance.now() - since >= settings.DRYDOCK.maintenance_gather_seconds:
        return False
    return bool(rows(_MAY_STILL_ASK, {"target": target, "but": but, "switches": list(SWITCHES)}))


SWITCHES = ("reboot", "power_cycle")
"""The actions that interrupt the resource, and everything in it. One can serve several runs."""
_STRONGEST = """
    SELECT bool_or(maintenance ->> 'action' = 'power_cycle') FROM leases_run
    WHERE waits_for = 'maintenance' AND (maintenance ->> 'resource')::bigint = %s AND NOT maintenance ? 'cycle'
        AND maintenance ->> 'action' = ANY(%s) AND NOT (maintenance ->> 'granted')::boolean"""


def _switched(target: int, current: Run, asked: dict[str, Any]) -> bool:
    """Switch the target once for all runs that asked before that began. Return True once the run that does it has ended."""
    going = rows("SELECT id FROM leases_run WHERE resource_id = %s AND lease_id IS NULL", (target,))
    if asked.get("cycle"):
        return not any(run_id == asked["cycle"] for (run_id,) in going)
    if _forbidden(target, current) or _others_alone(target, current.pk) or _gathers(target, current.pk, asked["at"]):
        return False
    cycle = bool(rows(_STRONGEST, (target, list(SWITCHES)))[0][0]) or not _can(target, Reboots)
    if cycle and not _can(target, Powers):
        return _by_hand(target, current, asked)
    found = rows(
        "SELECT id, phase FROM leases_run WHERE resource_id = %s AND lease_id IS NULL AND NOT in_call AND position = 0"
        " AND (phase = 'power' AND wanted ->> 'power' = 'cycle' OR phase = 'reboot' AND NOT %s)",
        (target, cycle),
    )
    phase, wanted = ("power", {"power": "cycle"}) if cycle else ("reboot", {})
    begun, phase = (
        found[0] if found else (None if going else start(resource_id=target, phase=phase, wanted=wanted), phase)
    )
    if begun:
        asked |= {"cycle": begun}
        _join(target, begun, SWITCHES if phase == "power" else ("reboot",))
    return False


def _can(target: int, ability: type) -> bool:
    blueprint = Resource.objects.select_related("blueprint").get(pk=target).blueprint
    kind = registry.kind(blueprint.kind)
    return isinstance(kind, ability) and ability not in kind.lacking(config(blueprint.kind, blueprint.config))


def _forbidden(target: int, current: Run) -> bool:
    """Return whether an operator has forbidden to reboot the target or a whole around it, and let the run say so."""
    sentence = _reboots_forbidden(target)
    if sentence:
        Run.objects.filter(pk=current.pk).update(sentence=sentence)
    return bool(sentence)


def _reboots_forbidden(target: int) -> str:
    """Return why the target waits if an operator has forbidden to reboot it or a whole around it; else empty."""
    sql = """
        SELECT name, no_reboots FROM leases_resource WHERE no_reboots <> ''
            AND (id = %s OR id IN (SELECT id FROM drydock_above(%s))) ORDER BY id LIMIT 1"""
    for name, reason in rows(sql, (target, target)):
        return f"Waits, because an operator forbids to reboot {name}: {reason}"[:2000]
    return ""


def _by_hand(target: int, current: Run, asked: dict[str, Any]) -> bool:
    """Ask an operator to switch the target, once for all runs. Always returns False."""
    sql = """
        SELECT 1 FROM leases_run WHERE waits_for = 'operator' AND (maintenance ->> 'resource')::bigint = %s
            AND maintenance ? 'by_hand'"""
    if rows(sql, (target,)):
        return False
    name = Resource.objects.get(pk=target).name
    what = f"{asked['action'].replace('_', '-').capitalize()} {name} by hand, because its kind cannot; then answer yes."
    asked["by_hand"] = True
    about = {"waits_for": "operator", "hold_who": "operator", "sentence": what, "resolution": None}
    Run.objects.filter(pk=current.pk).update(**about)
    record_event("step.hold", f"operator: {what}", lease_id=current.lease_id, resource_id=current.resource_id)
    return False


def take_answer(current: Run) -> None:
    """Grant a machine's switch after an operator did it by hand. Other runs that wait for this switch continue too.

    Raises NotToBeHad if the operator's answer is no.
    """
    asked, answer = current.maintenance or {}, current.resolution
    if not asked.get("by_hand") or asked.get("granted") or answer is None:
        return
    if not answer["yes"]:
        raise maintenance.NotToBeHad(f"{answer['actor']} answered no: {answer['text']}".rstrip(": "))
    current.maintenance = {**asked, "granted": True}
    current.resolution = None
    Run.objects.filter(pk=current.pk).update(resolution=None)
    run(
        """
        UPDATE leases_run SET maintenance = maintenance || '{"granted": true}', due_at = clock_timestamp()
        WHERE waits_for = 'maintenance' AND (maintenance ->> 'resource')::bigint = %s AND id <> %s
            AND maintenance ->> 'action' = ANY(%s)""",
        (asked["resource"], current.pk, list(SWITCHES)),
    )
    hints.after_commit("sweep")


def fail_waiting(switching: Run, message: str) -> None:
    """After the run `switching` has failed to switch a machine, fail the runs that wait for the switch."""
    run(
        "UPDATE leases_run SET maintenance = maintenance || %s::jsonb, due_at = clock_timestamp()"
        " WHERE waits_for = 'maintenance' AND (maintenance ->> 'cycle')::bigint = %s",
        (json.dumps({"failed": f"{switching.resource.name} {message}"}), switching.pk),
    )
    hints.after_commit("sweep")


def _join(target: int, cycle: int, actions: Sequence[str]) -> None:
    """Let all runs that asked for one of these actions before this one begins share it."""
    run(
        "UPDATE leases_run SET maintenance = maintenance || jsonb_build_object('cycle', %s::bigint)"
        " WHERE waits_for = 'maintenance' AND (maintenance ->> 'resource')::bigint = %s"
        " AND maintenance ->> 'action' = ANY(%s) AND NOT maintenance ? 'cycle'",
        (cycle, target, list(actions)),
    )


_SWITCHING = ("power", "reboot", "retype")
_DISTURBING = (*_SWITCHING, "update")
_BEGUN = "(n.in_call OR n.position > 0 OR n.step <> '')"
_STANDS_IN = f"""
    SELECT n.sentence, r.name, b.kind, n.phase, n.wanted, n.position, n.uninterruptible OR n.phase = 'update'
    FROM leases_run n JOIN leases_resource r ON r.id = n.resource_id JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE n.id <> %(but)s AND (
        n.uninterruptible OR n.in_call OR (n.phase = 'update' AND n.waits_for = '' AND {_BEGUN}))
        AND (n.resource_id IN ({_BELOW}) OR EXISTS (SELECT FROM leases_lease c WHERE c.resource_id IN ({_BELOW})
            AND c.need <> '' AND c.state = 'active'
            AND (c.for_lease_id = n.lease_id OR (n.lease_id IS NULL AND c.for_resource_id = n.resource_id))))"""
_BEING_SWITCHED = f"""
    WITH mine AS (SELECT %(target)s::bigint AS id UNION SELECT c.resource_id FROM leases_lease c WHERE c.need <> ''
        AND c.state = 'active' AND (c.for_lease_id = %(lease)s OR c.for_resource_id = %(target)s))
    SELECT r.name, CASE n.phase WHEN 'update' THEN 'updated' ELSE 'switched' END
    FROM leases_run n JOIN leases_resource r ON r.id = n.resource_id
    WHERE n.id <> %(but)s AND n.lease_id IS NULL AND n.phase = ANY(%(phases)s)
        AND (n.phase <> 'update' OR n.waits_for = '') AND {_BEGUN} AND n.resource_id IN (
            SELECT id FROM mine UNION SELECT a.id FROM mine m CROSS JOIN LATERAL drydock_above(m.id) a) LIMIT 1"""


def why_not_now(current: Run, step: Step) -> str:
    """Return why a step must not begin now, or an empty string.

    A machine is not switched off, rebooted or updated while a step that cannot be interrupted runs in it, such as a
    flash, and no such step begins while its machine is being switched or updated. A machine is not switched during an
    update either. Call this after the beginning of the step was committed: if two steps begin at the same time, at
    least one of them then sees the other.
    """
    given = {"target": current.resource_id, "but": current.pk, "lease": current.lease_id, "phases": list(_DISTURBING)}
    begins = current.position == 0 and current.phase in _DISTURBING and current.wanted.get("power") != "on"
    if begins:
        for sentence, name, kind, phase, wanted, position, begun in rows(_STANDS_IN, given):
            if begun or not _interruptible(kind, phase, read_json(wanted), position):
                return f"Waits until {phase} of {name} can be interrupted. {sentence}".strip()
    if (begins and current.phase == Run.Phase.UPDATE) or not (begins or step.interruptible):
        for name, what in rows(_BEING_SWITCHED, given):
            return f"Waits until {name} has been {what}."
    if current.position == 0 and _is_forced(current):
        return _why_not_forced(current)
    if current.position == 0 and current.lease_id is not None and current.resource.in_maintenance:
        for (name,) in rows(_BEING_UPDATED, (current.resource_id,)):
            return f"Waits until {name} has been updated."
    return ""


_BEING_UPDATED = f"""
    SELECT r.name FROM leases_run n JOIN leases_resource r ON r.id = n.resource_id WHERE n.resource_id = %s
        AND n.lease_id IS NULL AND n.phase = 'update' AND n.wanted ? 'forced' AND {_BEGUN}"""
_OF_LEASES = f"""
    SELECT n.phase FROM leases_run n JOIN leases_share s ON s.lease_id = n.lease_id
    WHERE s.resource_id = %s AND (n.memo <> '{{}}' OR {_BEGUN}) ORDER BY n.id LIMIT 1"""


def _is_forced(current: Run) -> bool:
    """Return whether a run is an update that disturbs leases because an operator forces it."""
    wanted = current.wanted
    return current.phase == Run.Phase.UPDATE and "forced" in wanted and bool(wanted.get("disruptive"))


def _why_not_forced(current: Run) -> str:
    """Return why a forced update must not begin yet: reboots are forbidden, or a step of a lease has begun."""
    if said := _reboots_forbidden(current.resource_id):
        return said
    for (phase,) in rows(_OF_LEASES, (current.resource_id,)):
        # Owners read this, and see no leases of others.
        return f"Waits until {phase} of a lease on it has ended."
    return ""


_IN_CALL = """
    SELECT b.kind, n.phase, n.wanted, n.position FROM leases_run n JOIN leases_resource r ON r.id = n.resource_id
    JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE n.resource_id = %s AND n.id <> %s AND n.in_call AND n.token_until > clock_timestamp()"""


def why_not_beside(current: Run, step: Step) -> str:
    """Return why an exclusive step must not be called now, or an empty string.

    Call this after the beginning of the call was committed, as for `why_not_now`.
    """
    for kind, phase, wanted, position in rows(_IN_CALL, (current.resource_id, current.pk)) if step.exclusive else ():
        plan = attempt(plan_of, kind, phase, read_json(wanted) or {}) or ()
        if position < len(plan) and plan[position].exclusive:
            return f"Waits until a call of {phase} has ended."
    return ""


def _interruptible(kind: str, phase: str, wanted: Any, position: int) -> bool:
    plan = attempt(plan_of, kind, phase, wanted or {}) or ()
    return position >= len(plan) or plan[position].interruptible
