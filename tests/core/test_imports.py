"""The direction of imports: no circle, also not by an import inside a function or under TYPE_CHECKING."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("drydock", "drydock_client", "drydock_agent", "interfaces", "blueprints", "leases")
MOST, MOST_OF_THE_ENGINE = 20, 8


def modules(packages: tuple[str, ...] = PACKAGES) -> dict[str, Path]:
    found = {}
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Every module that a file imports anywhere, as far as it is one of ours."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                if deeper in known or node.module in known:
                    yield deeper if deeper in known else node.module


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = modules()
    graph = {name: set(imported(path, known)) - {name} for name, path in known.items()}
    assert not circle(graph)


def test_a_circle_inside_a_function_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\n")
    (tmp_path / "b.py").write_text("def late():\n    from a import thing\n")
    known = {name: tmp_path / f"{name}.py" for name in ("a", "b")}
    assert set(circle({name: set(imported(path, known)) for name, path in known.items()})) == {"a", "b"}


@pytest.mark.parametrize(
    "package",
    [
        *sorted({str(path.parent.relative_to(ROOT)) for path in (ROOT / "blueprints").rglob("kind.py")}),
        "blueprints/bmc",
        "drydock_agent",
        "drydock_agent/drivers",
        "drydock_agent/program",
        "drydock_client",
        "drydock_client/http",
        "drydock_client/values",
        "leases/admin",
        "leases/local",
        "leases/operations",
        "leases/rest",
    ],
)
def test_a_package_of_a_kind_or_a_face_has_few_modules(package: str) -> None:
    modules = [path for path in (ROOT / package).glob("*.py") if path.stem != "__init__"]
    there = sorted(path.stem for path in modules if not path.read_text().startswith('"""Deprecated:'))
    assert len(there) <= MOST, there


@pytest.mark.parametrize(
    "package", sorted(path.name for path in (ROOT / "leases" / "engine").iterdir() if path.is_dir())
)
def test_a_package_of_the_engine_is_small_and_names_its_modules(package: str) -> None:
    if package == "__pycache__":
        return
    folder = ROOT / "leases" / "engine" / package
    there = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    assert len(there) <= MOST_OF_THE_ENGINE
    tree = ast.parse((folder / "__init__.py").read_text())
    assert ast.get_docstring(tree), "its __init__ says what it is responsible for"
    (named,) = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(named) == there


def test_the_architecture_lists_the_modules_of_the_engine() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page[page.index("## The engine") : page.index("## The path of a lease")]
    table = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", section, re.MULTILINE)
    listed = {package: sorted(re.findall(r"`(\w+)`", names)) for package, names in table}
    folders = [path for path in (ROOT / "leases" / "engine").iterdir() if (path / "__init__.py").exists()]
    assert listed == {
        folder.name: sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__") for folder in folders
    }


@pytest.mark.parametrize(("library", "module"), [("sushy", "redfish_client"), ("pyghmi", "ipmi_client")])
def test_a_library_for_bmcs_is_imported_by_one_module_only(library: str, module: str) -> None:
    statement = re.compile(rf"^\s*(import|from) {library}\b", re.MULTILINE)
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert {path.stem for path in sources if statement.search(path.read_text())} <= {module}
