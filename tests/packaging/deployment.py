"""The files of `deploy`, as tests read them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from .builds import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
UNIT = DEPLOY / "systemd" / "magnetar.service"
COMPOSE = DEPLOY / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"

Instruction = tuple[str, str]


def stages() -> dict[str, list[Instruction]]:
    """The instructions of each stage of the Dockerfile, after those of its base; the last stage is ""."""
    found: dict[str, list[Instruction]] = {}
    own: list[Instruction] = []
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            own = [*found.get(base, []), ("FROM", base)]
            found[name] = own
        else:
            own.append((word, " ".join(rest.split())))
    return found


def last(instructions: Sequence[Instruction], word: str) -> str:
    return [rest for one, rest in instructions if one == word][-1]


def variables(instructions: Sequence[Instruction]) -> dict[str, str]:
    words = (word for one, rest in instructions if one == "ENV" for word in shlex.split(rest))
    return dict(word.split("=", 1) for word in words)


def exec_form(text: str) -> list[str]:
    """The words of an instruction, which is run without a shell: signals reach the program itself."""
    words: list[str] = json.loads(text)
    return words


def compose() -> Any:
    return yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))


def manifests(*paths: str) -> dict[tuple[str, str], Any]:
    """Kubernetes objects by kind and name."""
    documents = [one for path in paths for one in yaml.safe_load_all((KUBERNETES / path).read_text(encoding="utf-8"))]
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def unit() -> dict[str, list[str]]:
    """The values of each directive of the systemd unit, and the section `[Unit]` of a name as `Unit.After`."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def option(words: Sequence[str], name: str) -> str:
    """The value of `--name=value` or `--name value`; empty without it."""
    for number, word in enumerate(words):
        if word == name:
            return words[number + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return ""


def setting(words: Sequence[str], name: str) -> str:
    """The value of `--set=name=value`."""
    pairs: Mapping[str, str] = dict(
        word.removeprefix("--set=").split("=", 1) for word in words if word.startswith("--set=")
    )
    return pairs.get(name, "")
