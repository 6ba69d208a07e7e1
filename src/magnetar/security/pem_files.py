"""Why OpenSSL cannot use a file of certificates or keys. Reads no file itself."""

from __future__ import annotations

import ssl


def why_not(error: OSError) -> str:
    """Why a file cannot be used; for its contents, OpenSSL mostly reports only where its code failed."""
    if not isinstance(error, ssl.SSLError):
        return f"cannot be read: {error.strerror or error}"
    if error.reason == "KEY_VALUES_MISMATCH":
        return "cannot be used: the key does not match the certificate"
    return "cannot be used: not PEM, corrupt, or a key with a password"
