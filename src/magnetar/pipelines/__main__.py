"""`python -m magnetar.pipelines`: the process that a broker starts for the records it declares."""

import sys

from magnetar.pipelines.service import main
from magnetar.pipelines.verbs import VERBS

if __name__ == "__main__":
    sys.exit(main(VERBS))
