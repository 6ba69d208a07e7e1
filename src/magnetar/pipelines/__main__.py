"""`python -m magnetar.pipelines`: the process that a broker starts for what it declares."""

import sys

from magnetar.pipelines.process import main

if __name__ == "__main__":
    sys.exit(main())
