"""Bounds of logins and permissions, beside those of `bounds`. The code that enforces one reads it here."""

from __future__ import annotations

from magnetar.bounds import Bound

# -- logins and permissions

TOPIC_PERMISSIONS = Bound(
    "topic-permissions",
    "topics of a namespace with permissions of their own",
    10_000,
    "topics",
    "refused with 412; a permission on the namespace is for all its topics",
)
ROLE_SIZE = Bound("role-size", "the name of a role", 1024, "characters", "refused with 412")
TOKEN_SIZE = Bound("token-size", "an authentication token", 32 << 10, "bytes", "refused")
PASSWORD_SIZE = Bound("password-size", "a user with its password", 1024, "bytes", "refused")
PASSWORD_VERDICTS = Bound(
    "password-verdicts",
    "passwords of which it is known whether they are right",
    10_000,
    "passwords",
    "the oldest is forgotten, and checked again",
)
PASSWORDS_WAITING = Bound(
    "passwords-waiting",
    "passwords that wait to be checked, one at a time in a thread of their own; addresses have their turns",
    1000,
    "passwords",
    "refused",
)
ADDRESS_PASSWORDS_WAITING = Bound(
    "address-passwords-waiting",
    "passwords of those from one address, or one network of IPv6 (/64)",
    16,
    "passwords",
    "refused; places for other addresses remain",
)
PASSWORD_FAILURES = Bound(
    "password-failures",
    "wrong passwords of one user from one address, or one network of IPv6 (/64); one that waits counts until it is"
    " found right",
    20,
    "a minute",
    "others of this user that are not known to be right are refused unchecked",
)
ADDRESS_PASSWORD_FAILURES = Bound(
    "address-password-failures",
    "wrong passwords of all users from one address, or one network of IPv6 (/64), counted in the same way",
    100,
    "a minute",
    "others that are not known to be right are refused unchecked",
)
PASSWORD_WAIT = Bound(
    "password-wait",
    "time that an HTTP request waits for the check of its password, and a connection after the time for its handshake",
    30,
    "s",
    "refused with 401; a connection gets the reason, and is disconnected",
)
ACCESS_FILE = Bound(
    "access-file", "a file of keys or users", 1 << 20, "bytes", "the start ends; later, the old ones stay in force"
)

ACCESS_BOUNDS: tuple[Bound, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Bound))
"""Every bound of this module, in the order of the reference page."""
