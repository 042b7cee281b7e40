"""The policy documents for real accounts allow what the clouds' kinds call, and nothing else."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import botocore.session
import pytest
import yaml
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient
from botocore import xform_name
from googleapiclient.discovery_cache import get_static_doc

from blueprints.cloud.client import capabilities
from blueprints.contract import Lists, Offers, Powers
from blueprints.registry import names
from leases.engine.core.installation import INSTALLATION

ROOT = Path(__file__).parents[2]
CLOUDS = ROOT / "deploy/clouds"


@pytest.fixture(autouse=True)
def _database():
    """Files alone are looked at."""


def modules(kind: str) -> Iterator[ast.Module]:
    """Every module of a kind, parsed."""
    for path in sorted((ROOT / "blueprints" / kind).glob("*.py")):
        yield ast.parse(path.read_text())


def attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def calls_of(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Calls of methods with these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node


def keyword(call: ast.Call, name: str, default: Any = None) -> Any:
    return next((ast.literal_eval(one.value) for one in call.keywords if one.arg == name), default)


# Amazon


@cache
def service(name: str) -> dict[str, str]:
    """Operation as Python has it -> as IAM has it, of one of Amazon's services."""
    model = botocore.session.Session().get_service_model(name)
    return {xform_name(one): f"{model.signing_name}:{one}" for one in model.operation_names}


def aws_called() -> set[str]:
    """What the kind `ec2` asks for: the name in every call, and the names that a table of calls holds."""
    found = set()
    for tree in modules("ec2"):
        for call in calls_of(tree, "call", "pages"):
            first = call.args[0]
            if isinstance(first, ast.Constant):
                found.add(service(keyword(call, "service", "ec2"))[first.value])
            else:
                # Of the table `SORTS`, or handed on by the connection itself.
                assert ast.unparse(first) in ("sort.list", "sort.delete", "operation"), ast.unparse(call)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in service("ec2"):
                found.add(service("ec2")[node.value])
    return found


def aws_policy() -> list[dict[str, Any]]:
    policy = json.loads((CLOUDS / "aws-policy.json").read_text())
    assert policy.keys() == {"Version", "Statement"}
    statements: list[dict[str, Any]] = policy["Statement"]
    return statements


def several(one: Any) -> list[str]:
    return [one] if isinstance(one, str) else one


def test_amazon_allows_what_is_called_and_nothing_else():
    allowed = {action for one in aws_policy() for action in several(one["Action"])}
    assert allowed == aws_called()
    assert len(allowed) > 30


def test_at_amazon_only_what_bears_our_tag_is_changed():
    tagged = {"RunInstances", "CreateSecurityGroup", "CreateTags"}
    conditions = {f"aws:ResourceTag/{INSTALLATION}", f"aws:RequestTag/{INSTALLATION}", "ec2:CreateAction"}
    for one in aws_policy():
        said = {key for operator in one.get("Condition", {}).values() for key in operator}
        assert said <= conditions
        for action in several(one["Action"]):
            if not action.split(":")[1].startswith(("Describe", "Get", "List")) and action[4:] not in tagged:
                assert one["Condition"] == {"Null": {f"aws:ResourceTag/{INSTALLATION}": "false"}}, action


@pytest.mark.parametrize("thing", ["instance", "volume", "network-interface", "spot-instances-request"])
def test_at_amazon_nothing_is_launched_without_our_tag(thing):
    launching = [one for one in aws_policy() if "ec2:RunInstances" in several(one["Action"])]
    there = [one for one in launching if any(f":{thing}/" in arn for arn in several(one["Resource"]))]
    assert [one["Condition"] for one in there] == [{"Null": {f"aws:RequestTag/{INSTALLATION}": "false"}}]


def test_amazons_policy_is_short_enough_for_amazon():
    # 6,144 characters without white space, for a managed policy.
    text = (CLOUDS / "aws-policy.json").read_text()
    assert len(re.sub(r"\s", "", text)) <= 6144


# Google

GOOGLE = {
    "acceleratorTypes.aggregatedList": "acceleratorTypes.list",
    "acceleratorTypes.list": "acceleratorTypes.list",
    "disks.aggregatedList": "disks.list",
    "disks.delete": "disks.delete",
    "disks.get": "disks.get",
    "disks.resize": "disks.resize",
    "firewalls.delete": "firewalls.delete networks.updatePolicy",
    "firewalls.get": "firewalls.get",
    "firewalls.insert": "firewalls.create networks.updatePolicy",
    "firewalls.list": "firewalls.list",
    "firewalls.patch": "firewalls.update firewalls.get networks.updatePolicy",
    "globalOperations.list": "globalOperations.list",
    "images.get": "images.get",
    "images.getFromFamily": "images.getFromFamily",
    "images.list": "images.list",
    "instances.aggregatedList": "instances.list",
    "instances.delete": "instances.delete",
    "instances.get": "instances.get",
    "instances.getGuestAttributes": "instances.getGuestAttributes",
    "instances.getSerialPortOutput": "instances.getSerialPortOutput",
    "instances.insert": "instances.create instances.setMetadata instances.setLabels instances.setTags disks.create "
    "disks.setLabels images.useReadOnly networks.use subnetworks.use subnetworks.useExternalIp",
    "instances.reset": "instances.reset",
    "instances.setLabels": "instances.setLabels",
    "instances.setMachineType": "instances.setMachineType",
    "instances.setMetadata": "instances.setMetadata",
    "instances.start": "instances.start",
    "instances.stop": "instances.stop",
    "machineTypes.aggregatedList": "machineTypes.list",
    "machineTypes.list": "machineTypes.list",
    "networks.list": "networks.list",
    "projects.get": "projects.get",
    "regions.get": "regions.get",
    "regions.list": "regions.list",
    "subnetworks.get": "subnetworks.get",
    "zoneOperations.get": "zoneOperations.get",
    "zoneOperations.list": "zoneOperations.list",
}
"""Method -> permissions, each after `compute.`. Source: "IAM Permissions" on each method's page of the REST reference
(docs.cloud.google.com/compute/docs/reference/rest/v1)."""


def collection(client: str) -> str:
    """`instances` of InstancesClient."""
    return client[0].lower() + client[1:].removesuffix("Client")


def camel(method: str) -> str:
    head, *rest = method.removesuffix("_unary").split("_")
    return head + "".join(word.title() for word in rest)


def made(node: ast.AST) -> str:
    """The collection of `X.of(compute_v1.InstancesClient)`, else nothing."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "of" and node.args:
        first = node.args[0]
        if isinstance(first, ast.Attribute) and first.attr.endswith("Client"):
            return collection(first.attr)
    return ""


def google_called() -> set[str]:
    """Every method of an SDK's client that the kind `gce` names, by the client or by a property that gives it."""
    found = set()
    for tree in modules("gce"):
        held = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and isinstance(last := node.body[-1], ast.Return) and last.value:
                held[node.name] = made(last.value)
        for node in attributes(tree):
            inner = node.value
            if what := made(inner) or (held.get(inner.attr, "") if isinstance(inner, ast.Attribute) else ""):
                found.add(f"{what}.{camel(node.attr)}")
    return found


def clients_named() -> set[str]:
    """The collections whose clients the kind names at all."""
    every = (node for tree in modules("gce") for node in attributes(tree))
    of_sdk = (node.attr for node in every if ast.unparse(node.value) == "compute_v1")
    return {collection(name) for name in of_sdk if name.endswith("Client")}


def test_google_allows_what_is_called_and_nothing_else():
    assert google_called() == GOOGLE.keys()
    assert {method.split(".")[0] for method in google_called()} == clients_named()
    role = yaml.safe_load((CLOUDS / "gcp-role.yaml").read_text())
    wanted = {f"compute.{one}" for names in GOOGLE.values() for one in names.split()}
    assert role["includedPermissions"] == sorted(wanted)


def test_googles_methods_are_in_its_own_document():
    resources = json.loads(get_static_doc("compute", "v1"))["resources"]
    known = {f"{name}.{method}" for name, about in resources.items() for method in about.get("methods", {})}
    assert GOOGLE.keys() <= known


# Microsoft

COMPUTE, NETWORK = "Microsoft.Compute", "Microsoft.Network"
GROUP = {
    "disks.begin_create_or_update": f"{COMPUTE}/disks/write",
    "disks.begin_delete": f"{COMPUTE}/disks/delete",
    "disks.begin_update": f"{COMPUTE}/disks/write",
    "disks.get": f"{COMPUTE}/disks/read",
    "images.list_by_resource_group": f"{COMPUTE}/images/read",
    "network_interfaces.begin_create_or_update": f"{NETWORK}/networkInterfaces/write "
    f"{NETWORK}/virtualNetworks/subnets/join/action {NETWORK}/publicIPAddresses/join/action "
    f"{NETWORK}/networkSecurityGroups/join/action",
    "network_interfaces.begin_delete": f"{NETWORK}/networkInterfaces/delete",
    "network_interfaces.get": f"{NETWORK}/networkInterfaces/read",
    "network_interfaces.list": f"{NETWORK}/networkInterfaces/read",
    "network_security_groups.begin_create_or_update": f"{NETWORK}/networkSecurityGroups/write",
    "network_security_groups.begin_delete": f"{NETWORK}/networkSecurityGroups/delete",
    "network_security_groups.get": f"{NETWORK}/networkSecurityGroups/read",
    "public_ip_addresses.begin_create_or_update": f"{NETWORK}/publicIPAddresses/write",
    "public_ip_addresses.begin_delete": f"{NETWORK}/publicIPAddresses/delete",
    "public_ip_addresses.get": f"{NETWORK}/publicIPAddresses/read",
    "public_ip_addresses.list": f"{NETWORK}/publicIPAddresses/read",
    "security_rules.begin_create_or_update": f"{NETWORK}/networkSecurityGroups/securityRules/write",
    "security_rules.begin_delete": f"{NETWORK}/networkSecurityGroups/securityRules/delete",
    "virtual_machines.begin_create_or_update": f"{COMPUTE}/virtualMachines/write {COMPUTE}/disks/write "
    f"{NETWORK}/networkInterfaces/join/action",
    "virtual_machines.begin_deallocate": f"{COMPUTE}/virtualMachines/deallocate/action",
    "virtual_machines.begin_delete": f"{COMPUTE}/virtualMachines/delete",
    "virtual_machines.begin_restart": f"{COMPUTE}/virtualMachines/restart/action",
    "virtual_machines.begin_start": f"{COMPUTE}/virtualMachines/start/action",
    "virtual_machines.begin_update": f"{COMPUTE}/virtualMachines/write",
    "virtual_machines.get": f"{COMPUTE}/virtualMachines/read",
    "virtual_machines.list": f"{COMPUTE}/virtualMachines/read",
    "virtual_machines.retrieve_boot_diagnostics_data": f"{COMPUTE}/virtualMachines/retrieveBootDiagnosticsData/action",
    "virtual_networks.begin_create_or_update": f"{NETWORK}/virtualNetworks/write",
    "virtual_networks.get": f"{NETWORK}/virtualNetworks/read",
    "virtual_networks.list": f"{NETWORK}/virtualNetworks/read",
    "POST /subscriptions//resourceGroups//providers/Microsoft.Compute/virtualMachines//runCommand": f"{COMPUTE}/"
    "virtualMachines/runCommand/action",
    "GET /subscriptions//resourcegroups/": "Microsoft.Resources/subscriptions/resourceGroups/read",
    "PATCH /providers/Microsoft.Resources/tags/default": "Microsoft.Resources/tags/write",
}
"""Operation of the SDK, or HTTP method and the fixed parts of a path -> the actions of the resource group's role."""
SUBSCRIPTION = {
    "resource_skus.list": f"{COMPUTE}/skus/read",
    "usage.list": f"{COMPUTE}/locations/usages/read",
    "usages.list": f"{NETWORK}/locations/usages/read",
    "virtual_machine_images.get": f"{COMPUTE}/locations/publishers/artifacttypes/offers/skus/versions/read",
    "virtual_machine_images.list": f"{COMPUTE}/locations/publishers/artifacttypes/offers/skus/versions/read",
    "virtual_machine_images.list_skus": f"{COMPUTE}/locations/publishers/artifacttypes/offers/skus/read",
    "virtual_machines.list_all": f"{COMPUTE}/virtualMachines/read",
    "GET /providers/Microsoft.Authorization/permissions": "Microsoft.Authorization/permissions/read",
    "GET /subscriptions//locations": "Microsoft.Resources/subscriptions/locations/read",
    "GET command": f"{COMPUTE}/locations/operations/read",
    "GET operation": f"{COMPUTE}/locations/operations/read",
}
"""The same for the role of the whole subscription. Source of both: "Azure permissions for Compute", "... for
Networking", "... for Management and governance" (learn.microsoft.com/azure/role-based-access-control/permissions)."""


@cache
def operations() -> dict[str, set[str]]:
    """Group of operations -> its operations, as the SDK's clients have them."""
    found = {}
    for made_of in (ComputeManagementClient, NetworkManagementClient):
        client: Any = made_of(mock.Mock(), "0")
        for name, group in vars(client).items():
            if not name.startswith("_"):
                found[name] = {method for method in dir(group) if not method.startswith("_")}
    return found


def azure_called() -> set[str]:
    """What the kind `azure` asks for: operations of the SDK, those of its parts, and calls without the SDK."""
    found: set[str] = set()
    patched: set[str] = set()
    parts: dict[str, str] = {}
    through: set[str] = set()
    for tree in modules("azure"):
        held = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                held[ast.unparse(node.targets[0])] = node.value.attr
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "self._operations":
                assert isinstance(node.value, ast.Dict)
                pairs = zip(node.value.keys, node.value.values, strict=True)
                parts = {ast.literal_eval(key): value.attr for key, value in pairs}  # type: ignore[arg-type, attr-defined]
        for node in attributes(tree):
            inner = node.value
            if isinstance(inner, ast.Subscript) and ast.unparse(inner.value) == "self._operations":
                through.add(node.attr)
            group = inner.attr if isinstance(inner, ast.Attribute) else held.get(ast.unparse(inner), "")
            if node.attr in operations().get(group, ()):
                found.add(f"{group}.{node.attr}")
        patched |= {ast.literal_eval(call.args[0]) for call in calls_of(tree, "patch")}
        found |= set(asked(tree))
    for method in through:
        found |= {f"{parts[part]}.{method}" for part in (patched if method == "begin_update" else parts)}
    return found


def asked(tree: ast.Module) -> Iterator[str]:
    """Calls without the SDK: HTTP method and the fixed parts of the path."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        texts = {
            ast.unparse(node.targets[0]): node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.JoinedStr)
        }
        for call in calls_of(function, "ask"):
            path = texts.get(ast.unparse(call.args[1]), call.args[1])
            fixed = getattr(path, "values", ())
            said = "".join(one.value for one in fixed if isinstance(one, ast.Constant)) or ast.unparse(path)
            yield f"{ast.literal_eval(call.args[0])} {said}"


def test_azure_allows_what_is_called_and_nothing_else():
    assert azure_called() == GROUP.keys() | SUBSCRIPTION.keys()
    for name, table in (("azure-role.json", GROUP), ("azure-role-reader.json", SUBSCRIPTION)):
        role = json.loads((CLOUDS / name).read_text())
        assert role["Actions"] == sorted({one for actions in table.values() for one in actions.split()}), name
        assert role["NotActions"] == role["DataActions"] == role["NotDataActions"] == []


def test_what_reads_a_whole_subscription_changes_nothing_there():
    role = json.loads((CLOUDS / "azure-role-reader.json").read_text())
    assert all(action.endswith("/read") for action in role["Actions"])


# The pages


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("ec2", "aws-policy.json"),
        ("gce", "gcp-role.yaml"),
        ("azure", "azure-role.json"),
        ("azure", "azure-role-reader.json"),
    ],
)
def test_a_page_shows_the_document_that_is_there(page, name):
    text = (ROOT / f"docs/kinds/{page}.md").read_text()
    blocks = re.findall(r"```\w+\n(.*?)```", text, re.DOTALL)
    assert (CLOUDS / name).read_text() in blocks


def test_every_document_is_on_a_page():
    pages = "".join((ROOT / f"docs/kinds/{page}.md").read_text() for page in ("ec2", "gce", "azure"))
    there = {path.name for path in CLOUDS.iterdir()}
    assert there == {name for name in there if f"../../deploy/clouds/{name}" in pages}
    assert len(there) == 4


@pytest.mark.parametrize("kind", ["ec2", "gce", "azure"])
def test_every_code_of_a_provider_is_on_its_page(kind):
    text = (ROOT / f"docs/kinds/{kind}.md").read_text().lower()
    errors = __import__(f"blueprints.{kind}.errors", fromlist=["errors"])
    codes = errors.REASONS if kind == "gce" else [code for codes in errors.CODES.values() for code in codes]
    assert len(codes) > 30
    assert [code for code in codes if f"`{code.lower()}`" not in text] == []


@pytest.mark.parametrize("kind", ["ec2", "gce", "azure"])
def test_every_field_of_a_credential_and_an_image_is_on_its_page(kind):
    text = (ROOT / f"docs/kinds/{kind}.md").read_text()
    config = __import__(f"blueprints.{kind}.config", fromlist=["config"])
    fields = [*config.Credential.model_fields, *config.Image.model_fields]
    assert [name for name in fields if f"`{name}`" not in text] == []


def test_every_field_that_clouds_share_is_on_their_page():
    from blueprints.cloud.config import CloudConfig, CloudRequirements

    text = (ROOT / "docs/kinds/clouds.md").read_text()
    fields = [*CloudConfig.model_fields, *CloudRequirements.model_fields]
    assert [name for name in fields if f"`{name}`" not in text] == []


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The package that the page on a cloud of one's own writes down, importable."""
    text = (ROOT / "docs/how-to/cloud.md").read_text()
    files = dict(re.findall(r"```python\n# tinycloud/(\w+\.py)\n(.*?)```", text, re.DOTALL))
    assert files.keys() == {"config.py", "errors.py", "client.py", "kind.py"}
    folder = tmp_path / "tinycloud"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, body in files.items():
        (folder / name).write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    yield "tinycloud"
    for name in [name for name in sys.modules if name.split(".")[0] == "tinycloud"]:
        del sys.modules[name]


def test_the_cloud_of_ones_own_is_a_kind(example):
    from importlib import import_module

    kind = import_module(f"{example}.kind").TinyHost()
    assert all(isinstance(kind, one) for one in (Offers, Lists, Powers))
    assert kind.name not in names()
    client = kind.client({"token": "secret", "endpoint": "http://127.0.0.1:9"})
    assert capabilities(type(client)) == {
        "create", "terminate", "idempotent-create", "user-data", "stop-start"
    }  # fmt: skip
    config = kind.Config.model_validate({"credential": "tiny", "image": {"name": "debian-12"}})
    assert kind.sought(config, None).account == "tiny"
    assert {step.name for step in kind.build()} >= {"decide", "image", "network", "create", "boot", "reach"}


def test_the_cloud_of_ones_own_says_what_went_wrong(example):
    from importlib import import_module

    from blueprints.cloud.faults import CloudError, Meaning

    errors = import_module(f"{example}.errors")
    assert errors.meaning("sold_out", 409) is Meaning.NO_CAPACITY
    assert errors.meaning("", 503, changes=True) is Meaning.AMBIGUOUS
    client = import_module(f"{example}.kind").TinyHost().client({"token": "x", "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(CloudError) as caught:
        client.locations()
    assert caught.value.meaning is Meaning.UNAVAILABLE


def test_headings_of_the_pages_are_in_one_order():
    """A page per cloud has the same parts, so that one finds one's way."""
    wanted = ["Credential", "Images", "Config", "What is made", "Confidential machines", "Quotas", "Regions and prices"]
    wanted += ["Errors", "Limits", "A real account with the least permissions"]
    for kind in ("ec2", "gce", "azure"):
        heads = re.findall(r"^## (.+)$", (ROOT / f"docs/kinds/{kind}.md").read_text(), re.MULTILINE)
        assert all(heads.index(one) < heads.index(other) for one, other in pairwise(wanted)), kind
