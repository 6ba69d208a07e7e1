"""The program that spark-submit runs in a driver: the words after it are those of `magnetar`.

spark-submit takes a file whose name ends in .py, and the program `magnetar` has no such name.
"""

from __future__ import annotations

import sys

from magnetar.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
