"""Functions of the application: found by `module:name`, and called in one of four ways.

Owns the kinds, and the errors for what is no function.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from magnetar.errors import MagnetarError

Kind = Literal["row", "arrow", "pandas", "async"]
KINDS: tuple[str, ...] = get_args(Kind)

Function = Callable[..., Any]


class InvalidProcess(MagnetarError):
    """A pipeline that cannot be run as it was asked for; the text names the argument."""


@dataclass(frozen=True)
class ProcessFunction:
    """A function and how it is called. By name it is imported in each worker, also from `folder`, where it has that;
    otherwise Spark ships it."""

    kind: Kind
    name: str = ""
    function: Function | None = None
    folder: str = ""

    @staticmethod
    def named(name: str, kind: str | None = None) -> ProcessFunction:
        """Raises `InvalidProcess`."""
        folder = os.getcwd()
        return ProcessFunction(kind_of(load(name, folder), kind), name=name, folder=folder)

    def load(self) -> Function:
        return load(self.name, self.folder) if self.function is None else self.function

    @property
    def is_for_batches(self) -> bool:
        return self.kind in ("arrow", "pandas")


def load(name: str, folder: str = "") -> Function:
    """The function `module:name`, also from a folder that is on no path. Raises `InvalidProcess`."""
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise InvalidProcess(f"function {name!r} is not of the form module:name")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever the module raises
        raise InvalidProcess(
            f"function {name}: module {module_name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InvalidProcess(f"function {name}: {module_name} has no {attribute}")
        found = getattr(found, part)
    return checked(found, name)


def checked(function: object, name: str) -> Function:
    if not callable(function):
        raise InvalidProcess(f"function {name} is of type {type(function).__name__}, which cannot be called")
    return function


def kind_of(function: Function, given: str | None) -> Kind:
    """`row` is the default, `async` that of a coroutine function. Raises `InvalidProcess`."""
    called = (function, vars(type(function)).get("__call__"))
    is_async = any(inspect.iscoroutinefunction(each) for each in called)
    if given is None:
        return "async" if is_async else "row"
    if given not in KINDS:
        raise InvalidProcess(f"kind {given!r} is not one of {', '.join(KINDS)}")
    if is_async != (given == "async"):
        raise InvalidProcess(
            f"kind {given!r} is {'not ' * is_async}for functions that are{' not' * (not is_async)} async"
        )
    return given  # type: ignore[return-value]  # one of KINDS
