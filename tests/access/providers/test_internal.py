"""The token of the broker's own pipelines process."""

from __future__ import annotations

import pytest

from magnetar.access.principal import INTERNAL_ROLE
from magnetar.access.providers.internal import InternalToken
from magnetar.errors import AuthenticationFailed


def test_the_token_proves_the_internal_role_for_good() -> None:
    token = InternalToken()
    principal = token.authenticate(token.text.encode(), "", 0)
    assert (principal.role, principal.method, principal.expires_ms) == (INTERNAL_ROLE, "internal", None)


@pytest.mark.parametrize("data", [b"", b"$pipelines", b"\xff\x00", "é".encode()])
def test_anything_else_is_refused_without_a_secret_in_the_text(data: bytes) -> None:
    token = InternalToken()
    for wrong in (data, token.text.encode() + data + b"x", InternalToken().text.encode()):
        with pytest.raises(AuthenticationFailed) as refusal:
            token.authenticate(wrong, "$pipelines", 0)
        assert token.text not in str(refusal.value)


def test_it_has_256_bits_and_is_not_shown() -> None:
    token = InternalToken()
    assert len(token.text) == 43  # in base64
    assert token.text not in repr(token)
    assert token.text not in str(vars(token).keys())
