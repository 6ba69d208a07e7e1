"""Makes schema_pb2.py and schema_pb2.pyi from schema.proto: ``python -m tools.wire_schema``.

A tool of the developer's: it needs the `dev` dependencies and nothing in the broker imports it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[1] / "src"
SCHEMA = "magnetar/wire/schema.proto"


def regenerate(output: Path = PACKAGE_ROOT) -> None:
    """Writes the two generated modules below `output`, in the directory of their package."""
    # protoc finds protoc-gen-mypy on PATH, where a venv that is not activated does not appear.
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": scripts + os.pathsep + os.environ.get("PATH", "")}
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            *(f"--proto_path={PACKAGE_ROOT}", f"--python_out={output}", f"--mypy_out=quiet:{output}", SCHEMA),
        ],
        env=environment,
        check=True,
    )


if __name__ == "__main__":
    regenerate()
