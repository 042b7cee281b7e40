"""The guest as seen from inside: reached by the key it was born with, done with its first boot, what was asked."""

from __future__ import annotations

import json

from blueprints.accounts import acts as accounts
from blueprints.accounts.access import shell
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.cloud.interruption import NOTICE
from blueprints.cloud.userdata import READY_MARK
from blueprints.hosts import observed
from blueprints.hostshell import told
from blueprints.specs import Spec
from interfaces.errors import AuthenticationRefused, ConnectionLost, DeadlineExceeded, HostKeyMismatch, Unreachable

_FIRST_BOOT = f"""
command -v cloud-init > /dev/null || {{ echo absent; exit; }}
said=$(cloud-init status 2> /dev/null)
case $said in
*error*) echo error; cloud-init status --long 2> /dev/null | tail -n 20;;
*done*) [ -e {READY_MARK} ] && echo done || echo running;;
*disabled*) echo absent;;
*) echo running;;
esac
"""
_WAAGENT = "/var/lib/waagent"
_BY_AGENT = f"""
if [ -e {_WAAGENT}/provisioned ]; then echo done; exit; fi
if [ -d {_WAAGENT} ]; then echo running; exit; fi
there= failed=
for unit in google-guest-agent-manager.service google-guest-agent.service; do
  systemctl cat $unit > /dev/null 2>&1 || continue
  there=yes
  case $(systemctl is-active $unit) in
  active) echo done; exit;;
  failed) failed=$unit;;
  esac
done
if [ "$failed" ]; then echo error; systemctl status --no-pager $failed | tail -n 20
elif [ "$there" ]; then echo running
else echo absent
fi
"""
"""Azure's agent leaves a file when it has provisioned; Google's runs, and has made the account by which we are in.
Since 20250901.00 its manager runs, and google-guest-agent.service is there but disabled; before, that alone ran
(https://docs.cloud.google.com/compute/docs/images/guest-agent)."""
_BOOTING = (Unreachable, ConnectionLost, DeadlineExceeded, AuthenticationRefused)
"""What a machine answers whose SSH server, or whose account, is not there yet. A wrong host key is none of these."""


@told
def reach(spec: Spec, memo: Json) -> Answer:
    """Until it lets us in and its first boot is over."""
    try:
        if spec.config.ready_by == "ssh":
            shell(spec).run("true")
            return Ready(log="reached")
        asked = _BY_AGENT if spec.config.ready_by == "agent" else _FIRST_BOOT
        said, _, further = shell(spec).run(asked).strip().partition("\n")
    except HostKeyMismatch:
        raise
    except _BOOTING as error:
        return Wait(after=5.0, memo=memo, sentence=f"It does not let us in yet: {error.message}"[:500])
    if said == "done":
        return Ready(log="its first boot is over")
    if said == "running":
        return Wait(after=5.0, memo=memo, sentence="Its first boot is not over yet.")
    return _not_to_be(spec, said, further)


def _not_to_be(spec: Spec, said: str, further: str) -> Failed:
    by_agent = spec.config.ready_by == "agent"
    if said == "absent" and by_agent:
        message = "Its image has no agent of Google's or Azure's. Let the blueprint say ready_by: ssh."
        return Failed(scope=Scope.OPERATOR, code="no_agent", message=message)
    if said == "absent":
        message = "Its image has no cloud-init. Let the blueprint say ready_by: ssh, or choose another image."
        return Failed(scope=Scope.OPERATOR, code="no_cloud_init", message=message)
    who, code = ("The cloud's agent", "agent") if by_agent else ("cloud-init", "cloud_init")
    return Failed(scope=Scope.BLUEPRINT, code=code, message=f"{who} failed: {further}"[:2000], log=further)


@told
def compare(spec: Spec, memo: Json) -> Answer:
    """See that it is what was asked, and what else it is."""
    found = accounts.looked(spec)
    wanted, there = spec.resource.attributes.get("arch"), found.get("arch")
    if wanted and there and wanted != there:
        message = f"The machine is {there}; {wanted} was ordered. Does the image fit the instance type?"
        return Failed(scope=Scope.BLUEPRINT, code="another_machine", message=message)
    return Ready(facts=found, attributes={**observed(found), "arch": there or wanted})


_ANNOUNCED = f"[ -f {NOTICE} ] && head -c 4096 {NOTICE} || :"
"""Whoever is root in the guest may write there what they like: it is a text for the machine's own holders."""
_WORD = 64


@told
def announced(spec: Spec, memo: Json) -> Answer:
    """Read whether the guest was told that its cloud takes it back. Only what we have installed there is asked."""
    if not spec.resource.facts.get("interruption") or spec.resource.facts.get("announced"):
        return Ready()
    try:
        said = json.loads(shell(spec).run(_ANNOUNCED) or "null")
    except (ValueError, RecursionError):
        return Ready()
    if not isinstance(said, dict):
        return Ready()
    action, time = (_word(said.get(name)) for name in ("action", "time"))
    return Ready(facts={"leaving": f"the guest was told: {action or 'taken back'}{f' at {time}' if time else ''}."})


def _word(given: object) -> str:
    return (
        "".join(one for one in given[:_WORD] if one.isascii() and one.isprintable()) if isinstance(given, str) else ""
    )
