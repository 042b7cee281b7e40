"""The steps in which image and bf.cfg are written to the rshim of a card, by a job on its host.

The job is started once, outlives the connection and the worker, and is found again by its name. It is never cancelled,
neither by a release nor by a destruction: nothing but the card ends it. It copies the log of the card into its output,
and the log decides, not an exit code.
"""

from __future__ import annotations

import datetime as dt

from blueprints.accounts.access import shell
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.bluefield import rshim
from blueprints.bluefield.access import has_bmc
from blueprints.dpu.bluefield import host
from blueprints.dpu.bluefield.config import Config
from blueprints.dpu.bluefield.preparing import FOLDER, PATH, by_rshim, card_of
from blueprints.hostshell import told
from blueprints.specs import Spec
from drydock.core import clock
from interfaces.command.jobs import JobEnd, JobSpec
from interfaces.errors import CommandFailed, ConnectionLost, DeadlineExceeded, JobConflict, JobMissing, Unreachable

ENDED, FORCED = "flash_ended", "rshim_forced"
"""Facts: whether a failed installation has surely ended, and whether the host took the rshim from another owner."""
_JOB = "install"
_LOOK, _OWNED, _OFF = 2.0, 120.0, 300.0
_MARGIN = 120.0
"""Seconds beyond the limit of an installation, in which the job itself should have reported it."""
_TAIL, _MOST = 32 << 10, 1 << 20
_AWAY = (Unreachable, ConnectionLost, DeadlineExceeded)
_MISC = '[ -e "$1/misc" ] || exit 0\ncat -- "$1/misc" | head -c 65536'
_SET = 'printf "%s\\n" "$2" >"$1/misc"'
_BUSY = """[ -e "$1/boot" ] || exit 0
ls -l /proc/[0-9]*/fd 2>/dev/null | grep "^l.w" | grep -qF -- "-> $(readlink -f -- "$1")/boot" && echo busy
exit 0
"""
# $1 folder of the rshim, $2 file, $3 seconds. awk prints what the log has beyond its former content: the longest end of
# the former content with which the present one begins was there before. The log is a ring, which loses its beginning.
_STREAM = r"""
misc=$1/misc before=$2.before now=$2.now code=$2.code
show() {
  grep -E '^ *(INFO|WARN|ERR|ASSERT)\[' <"$misc" >"$now" 2>/dev/null
  awk 'FNR == NR && FILENAME == ARGV[1] { old[++n] = $0; next } { new[++m] = $0 }
    END { for (k = n < m ? n : m; k > 0; k--) { same = 1
        for (i = 1; i <= k; i++) if (old[n - k + i] != new[i]) { same = 0; break }
        if (same) break }
      for (i = k + 1; i <= m; i++) print new[i] }' "$before" "$now"
  mv -f -- "$now" "$before"
}
: >"$before"
echo 'DISPLAY_LEVEL 2' >"$misc" || echo 'WARN[HOST]: DISPLAY_LEVEL could not be set'
n=5
until grep -q 'Log Messages' <"$misc" 2>/dev/null || [ $n = 0 ]; do sleep 1; n=$((n - 1)); done
show >/dev/null
# An image that is being written is never interrupted, also if nobody is interested in the log any more.
( cat -- "$2" >"$1/boot"; echo $? >"$code" ) &
end=$(($(date +%s) + $3)) more=5 sent= result=3
while [ "$(date +%s)" -lt "$end" ]; do
  if [ -z "$sent" ] && [ -s "$code" ]; then
    sent=$(cat "$code")
    [ "$sent" != 0 ] || echo '__SENT__'
  fi
  new=$(show)
  [ -z "$new" ] || printf '%s\n' "$new"
  case $sent$new in *'CRITICAL ERROR'*|*'In Enhanced NIC mode'*|0*'DPU is ready'*) result=0; break;; esac
  case $sent in
    ''|0) ;;
    *) result=4 more=$((more - 1)); [ $more -gt 0 ] || break;;
  esac
  sleep 1
done
wait
echo 'DISPLAY_LEVEL 0' >"$misc"
exit $result
""".replace("__SENT__", rshim.SENT)


@told
def own(spec: Spec, memo: Json) -> Answer:
    """Let the host have the rshim, and check that it leads to a card like the leased one.

    If another side has it, such as the BMC, the driver shows DROP_MODE 1, or no folder at all.
    """
    if not by_rshim(spec):
        return Ready()
    found = _device(spec)
    if found is None or found.dropped:
        return _take(spec, memo, found)
    card = card_of(spec).attributes
    serial, folder = spec.resource.facts["card"], _folder(spec)
    if found.locked:
        said = f"The firmware of card {serial} lets its host change nothing (SECURE_NIC_MODE 1 in {folder}/misc)."
        return Failed(scope=Scope.OFFER, code="rshim_locked", message=said)
    if found.mode == "nic":
        said = f"Card {serial} is in NIC mode: it has no operating system that could be installed. Set its mode."
        return Failed(scope=Scope.OFFER, code="nic_mode", message=said)
    other = found.generation and card.get("model") and found.generation != card["model"]
    if other or not rshim.same_part(found.part_number, str(card.get("part_number") or "")):
        said = f"{folder} leads to a {found.generation} with part number {found.part_number or 'unknown'}, which is not"
        return Failed(scope=Scope.OFFER, code="other_card", message=f"{said} card {serial}. Correct `rshims`.")
    if _busy(spec):
        said = f"Another program writes an image to {folder}."
        return Failed(scope=Scope.OFFER, code="rshim_busy", message=said)
    return Ready(facts={FORCED: bool(memo.get("forced"))}, log=f"The host has the rshim {found.name}.")


def _take(spec: Spec, memo: Json, found: rshim.Device | None) -> Answer:
    began = memo.get("began") or clock.now().isoformat()
    waited, folder = _since(began), _folder(spec)
    if waited > _OWNED:
        name = spec.parents[host.LEASE].resource.name
        why = f"does not get {folder}" if found is not None else f"has no {folder}"
        message = (
            f"Host {name} {why}: the rshim is attached via another backend, such as the BMC, or the rshim service of "
            "the host does not run. Stop the other one, or correct `rshims`."
        )
        return Failed(scope=Scope.OFFER, code="rshim", message=message)
    if found is not None and not memo.get("forced"):
        _ask_for_it(spec)
    memo = {**memo, "began": began, "forced": bool(memo.get("forced")) or found is not None}
    return Wait(after=_LOOK, memo=memo, sentence=f"The host takes the rshim {folder} of the card.")


def _ask_for_it(spec: Spec) -> None:
    """Ask the other side for the rshim. Older drivers do not know how to, and only try to get it."""
    there = host.account_on(spec)
    for setting in ("FORCE_CMD 1", "DROP_MODE 0"):
        try:
            there.run(_SET, _folder(spec), setting)
        except CommandFailed:
            continue
        return


def stream(spec: Spec, memo: Json) -> Answer:
    """Start the job that writes the image to the card, once, and follow the log of the card until it decides."""
    if "began" not in memo:
        began = clock.now().isoformat()
        return Wait(after=0.0, memo={"began": began}, percent=10, sentence="The image is ready.")
    waited, limit = _since(memo["began"]), float(spec.config.flash_limit)
    try:
        if host.LEASE not in spec.parents:
            return _unknown("The lease on the host is gone.")
        if not memo.get("started"):
            _start(spec)
            return Wait(after=_LOOK, memo={**memo, "started": True}, percent=12, sentence="The image is sent.")
        there = host.account_on(spec)
        found = there.jobs(host.base_of(there)).remains(_JOB, 0, _TAIL)
    except JobMissing:
        return _unknown("The job that wrote the image is not known to the host any more.")
    except _AWAY as error:
        if waited > limit + _MARGIN:
            return _unknown(error.message)
        sentence = f"The image is being installed, and the host does not answer. {error.message}"
        return Wait(after=_LOOK, memo=memo, percent=memo.get("percent", 12), sentence=sentence[:500])
    return _judged(spec, memo, found, waited)


def _start(spec: Spec) -> None:
    there = host.account_on(spec)
    file = host.path_of(there, spec.resource.secrets[PATH])
    limit = str(int(spec.config.flash_limit))
    words = there.words(_STREAM, _folder(spec), file, limit)
    try:
        there.jobs(host.base_of(there)).start(JobSpec(id=_JOB, words=words, cwd="/", max_output=_MOST))
    except JobConflict:
        return  # it was started before the limit in the config was changed


def _judged(spec: Spec, memo: Json, found: JobEnd, waited: float) -> Answer:
    config: Config = spec.config
    log = (found.head + found.tail).decode("utf-8", "replace").replace(spec.resource.secrets[PATH], "the image")
    judgement = rshim.judge(log)
    if judgement.state == "ready":
        return Ready(facts={"flashed": config.image}, log=f"The card is ready: {judgement.last}"[:1500])
    if judgement.meaning is not None:
        said = judgement.meaning
        if found.job.state.over or said.code != "stream_failed":
            over = {ENDED: found.job.state.over}
            return Failed(scope=said.scope, code=said.code, message=said.sentence[:1500], log=log[-2000:], facts=over)
    last = f" The last line of its log is: {judgement.last}" if judgement.last else " Its log is empty."
    if found.job.state.over and found.job.exit_code is None:
        return _unknown(f"The job that wrote the image was ended by something else.{last}")
    if found.job.state.over or waited > config.flash_limit + _MARGIN:
        message = f"The card did not become ready within {waited:.0f} s.{last}"[:1500]
        over = {ENDED: found.job.state.over}
        return Failed(scope=Scope.OFFER, code="flash_limit", message=message, log=log[-2000:], facts=over)
    percent = max(int(memo.get("percent", 12)), 12 + int((judgement.percent or 0) * 0.6))
    sentence = f"The card installs the image.{last if judgement.last else ''}"[:500]
    return Wait(after=_LOOK, memo={**memo, "percent": percent}, percent=percent, sentence=sentence)


def _unknown(why: str) -> Failed:
    message = f"{why} It is unknown whether the card was installed. Look at the card before it is used."
    return Failed(scope=Scope.OFFER, code="flash_unknown", message=message[:1500], quarantines_carrier=True)


@told
def give_back(spec: Spec, memo: Json) -> Answer:
    """Leave the rshim to the one from whom the host took it. A BMC takes it by itself when it is asked to."""
    if by_rshim(spec) and spec.resource.facts.get(FORCED) and host.LEASE in spec.parents and not _bmc(spec):
        host.account_on(spec).run(_SET, _folder(spec), "DROP_MODE 1")
    return Ready(facts={FORCED: False}) if by_rshim(spec) else Ready()


# At the end of a DPU


def needs_host(spec: Spec) -> bool:
    """Return whether the end of the DPU needs the host: an installation may run, or only rshim can stop the card."""
    facts = spec.resource.facts
    unsettled = not facts.get("flashed") and not facts.get(ENDED)
    return by_rshim(spec) and (unsettled or (not _bmc(spec) and spec.config.park == "power_off"))


@told
def have_host_again(spec: Spec, memo: Json) -> Answer:
    """Lease the host of the card again, if the end of the DPU needs it."""
    if not needs_host(spec) or host.LEASE in spec.parents:
        return Ready()
    if asked := host.needed(spec):
        return asked
    if _bmc(spec):
        return Ready(log="The host of the card is unknown, so nothing can be installed from it any more.")
    message = f"The host of card {card_of(spec).name} is unknown, so its operating system cannot be stopped."
    return Failed(scope=Scope.OPERATOR, code="cannot_park", message=message, quarantines_carrier=True)


@told
def wait_for_stream(spec: Spec, memo: Json) -> Answer:
    """Wait until nothing writes to the rshim. After the limit, the card is quarantined, and stays with the DPU."""
    if host.LEASE not in spec.parents or not _busy(spec):
        return Ready()
    began = memo.get("began") or clock.now().isoformat()
    if (waited := _since(began)) > spec.config.flash_limit:
        message = f"The card could not be handed back within {waited:.0f} s: an image is still written to it."
        return Failed(scope=Scope.OPERATOR, code="not_ended", message=message, quarantines_carrier=True)
    return Wait(after=_LOOK, memo={"began": began}, sentence="An image is still written to the card.")


@told
def stop(spec: Spec, memo: Json) -> Answer:
    """Stop the operating system of a card without a BMC: it is reset, and waits for an image from its host.

    This uses nothing that a tenant of the DPU could have changed.
    """
    found = _device(spec)
    if found is None or found.dropped:
        return _take(spec, memo, found)
    asked = memo.get("asked")
    if asked and found.boot_mode == 0 and not _answers(spec):
        return Ready(log="The card was reset, and waits for an image from its host.")
    began = asked or memo.get("set") or clock.now().isoformat()
    if _since(began) > _OFF:
        message = "The operating system of the card does not stop: it still answers, or its boot mode is not 0."
        return Failed(scope=Scope.STEP, code="not_off", message=message)
    memo = {"asked": asked} if asked else _reset(spec, found, began)
    return Wait(after=_LOOK, memo=memo, sentence="The operating system of the card is stopped.")


def _reset(spec: Spec, found: rshim.Device, began: str) -> Json:
    """Reset a card that has boot mode 0, or set that mode: in another one, a reset would start the system again."""
    there = host.account_on(spec)
    if found.boot_mode == 0:
        there.run(_SET, _folder(spec), "SW_RESET 1")
        return {"asked": clock.now().isoformat()}
    there.run(_SET, _folder(spec), "BOOT_MODE 0")
    return {"set": began}


def _answers(spec: Spec) -> bool:
    try:
        shell(spec, at_most=5.0).run("echo here")
    except _AWAY:
        return False
    return True


def _bmc(spec: Spec) -> bool:
    return has_bmc(card_of(spec))


def _folder(spec: Spec) -> str:
    return str(spec.resource.facts[FOLDER])


def _device(spec: Spec) -> rshim.Device | None:
    return rshim.device(host.account_on(spec).run(_MISC, _folder(spec)))


def _busy(spec: Spec) -> bool:
    return host.account_on(spec).run(_BUSY, _folder(spec)).split() == ["busy"]


def _since(began: str) -> float:
    return (clock.now() - dt.datetime.fromisoformat(began)).total_seconds()
