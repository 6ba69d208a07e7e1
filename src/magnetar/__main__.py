"""`python -m magnetar` is the command line."""

import sys

from magnetar.cli.main import main

sys.exit(main())
