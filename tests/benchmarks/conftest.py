"""Puts the benchmarks' folder, which is no package, last on the path, so that it shadows nothing."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
