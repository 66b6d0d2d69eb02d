"""Imports run one way: the arrows between the rooms, drawn from the code."""

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import networkx
import pytest

import gpupc_impl
from gpupc_impl.core.family import families

ROOT = Path(gpupc_impl.__file__).parents[1]
FAMILIES = {"gaussian", "discrete", "nonlinear", "mixed", "kernel", "regression"}

HOMONYMS = {("gpupc_impl.measurement.kernel_times", "kernel")}
"""Modules with a word that is also a family's name: a column of CUDA kernels there."""

UTILITIES = {"examples", "integers", "ownership"}
"""Rooms without imports of their own that all others may import; the picture leaves them out."""

MAY_USE = {
    **{utility: set() for utility in UTILITIES},
    "backends": set(),
    "core": {"backends"},
    "tables": {"core"},
    "engine": {"core", "backends"},
    **{family: {"engine", "core", "backends"} for family in FAMILIES},
    "mixed": {"nonlinear", "core", "backends"},
    "kernel": {"core", "backends"},
    "regression": {"core", "backends"},
    "out_of_core": {"gaussian", "engine", "core", "backends"},
    "distributed": {"out_of_core", "gaussian", "engine", "core", "backends"},
    "measurement": {"core", "backends"},
    "verification": {"measurement", "core", "backends"},
    "reporting": {"measurement", "verification", "latent", "core", "backends"},
    "views": {"core"},
    "time_series": {"gaussian", "nonlinear", "discrete", "tables", "core", "backends"},
    "intake": {"tables", "core"},
    "search": {"intake", "views", "core", "backends"},
    "latent": {"gaussian", "core"},
    "api": {"search", "latent", "core"},
    "studies": {"api", "search", "intake", "views", "core"},
    "cli": {
        *("gpupc_impl", "studies", "time_series", "api", "search", "latent", "intake", "views", "measurement"),
        *("core", "backends"),
    },
    "bridges": {"gpupc_impl", "api", "core", "backends", *FAMILIES},
    "gpupc_impl": {"studies", "api", "latent", "time_series", "core", "backends", *FAMILIES},
    "baselines": {"api", "latent", "time_series", "core", "backends", *FAMILIES},
    "datasets": {"tables", "core"},
    "workflow": {
        *("datasets", "baselines", "gaussian", "reporting", "verification", "measurement", "api", "distributed"),
        *("core", "backends"),
    },
}
"""Room by room, what it may import. Rooms are the folders and modules of gpupc_impl, `gpupc_impl` its own top, and the
other packages of the project. Families are found by name, which is no arrow."""

INTERFACES = {"core": ("gpupc_impl.backends", "gpupc_impl.backends.base", "gpupc_impl.backends.machine")}
"""Rooms that may import no more than these modules of `backends`."""


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the project, by its dotted name."""
    for package in ("gpupc_impl", "baselines", "datasets", "workflow"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def room(module: str) -> str | None:
    """The room that a module lies in; None outside of the project."""
    top, _, rest = module.partition(".")
    if top != "gpupc_impl":
        return top if top in MAY_USE else None
    inner = rest.partition(".")[0]
    return {"": "gpupc_impl", "__main__": "cli"}.get(inner, inner)


@functools.cache
def imports(module: str, path: Path) -> list[tuple[int, str]]:
    """Line by line, the modules that one imports, inside of functions as well."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    imported = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            imported += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                within = f"{base}.{alias.name}"
                imported.append((node.lineno, within if within in MODULES else base))
    return imported


def arrows() -> Iterator[tuple[str, str, str, str]]:
    """Each import across rooms: where it stands, the room, the room imported, and the module."""
    for module, path in MODULES.items():
        for line, imported in imports(module, path):
            start, end = room(module), room(imported)
            if end is not None and end not in UTILITIES and start != end:
                yield f"{path.relative_to(ROOT)}:{line}", start, end, imported


def test_every_room_is_known():
    assert {room(module) for module in MODULES} == set(MAY_USE)
    assert set(families()) == FAMILIES


def test_rooms_have_an_order():
    """No room can reach itself."""

    def reached(start: str, seen: tuple[str, ...] = ()) -> Iterator[str]:
        for end in MAY_USE[start]:
            assert end not in seen, f"{' -> '.join(seen)} -> {end}"
            yield end
            yield from reached(end, (*seen, end))

    assert all(start not in reached(start, (start,)) for start in MAY_USE)


def test_no_arrow_points_up():
    up = [f"{where}: {start} imports {module}" for where, start, end, module in arrows() if end not in MAY_USE[start]]
    assert not up, "\n".join(up)


def test_no_modules_import_each_other():
    """Inside of rooms neither; imports in functions and under `if TYPE_CHECKING` count as well."""
    edges = ((module, imported) for module, path in MODULES.items() for _, imported in imports(module, path))
    graph = networkx.DiGraph((start, end) for start, end in edges if end in MODULES and start != end)
    assert [circle for circle in networkx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_no_room_enters_another_by_a_private_module():
    """Except in `baselines`, where an underscore marks modules without a method."""
    private = [
        f"{where}: {start} imports {module}"
        for where, start, end, module in arrows()
        if "._" in module and end != "baselines"
    ]
    assert not private, "\n".join(private)


def test_the_picture_in_the_documentation_is_the_codes():
    """Every arrow of the code, but those that others lead along already; the library's top counts as `studies`."""
    drawn = re.findall(r"^    ([a-z_]+) --> ([a-z_]+)$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    real = networkx.DiGraph((start, end) for _, start, end, _ in arrows())
    real = networkx.relabel_nodes(real, {"gpupc_impl": "studies"})
    real.remove_edges_from(list(networkx.selfloop_edges(real)))
    assert set(drawn) == set(networkx.transitive_reduction(real).edges)


def test_only_interfaces_of_the_backends_are_used_above_them():
    found = [
        f"{where}: {start} imports {module}"
        for where, start, end, module in arrows()
        if end == "backends" and module not in INTERFACES.get(start, [module])
    ]
    assert not found, "\n".join(found)


def test_methods_do_not_depend_on_their_familys_record():
    """What is measured is versioned by what it imports: see `gpupc_impl.core.family`."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for module, path in MODULES.items()
        for line, imported in imports(module, path)
        if imported.endswith(".family") and imported != "gpupc_impl.core.family"
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "name",
    ["core", "engine", "measurement", "verification", "views", "search", "api", "studies", "cli", "tables", "intake"],
)
def test_a_shared_room_names_no_family(name):
    """But in docstrings, as examples."""
    found = []
    for module, path in MODULES.items():
        if room(module) == name:
            tree = ast.parse(path.read_bytes())
            found += [
                f"{path.relative_to(ROOT)}:{node.lineno}: {node.value!r}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and node.value in FAMILIES and (module, node.value) not in HOMONYMS
            ]
    assert not found, "\n".join(found)
