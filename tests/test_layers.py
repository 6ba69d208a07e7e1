"""The import rules of the architecture, checked on the source.

A component is a package or a module directly below `magnetar`, or the package that registers our source with Spark.
Imports point down only, those for type checkers too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "magnetar"
DISCOVERED = SOURCE.parent / "pyspark_pulsar"  # Spark looks for packages of this name

# Each leaf may import the ones before it. One module of the client is among them: its errors, which `security` raises.
LEAVES = (
    "errors",
    "version",
    "docs_site",
    "bounds",
    "access_bounds",
    "pipeline_bounds",
    "setting_bounds",
    "allocator",
    "latency",
    "health",
    "clock",
    "log",
    "names",
    "settings",
    "schema",
    "client.errors",
    "security",
    "access",
    "replication",
    "declared",
)

# Imports allowed for each component besides the leaves and itself.
BELOW: dict[str, set[str]] = {
    "wire": set(),
    "deadletter": {"wire"},
    "storage": set(),
    "broker": {"wire", "deadletter", "storage"},
    "session": {"wire", "deadletter", "storage", "broker"},
    "admin": {"wire", "deadletter", "storage", "broker"},
    "console": {"deadletter", "client"},
    "server": {"wire", "storage", "broker", "session", "admin", "client"},
    "client": {"wire"},
    "spark": {"wire", "deadletter", "client"},
    "pyspark_pulsar": {"spark"},
    "pipelines": {"wire", "deadletter", "client", "spark"},
    "cli": {"deadletter", "server", "client", "console", "pipelines", "spark"},
    "testing": {"wire", "storage", "broker", "session", "server"},
    "testing_plugin": {"testing"},
    "__main__": {"cli"},
    "": set(),  # magnetar/__init__.py
}

# Third-party modules that only some components may import.
RESERVED: dict[str, set[str]] = {
    "asyncio": {"server", "client", "console", "testing"},
    "socket": {"server", "client", "console", "testing"},
    "selectors": {"server", "client", "testing"},
    "uvloop": {"server", "client", "testing"},
    "uvicorn": {"server", "console", "testing"},
    "starlette": {"server", "admin", "console"},
    "fastapi": {"console"},
    "nicegui": {"console"},
    "rocksdict": {"storage"},
    "sortedcontainers": {"storage"},
    "typer": {"cli"},
    "rich": {"cli"},
    "pyspark": {"spark", "pipelines", "pyspark_pulsar"},
}

READS_THE_TIME = {"clock", "server", "cli"}
TIME_READERS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}


def component_of(path: Path) -> str:
    if DISCOVERED in path.parents:
        return DISCOVERED.name
    return component_named(".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__"))


def component_named(dotted: str) -> str:
    """The component of a module, by its name below `magnetar`."""
    whole = ".".join(dotted.split(".")[:2])
    return whole if whole in LEAVES else dotted.partition(".")[0]


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{prefix}.{alias.name}".replace("..", ".")) for alias in node.names)


def time_reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (
                (node.lineno, f"time.{alias.name}") for alias in node.names if ("time", alias.name) in TIME_READERS
            )
        elif isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if (name, node.attr) in TIME_READERS:
                yield node.lineno, f"{name}.{node.attr}"


def may_import(component: str, other: str) -> bool:
    if other == component:
        return True
    if component in LEAVES:
        return other in LEAVES[: LEAVES.index(component)]
    return other in LEAVES or other in BELOW[component]


def violations(component: str, source: str) -> list[str]:
    tree = ast.parse(source)
    found: list[str] = []
    for line, name in imported_names(tree):
        first, _, rest = name.partition(".")
        if first == "":
            found.append(f"{line}: relative import of {rest}")
        elif first == "magnetar" and not may_import(component, component_named(rest)):
            found.append(f"{line}: {component or 'magnetar'} imports {name}")
        elif component not in RESERVED.get(first, {component}):
            found.append(f"{line}: {component or 'magnetar'} imports {first}")
    if component not in READS_THE_TIME:
        found.extend(f"{line}: {component} reads the time with {name}" for line, name in time_reads(tree))
    return found


SOURCES = sorted(path for root in (SOURCE, DISCOVERED) for path in root.rglob("*.py") if path.name != "schema_pb2.py")


def test_the_source_is_found() -> None:
    assert len(SOURCES) > 10


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(SOURCE.parent).as_posix())
def test_imports_point_down_only(path: Path) -> None:
    component = component_of(path)
    assert component in BELOW or component in LEAVES, f"add {component} to the layers in this file"
    assert violations(component, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("component", "source"),
    [
        ("wire", "import magnetar.storage.api"),
        ("storage", "from magnetar.wire import codec"),
        ("storage", "from magnetar import broker"),
        ("broker", "from magnetar.session.session import Session"),
        ("broker", "def f():\n    import asyncio.events"),
        ("session", "from socket import socket"),
        ("client", "from magnetar.broker.topic.topic import Topic"),
        ("cli", "from magnetar.storage.rocks import RocksStorage"),
        ("settings", "from magnetar.replication.model import State"),
        ("errors", "import magnetar.names"),
        ("broker", "if TYPE_CHECKING:\n    from magnetar.server.tcp import Connection"),
        ("broker", "from . import topic"),
        ("broker", "from ..server import tcp"),
        ("server", "import pyspark.sql"),
        ("client", "from pyspark.sql import Row"),
        ("spark", "from magnetar.server.server import Server"),
        ("console", "from magnetar.admin.http.guard import Guard"),
        ("server", "from magnetar.console.start import run_console"),
        ("pyspark_pulsar", "from magnetar.client import Client"),
        ("broker", "import time\ntime.time()"),
        ("broker", "import time\nread = time.time_ns"),
        ("session", "from time import time"),
        ("admin", "from datetime import datetime\ndatetime.now()"),
        ("admin", "import datetime\ndatetime.datetime.utcnow()"),
    ],
)
def test_violations_are_found(component: str, source: str) -> None:
    assert len(violations(component, source)) == 1


@pytest.mark.parametrize(
    ("component", "source"),
    [
        (
            "broker",
            "from magnetar.broker import keys\nfrom magnetar.storage.api import Storage\nimport magnetar.errors",
        ),
        ("server", "import asyncio\nimport time\ntime.time()\nfrom magnetar.session import session"),
        ("names", "from magnetar.errors import InvalidName\nimport re"),
        ("spark", "import pyspark\nfrom magnetar.client import reader"),
        ("pyspark_pulsar", "from magnetar.spark.source.source import PulsarSource as DefaultSource"),
        ("storage", "import time\ntime.monotonic()"),
    ],
)
def test_valid_imports_pass(component: str, source: str) -> None:
    assert violations(component, source) == []


# -- the engine of pipelines: the modules directly in its folder, which know no verb

PIPELINES = SOURCE / "pipelines"
NAMES_THE_VERBS = PIPELINES / "verbs.py"
STARTS_THE_PROCESS = PIPELINES / "__main__.py"
EXPORTS = PIPELINES / "__init__.py"  # for programs, lazily
ENGINE = sorted(set(PIPELINES.glob("*.py")) - {NAMES_THE_VERBS, STARTS_THE_PROCESS, EXPORTS})
FOLDERS_OF_VERBS = sorted(path.name for path in PIPELINES.iterdir() if (path / "__init__.py").exists())


def verbs_known_to(source: str) -> list[str]:
    verbs = (f"magnetar.pipelines.{name}" for name in [*FOLDERS_OF_VERBS, NAMES_THE_VERBS.stem])
    words = (*verbs, "magnetar.replication.model", "magnetar.replication.route")
    imported = [name for _, name in imported_names(ast.parse(source))]
    return [name for name in imported if any(name == word or name.startswith(f"{word}.") for word in words)]


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.name)
def test_the_engine_of_pipelines_knows_no_verb(path: Path) -> None:
    assert verbs_known_to(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "from magnetar.pipelines.replicate.driver import Pipeline",
        "from magnetar.pipelines import copy",
        "def f():\n    import magnetar.pipelines.verify.verify",
        "from magnetar.pipelines.verbs import VERBS",
        "from magnetar.replication.model import Declaration",
    ],
)
def test_a_verb_in_the_engine_is_found(source: str) -> None:
    assert len(verbs_known_to(source)) == 1
    assert "replicate" in FOLDERS_OF_VERBS


# -- rooms

CIRCLES = {
    ("broker/damage", "broker/topic"): "a topic has subscriptions that cannot be read, and these belong to it",
    ("broker/moves", "broker/topic"): "a topic stores what is moved, and moves find their topic and store with it",
    ("broker/subscription", "broker/topic"): "a topic has subscriptions, and these read its log",
    ("client", "security"): "security raises the client's errors, which are a leaf",
    (
        "spark/sink",
        "spark/source",
    ): "Spark has one class for both, and the sink names the source's options",
}
"""Pairs of rooms that import each other, with the reason."""


def room_of(module: str) -> str:
    """The folder of a module, by its dotted name."""
    parts: list[str] = []
    for part in module.split(".")[1:]:
        if not SOURCE.joinpath(*parts, part).is_dir():
            break
        parts.append(part)
    return "/".join(parts)


def test_rooms_do_not_import_each_other() -> None:
    imports = {
        (path.parent.relative_to(SOURCE).as_posix(), room_of(name))
        for path in SOURCES
        if SOURCE in path.parents and path.parent != SOURCE
        for _, name in imported_names(ast.parse(path.read_text(encoding="utf-8")))
        if name.startswith("magnetar.")
    }
    apart = {(a, b) for a, b in imports if b and not a.startswith(b) and not b.startswith(a)}
    assert {(a, b) for a, b in apart if a < b and (b, a) in apart} == set(CIRCLES)
