"""The rules between the rooms of the package, read from its sources."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import celery_batching

ROOT = Path(celery_batching.__file__).parent

#: Lines that a module may have.
CEILING = 300

#: These decide and compute; they import the standard library and one another.
PURE = ("celery_batching.core", "celery_batching.options", "celery_batching.errors", "celery_batching.columns")

#: The modules that may use what Celery, kombu and billiard do not promise; the second one leads to
#: kombu's Redis transport, the third is for a process that only calls, which need not load the worker.
DOORS = ("celery_batching._celery_internals", "celery_batching.transport._kombu", "celery_batching.client._celery")

#: What these promise: documented modules, imported by users all over.
PUBLIC = {
    "celery",
    "celery.bootsteps",
    "celery.exceptions",
    "celery.result",
    "celery.signals",
    "celery.worker.control",
    "kombu",
    "kombu.exceptions",
    "kombu.serialization",
    "kombu.utils.compat",
    "kombu.utils.json",
    "kombu.utils.uuid",
}

#: Never at the top of a module: a process that only sends calls would pay for it.
HEAVY = {"torch", "numpy", "django", "flask", "prometheus_client"}


class Import(NamedTuple):
    """One imported name: `from module import name`, or `import module` with no name."""

    module: str
    name: str | None
    #: Whether it happens when the importing module is loaded, not in a function or for the type checker only.
    at_load: bool


def modules() -> dict[str, Path]:
    """Every module of the package by its full name."""
    names = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("celery_batching", *path.relative_to(ROOT).with_suffix("").parts)
        names[".".join(parts).removesuffix(".__init__")] = path
    return names


MODULES = modules()


def imports(name: str) -> list[Import]:
    """What a module imports, relative names made absolute."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: list[Import] = []

    def visit(node: ast.AST, at_load: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, None, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.extend(Import(absolute(node, package), alias.name, at_load) for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            at_load = False
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                visit(child, at_load=False)
            for child in node.orelse:
                visit(child, at_load)
            return
        for child in ast.iter_child_nodes(node):
            visit(child, at_load)

    visit(ast.parse(path.read_text()), at_load=True)
    return found


def absolute(node: ast.ImportFrom, package: str) -> str:
    """The full name of the module behind `from`."""
    if not node.level:
        return node.module or ""
    base = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def own_modules(name: str, *, at_load: bool = False) -> Iterator[str]:
    """The modules of the package that a module imports, all of them or those it needs to load."""
    for one in imports(name):
        if at_load and not one.at_load:
            continue
        submodule = f"{one.module}.{one.name}"
        if submodule in MODULES:
            yield submodule
        elif one.module in MODULES:
            yield one.module


def top(module: str) -> str:
    return module.partition(".")[0]


def within(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


@pytest.mark.parametrize("name", [name for name in MODULES if within(name, PURE)])
def test_the_pure_modules_import_only_the_standard_library(name: str) -> None:
    """core, options, errors and columns know no Celery, so that they are tested as tables."""
    foreign = {one.module for one in imports(name) if top(one.module) not in sys.stdlib_module_names}

    assert [] == sorted(module for module in foreign if not within(module, PURE))


@pytest.mark.parametrize("name", [name for name in MODULES if within(name, ("celery_batching.core",))])
def test_the_core_has_no_clock_and_no_log(name: str) -> None:
    """The core decides with the time it is given, and neither logs, waits nor starts threads."""
    banned = {"time", "datetime", "logging", "threading", "os", "socket", "random"}

    assert set() == banned & {top(one.module) for one in imports(name)}


@pytest.mark.parametrize("name", [name for name in MODULES if within(name, ("celery_batching.pool",))])
def test_the_pool_never_imports_the_consumer(name: str) -> None:
    """Messages go through the rooms in one direction: what runs in the pool process knows nothing of the main one."""
    assert [] == [module for module in own_modules(name) if within(module, ("celery_batching.consumer",))]


@pytest.mark.parametrize("name", [name for name in MODULES if not within(name, DOORS)])
def test_only_doors_lead_to_what_is_not_public(name: str) -> None:
    """Names of Celery, kombu and billiard that are not public are imported by two modules alone."""
    foreign = [one for one in imports(name) if top(one.module) in ("celery", "kombu", "billiard", "vine", "amqp")]

    assert [] == [one for one in foreign if one.module not in PUBLIC or (one.name or "").startswith("_")]
    assert [] == [one.module for one in imports(name) if one.module.startswith(f"{DOORS[0]}.")]


@pytest.mark.parametrize("name", MODULES)
def test_heavy_packages_are_never_imported_at_load(name: str) -> None:
    """torch, numpy and web frameworks are imported where they are used, not where a module is loaded."""
    assert [] == [one.module for one in imports(name) if one.at_load and top(one.module) in HEAVY]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_short(name: str) -> None:
    """No module has more than 300 lines."""
    assert len(MODULES[name].read_text().splitlines()) <= CEILING


@pytest.mark.parametrize("name", MODULES)
def test_a_module_says_what_it_is(name: str) -> None:
    """Each module opens with a docstring that places it."""
    assert ast.get_docstring(ast.parse(MODULES[name].read_text()))


def test_no_cycle_of_imports_at_load() -> None:
    """No module needs, to be loaded, one that needs it to be loaded."""
    graph = {name: set(own_modules(name, at_load=True)) - {name} for name in MODULES}

    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, with the cycle

    assert set(MODULES) == set(order)


def test_the_reader_sees_imports_of_all_kinds() -> None:
    """The rules above read something: relative imports, those in functions, and those for the type checker."""
    found = {(one.module, one.name): one.at_load for one in imports("celery_batching.task")}

    assert found["celery_batching.errors", "SignatureError"]
    assert not found["celery_batching.pool.body", "ItemBody"]
    assert ("celery", "Celery") in found
    assert not found["celery", "Celery"]
