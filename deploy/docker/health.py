"""The health check of a container: the exit code is 0 if HEALTH_URL answers 200, and 1 with the reason otherwise.

Certificates are verified with the authorities in HEALTH_CA. An image without curl has Python.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.request

TIMEOUT_S = 4


def main() -> int:
    url = os.environ["HEALTH_URL"]
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]  # never by a proxy
    try:
        if url.startswith("https:"):
            handlers.append(
                urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=os.environ["HEALTH_CA"]))
            )
        with urllib.request.build_opener(*handlers).open(url, timeout=TIMEOUT_S):
            return 0
    except OSError as error:  # also a status of 400 and above, and a certificate that is not there yet
        print(f"{url}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
