"""JSON web tokens for tests, with an invalid signature."""

from __future__ import annotations

import base64
import json


def token_with(claims: object) -> str:
    parts = ({"alg": "HS256"}, claims, "signature")
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
