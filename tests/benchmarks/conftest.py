"""The benchmarks are programs, not a package: their folder is put on the path, last, so that it hides nothing."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
