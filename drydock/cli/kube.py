"""`drydock kube`: manifests checked and roles printed for clusters with DPF, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import FAILURE, guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from blueprints.kube.check import Verdict

Crds = Annotated[
    list[Path] | None,
    typer.Option(
        "--crds", metavar="DIR", help="Folder of CRD files, instead of those of DPF 24.10 and 26.4; repeatable."
    ),
]

Words = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="WORD=TEXT", help="Replace a placeholder in the files, such as '$TAG=v1'; repeatable."
    ),
]


def add_kube(app: typer.Typer) -> None:
    """Add `drydock kube`."""
    group = typer.Typer(help="Clusters with DPF: check manifests, print roles.", no_args_is_help=True)
    group.command("check")(check_manifests)
    group.command("role")(print_role)
    group.callback()(_group)
    app.add_typer(group, name="kube", rich_help_panel="Operators")


def _group() -> None:
    """Clusters with DPF: check manifests, print roles."""


@guarded
def check_manifests(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")],
    *,
    crds: Crds = None,
    words: Words = None,
    as_json: o.AsJson = False,
) -> None:
    """Show the fields of manifests that an API server would not know, would require, or would not accept.

    Compares with CRDs, including their rules in CEL, and needs no server. A server drops unknown fields silently: a
    DPUSet that loses its selector selects every node. The exit code is 1 if no set of CRDs accepts a manifest.

    [dim]drydock kube check dpuset.yaml --crds crds[/dim]
    """
    from blueprints.kube import check

    sets = {str(folder): check.read_crds(folder) for folder in crds} if crds else check.bundled()
    replaced = dict(_word(one) for one in words or ())
    verdicts = [one for file in files for one in check.check_file(file, sets, replaced)]
    if as_json:
        output.emit([one.to_json() for one in verdicts])
    else:
        _show(verdicts)
    raise typer.Exit(0 if check.accepted(verdicts) else FAILURE)


def _word(given: str) -> tuple[str, str]:
    word, equals, text = given.partition("=")
    if not word or not equals:
        raise InvalidRequest(f"{given!r} is not of the form WORD=TEXT.", field="set")
    return word, text


def _show(verdicts: list[Verdict]) -> None:
    rows = []
    for one in verdicts:
        found = one.findings.sentences() or ["ok"]
        found += [f"{rule.field}: not checked. {rule.message}" for rule in one.findings.unchecked]
        rows += [(one.file, f"{one.kind}/{one.name}", one.crds, sentence) for sentence in found]
    output.table(("file", "object", "crds", "result"), rows, empty="The files have no manifest.")


@guarded
def print_role(
    blueprint: Annotated[str, typer.Argument(metavar="BLUEPRINT", help="A blueprint of a kind that uses DPF.")],
    *,
    dpf: Annotated[str, typer.Option("--dpf", metavar="VERSION", help="Version of DPF: 24.10 or 26.4.")] = "26.4",
    account: Annotated[str, typer.Option(metavar="NAME", help="Service account that gets the role.")] = "drydock",
    account_namespace: Annotated[
        str, typer.Option(metavar="NAMESPACE", help="Namespace of the account. Default: that of the blueprint.")
    ] = "",
    secrets: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="NAME",
            help="Secret with the kubeconfig of a DPU cluster; repeatable. Default: all secrets of the namespace.",
        ),
    ] = None,
) -> None:
    """Print the least role that a blueprint needs on the API server, and its binding, as YAML.

    The role is for one namespace, and has what the config of the blueprint needs. If that has credentials, there is
    another role for their namespace. Where DPF describes cards by labels of Nodes, as in 24.10, a cluster role that may
    list Nodes is printed too.

    [dim]drydock kube role dpus | kubectl apply -f -[/dim]
    """
    import yaml

    from blueprints.dpf import NAMESPACE, permissions
    from blueprints.kube.dialect import bundled

    info = o.client().blueprint(blueprint)
    if info.kind not in permissions.kinds():
        names = ", ".join(permissions.kinds())
        raise InvalidRequest(f"Blueprint {info.name} is of kind {info.kind}. The kinds {names} use DPF.")
    dialects = {name.removeprefix("dpf-"): found for name, found in bundled().items()}
    if dpf not in dialects:
        raise InvalidRequest(f"DPF {dpf!r} is not known. Choose one of: {', '.join(dialects)}.", field="dpf")
    try:
        made = permissions.manifests(
            permissions.permissions(info.kind, dialects[dpf], secrets or (), info.config),
            str(info.config.get("namespace", NAMESPACE)),
            name=f"{account}-{info.kind.replace('_', '-')}",
            account=account,
            account_namespace=account_namespace,
            secrets=str((info.config.get("credentials") or {}).get("namespace") or ""),
        )
    except ValueError as error:
        raise InvalidRequest(f"No role can be printed: {error}.") from error
    output.say(yaml.safe_dump_all(made, sort_keys=False).rstrip())
