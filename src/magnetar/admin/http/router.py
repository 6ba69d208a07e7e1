"""The router: the route table as a tree of path segments, so that a lookup costs the length of the path.

Knows methods and paths only. A segment in braces matches any text; a literal segment takes precedence, so
`/brokers/health` is not the cluster "health".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from magnetar.admin.routes import Route
from magnetar.names import DOMAINS


@dataclass(frozen=True, slots=True)
class Leaf:
    """A route, the names of its segments in braces, and the values fixed by its path."""

    route: Route
    names: tuple[str, ...]
    fixed: dict[str, str]


@dataclass(slots=True)
class Tree:
    """The routes that share a prefix; `leaves` are those that end here, by method."""

    named: dict[str, Tree] = field(default_factory=dict)
    any: Tree | None = None
    leaves: dict[str, Leaf] = field(default_factory=dict)

    def add(self, route: Route) -> None:
        """A path with {domain} is added once per topic domain."""
        if "{domain}" not in route.path:
            self._add(route, route.path, {})
            return
        for domain in DOMAINS:
            self._add(route, route.path.replace("{domain}", domain), {"domain": domain})

    def _add(self, route: Route, path: str, fixed: dict[str, str]) -> None:
        here, names = self, []
        for segment in path.split("/"):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                here.any = here = here.any or Tree()
            else:
                here = here.named.setdefault(segment, Tree())
        here.leaves.setdefault(route.method, Leaf(route, tuple(names), fixed))

    def find(self, method: str, segments: Sequence[str]) -> tuple[Leaf, list[str]] | None:
        """The route of a request, with the values of its segments in braces."""
        if not segments:
            leaf = self.leaves.get(method)
            return None if leaf is None else (leaf, [])
        first, rest = segments[0], segments[1:]
        if first in self.named and (found := self.named[first].find(method, rest)) is not None:
            return found
        if self.any is None or not first or (found := self.any.find(method, rest)) is None:
            return None
        leaf, values = found
        return leaf, [first, *values]

    def methods(self, segments: Sequence[str]) -> set[str]:
        """The methods that this path supports."""
        if not segments:
            return {*self.leaves}
        first, rest = segments[0], segments[1:]
        found = self.named[first].methods(rest) if first in self.named else set()
        return found | self.any.methods(rest) if self.any is not None and first else found


def tree_of(routes: Iterable[Route]) -> Tree:
    tree = Tree()
    for route in routes:
        tree.add(route)
    return tree
