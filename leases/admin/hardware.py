"""The pages of hardware: all hosts with their devices, and one host with all that was reported about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from drydock_agent import Hardware
from drydock_agent.pci import NOT_LEASED
from drydock_client.values import DeviceInfo, HardwareInfo
from leases.admin.toolkit import equivalent_commands, html, search, timeline
from leases.admin.toolkit.panels import Panel
from leases.agents import administration, reported
from leases.models import Agent, Sync
from leases.operations import attention, callers

HOSTS, DEVICES, FEW = 25, 100, 40
"""Hosts on one page of all, devices on one page of a host, and devices of each host on the page of all."""
READ_AT_ONCE = 8 << 20
"""Bytes of reports that one page unpacks. Hosts beyond that are shown without their devices, with a link."""
_MAY = (
    "leases.view_reportedhardware", "leases.view_resource", "leases.view_lease", "leases.view_agent",
    "blueprints.view_blueprint",
)  # fmt: skip
_AGENTS = 20
_PARTS = (
    ("used", "work", "used"), ("free", "good", "free"), ("closed", "wait", "closed"), ("unready", "bad", "not ready"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """A device in the tree of its host."""

    device: DeviceInfo
    level: int
    """1 for a device in the host, 2 for a part of it, and so on."""
    name: SafeString | str
    state: SafeString
    leases: SafeString | str
    where: str


@dataclass(frozen=True, kw_only=True)
class HostTree:
    """A host with the devices that are shown of it."""

    info: HardwareInfo
    name: SafeString | str
    address: str
    state: SafeString
    reported: SafeString
    ready: str
    rows: Sequence[Row] = field(default_factory=tuple)
    more: str = ""
    """Why devices are missing from the rows, or an empty string."""


def page(site: Any, request: HttpRequest) -> HttpResponse:
    """Render the hardware of all hosts. Raises PermissionDenied."""
    who = _allowed(request)
    number, words = _number(request.GET.get("p", "")), search.clean(request.GET.get("q", ""))
    troubled = request.GET.get("show") == "problems"
    found = reported.reports(who).order_by("blueprint__name", "pk")
    if words:
        found = found.filter(Q(place=words) | Q(host_name__istartswith=words) | Q(blueprint__name=words))
    if troubled:
        silent = Agent.objects.filter(
            blueprint=OuterRef("blueprint"), place=OuterRef("place"), revoked_at=None, silent_since__isnull=False
        )
        found = found.filter(~Q(message="") | Q(hardware__unready__gt=0) | Exists(silent))
    first = (number - 1) * HOSTS
    there = list(found[first : first + HOSTS + 1])
    agents = _agents([one.pk for one in there])
    read = reported.Read(who, there[:HOSTS], agents=agents)
    chosen = {name: value for name, value in (("q", words), ("show", "problems" if troubled else "")) if value}
    context = {
        **site.each_context(request), "title": "Hardware", "classes": _pictures(), "panels": _troubled(agents),
        "hosts": list(_trees(read)), "searched_hosts": words, "troubled": troubled, "first": first + 1,
        "last": first + min(len(there), HOSTS),
        "before": _at("admin:hardware", chosen, number - 1) if number > 1 else "",
        "after": _at("admin:hardware", chosen, number + 1) if len(there) > HOSTS else "",
        "elsewhere": [equivalent_commands.line_for(request, key, {}) for key in ("hardware", "agents")],
    }  # fmt: skip
    return TemplateResponse(request, "admin/drydock/hardware.html", context)


def host_page(site: Any, request: HttpRequest, pk: int) -> HttpResponse:
    """Render the hardware of one host. Raises PermissionDenied and Http404."""
    who = _allowed(request)
    read = reported.Read(who, reported.reports(who).filter(pk=pk if pk < 1 << 63 else 0))
    if not read.syncs:
        raise Http404
    (sync,) = read.syncs
    info, hardware, number = read.info(sync), read.contents().get(sync.pk), _number(request.GET.get("p", ""))
    every = request.GET.get("all") == "1"
    rows = _rows(read.devices(sync, hardware), every=every) if hardware else []
    first = (number - 1) * DEVICES
    shown = rows[first : first + DEVICES]
    chosen = {"all": "1"} if every else {}
    names = {"id": sync.pk, "name": info.blueprint, "host": info.host or info.place}
    context = {
        **site.each_context(request), "title": f"Hardware of {info.name}",
        "host": _tree(info, shown, ""), "first": first + 1, "last": first + len(shown), "total": len(rows),
        "every": every, "hidden": len(hardware.devices) - len(rows) if hardware else 0,
        "before": _at("admin:hardware_of_host", chosen, number - 1, pk) if number > 1 else "",
        "after": _at("admin:hardware_of_host", chosen, number + 1, pk) if len(rows) > first + DEVICES else "",
        "panels": _about(info, hardware),
        "elsewhere": [equivalent_commands.line_for(request, f"hardware.{key}", names) for key in ("host", "scan")],
    }  # fmt: skip
    return TemplateResponse(request, "admin/drydock/hardware_of_host.html", context)


def _allowed(request: HttpRequest) -> callers.Caller:
    if not request.user.has_perms(_MAY):
        raise PermissionDenied
    return callers.caller(request.user)


def _number(text: str) -> int:
    return max(int(text), 1) if text.isascii() and text.isdecimal() and len(text) < 7 else 1


def _at(name: str, chosen: Mapping[str, str], number: int, *args: int) -> str:
    return f"{reverse(name, args=args)}?{urlencode({**chosen, 'p': number})}"


def _agents(pks: Sequence[int]) -> list[Agent]:
    """Return the agents of some reports, and those that an operator should look at, in one statement."""
    ours = Exists(Sync.objects.filter(pk__in=pks, blueprint=OuterRef("blueprint"), place=OuterRef("place")))
    found = Agent.objects.filter(Q(revoked_at=None) & (ours | attention.TROUBLED_AGENT))
    found = found.select_related("blueprint").defer("secrets").order_by("silent_since", "pk")
    return list(found[: HOSTS + 10 * _AGENTS])


def _troubled(agents: Sequence[Agent]) -> list[Panel]:
    """Return a panel with the agents that do not report, or are otherwise in trouble, unless there are none."""
    infos = [administration.info(one) for one in agents]
    troubled = [(row, info) for row, info in zip(agents, infos, strict=True) if info.message]
    if not troubled:
        return []
    rows = [
        (html.link(row, info.host or info.place), info.blueprint, html.badge(info.state),
         html.time(info.reported_at) if info.reported_at else "never", html.short(info.message, 300))
        for row, info in troubled[:_AGENTS]
    ]  # fmt: skip
    return [
        Panel(
            title="Agents that need attention", name="agents", rows=rows,
            columns=("Host", "Blueprint", "State", "Last report", "Problem"),
            more=("All agents", reverse("admin:leases_agent_changelist")),
        )
    ]  # fmt: skip


def _pictures() -> list[tuple[str, SafeString, SafeString]]:
    """Return for each class of devices its name, a picture of their use, and the same in words."""
    found = []
    for one in reported.by_class():
        counts = [(tone, getattr(one, name), words) for name, tone, words in _PARTS]
        total = sum(number for _, number, _ in counts)
        parts = [(tone, number / total, f"{number} {words}") for tone, number, words in counts if number]
        said = format_html_join(
            " ", '<span class="dd-key"><span class="dd-dot dd-{}" aria-hidden="true"></span>{} {}</span>',
            ((tone, f"{number:,}", words) for tone, number, words in counts if number),
        )  # fmt: skip
        found.append((one.name, timeline.stacked_bar(parts), said))
    return found


def _trees(read: reported.Read) -> Iterator[HostTree]:
    """Yield the hosts with their first devices, as far as their reports are small enough together."""
    left, wanted = READ_AT_ONCE, []
    for sync in read.syncs:
        hardware = getattr(sync, "hardware", None)
        if hardware is not None and hardware.size <= left:
            left -= hardware.size
            wanted.append(sync.pk)
    contents = read.contents(wanted)
    for sync in read.syncs:
        info, hardware = read.info(sync), contents.get(sync.pk)
        if hardware is None:
            yield _tree(info, (), "The devices are on the page of the host." if info.counts else "")
            continue
        rows = _rows(read.devices(sync, hardware), every=False)
        left_out = len(rows) - FEW
        yield _tree(info, rows[:FEW], f"{left_out:,} more devices are on the page of the host." if left_out > 0 else "")


def _tree(info: HardwareInfo, rows: Sequence[Row], more: str) -> HostTree:
    name: SafeString | str = info.name
    if info.host is not None:
        at = reverse("admin:leases_resource_change", args=(info.host,))
        name = format_html('<a href="{}">{}</a>', at, html.short(info.name, 100))
    ready = ", ".join(
        f"{states.get('ready', 0)} of {sum(states.values())} {kind}" for kind, states in sorted(info.counts.items())
    )
    return HostTree(
        info=info, name=name, address=reverse("admin:hardware_of_host", args=(info.id,)),
        state=html.badge(info.state, info.message or "The last report was stored."),
        reported=html.time(info.reported_at), ready=f"{ready} ready" if ready else "", rows=rows, more=more,
    )  # fmt: skip


def _rows(devices: Sequence[DeviceInfo], *, every: bool) -> list[Row]:
    """Return the devices as a tree: each is followed by its parts. Bridges and the like are left out if asked."""
    shown = [one for one in devices if every or one.kind not in ("bridge", "other") or one.device_class]
    there = {one.id for one in shown}
    parts: dict[str, list[DeviceInfo]] = {}
    for one in shown:
        parts.setdefault(one.part_of if one.part_of in there and one.part_of != one.id else "", []).append(one)
    found: list[Row] = []
    stack = [(one, 1) for one in reversed(parts.pop("", []))]
    while stack:
        one, level = stack.pop()
        found.append(_row(one, level))
        stack += [(part, level + 1) for part in reversed(parts.pop(one.id, []))]
    # What is part of itself, in a circle, comes last.
    return found + [_row(one, 1) for rest in parts.values() for one in rest]


def _row(one: DeviceInfo, level: int) -> Row:
    name: SafeString | str = html.short(one.id, 60)
    if one.resource is not None:
        name = format_html('<a href="{}">{}</a>', reverse("admin:leases_resource_change", args=(one.resource,)), name)
    state = "not leased" if one.role in NOT_LEASED else one.readiness.replace("_", " ")
    words = ["failed"] if (state, one.health) == ("ready", "failed") else [state]
    words += ["degraded"] if one.health == "degraded" else []
    words += [word for word in one.resource_state.split(", ") if word not in ("", "active")]
    leases = format_html_join(
        ", ", '<a href="{}">#{}</a>', ((reverse("admin:leases_lease_change", args=(pk,)), pk) for pk in one.leases)
    )
    where = [
        "" if one.numa_node is None else f"NUMA\u00a0{one.numa_node}",
        "" if one.iommu_group is None else f"IOMMU\u00a0{one.iommu_group}", one.link,
    ]  # fmt: skip
    return Row(
        device=one, level=min(level, 4), name=name, state=html.badges(*filter(None, words)), leases=leases,
        where=", ".join(filter(None, where)),
    )  # fmt: skip


def _about(info: HardwareInfo, hardware: Hardware | None) -> list[Panel]:
    """Return panels with the facts of the host itself, and with the problems of its scan."""
    if hardware is None:
        return []
    host = hardware.host
    cpu = host.cpu
    facts: list[tuple[str, Any]] = [
        ("Processor", f"{cpu.model}: {cpu.sockets} sockets, {cpu.cores} cores, {cpu.threads} threads" if cpu else ""),
        ("Memory", f"{host.memory_mib / 1024:.1f} GiB" if host.memory_mib else ""),
        ("NUMA nodes", len(host.numa_nodes) or ""), ("TPM", host.tpm), ("Confidential", ", ".join(host.confidential)),
        *((f"Identity {name.replace('_', ' ')}", text) for name, text in host.identities.items()),
        *((f"DMI {name.replace('_', ' ')}", text) for name, text in host.dmi.items()),
        ("Last change", html.time(info.changed_at)),
    ]  # fmt: skip
    found = [Panel(title="Host", rows=[(name, _cell(value)) for name, value in facts if value])]
    if hardware.warnings:
        said = [(html.short(one.subject, 100), html.short(one.message, 300)) for one in hardware.warnings[:DEVICES]]
        found.insert(0, Panel(title="Problems of the scan", columns=("Subject", "Problem"), rows=said))
    return found


def _cell(value: Any) -> Any:
    return html.short(value, 200) if isinstance(value, str) and not isinstance(value, SafeString) else value
