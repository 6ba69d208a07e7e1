"""What wheel and sdist have in them: the packages, and nothing of the checkout beside them."""

from __future__ import annotations

import configparser
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from magnetar.version import __version__

from .builds import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = {
    path.relative_to(ROOT / "src").as_posix()
    for path in (ROOT / "src").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts and "egg-info" not in str(path)
}
INFO = f"magnetar-{__version__}.dist-info"


@pytest.fixture(scope="session")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"{INFO}/METADATA").decode())


def test_the_wheel_has_the_packages_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    written = {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert names == SOURCES | written
    assert {"magnetar/py.typed", "magnetar/wire/schema.proto", "pyspark_pulsar/__init__.py"} <= names


def test_the_sdist_has_what_builds_the_wheel(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        paths = {PurePosixPath(name).relative_to(f"magnetar-{__version__}") for name in archive.getnames()}
    names = {path.as_posix() for path in paths}
    beside = {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert {name for name in names if not name.startswith("src/")} == beside
    assert {name.removeprefix("src/") for name in names if name.startswith("src/")} == SOURCES


def test_the_files_of_both_are_the_same(wheel: Path, sdist: Path) -> None:
    top = f"magnetar-{__version__}/src/"
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as source:
        for member in source:  # in their order: to look for one reads all before it
            if member.isfile() and member.name.startswith(top):
                file = source.extractfile(member)
                assert file is not None
                assert file.read() == archive.read(member.name.removeprefix(top)), member.name


def test_programs_and_plugins(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        points = configparser.ConfigParser()
        points.read_string(archive.read(f"{INFO}/entry_points.txt").decode())
    assert {name: dict(points[name]) for name in points.sections()} == {
        "console_scripts": {"magnetar": "magnetar.cli.main:main"},
        "pytest11": {"magnetar": "magnetar.testing_plugin"},
    }


def test_the_description_is_the_readme(metadata: Message) -> None:
    assert metadata["Version"] == __version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    assert metadata["Summary"] == PROJECT["description"]
    assert metadata["License-Expression"] == "Apache-2.0"


def test_requirements_and_extras_are_those_of_the_project(metadata: Message) -> None:
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    required = metadata.get_all("Requires-Dist", [])
    assert len([line for line in required if "extra ==" not in line]) == len(PROJECT["dependencies"])
    assert set(metadata["Requires-Python"].split(",")) == set(PROJECT["requires-python"].split(","))
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def test_the_version_has_one_place() -> None:
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
