"""Client certificates: the verified common name is the role, if it is the name of one."""

from __future__ import annotations

import pytest

from magnetar.access.authentication import Authentication
from magnetar.access.principal import Principal
from magnetar.access.providers.certificate import CertificateProvider
from magnetar.access_bounds import ROLE_SIZE
from magnetar.errors import AuthenticationFailed

ODD = {
    "empty": "",
    "blank": "  ",
    "control": "ad\x00min",
    "line": "admin\n",
    "invisible": "admin\u200b",
    "direction": "\u202enimda",
    "surrogate": "\udc80",
    "long": "a" * (ROLE_SIZE.limit + 1),
    "internal": "$pipelines",
}


def by_certificate(anonymous: str = "") -> Authentication:
    return Authentication({"tls": [CertificateProvider()]}, anonymous=anonymous)


@pytest.mark.parametrize("name", ["ann", "spark-1.example.org", "Ärger & Söhne", "a" * ROLE_SIZE.limit])
def test_a_verified_common_name_is_the_role(name: str) -> None:
    one = by_certificate()
    assert one.connect("tls", b"", name, 0) == Principal(name, "tls")
    assert one.request("", name, 0) == Principal(name, "tls")
    assert one.request("", name, 0, method="tls") == Principal(name, "tls")


@pytest.mark.parametrize("anonymous", ["", "guest"])
@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_other_names_are_no_role_and_not_anonymous(name: str, anonymous: str) -> None:
    one = by_certificate(anonymous)
    with pytest.raises(AuthenticationFailed) as refused:
        one.connect("tls", b"", name, 0)
    assert not name.strip() or name not in str(refused.value) or name == "$pipelines"
    if name:
        with pytest.raises(AuthenticationFailed):
            one.request("", name, 0)
    assert sum(one.failures.values()) == (2 if name else 1)


def test_what_the_client_says_is_not_its_name() -> None:
    one = by_certificate()
    with pytest.raises(AuthenticationFailed, match="no client certificate"):
        one.connect("tls", b"admin", "", 0)
    assert one.connect("tls", b"admin", "ann", 0).role == "ann"
    assert list(one.failures) == [("AuthenticationProviderTls", "tls", "INVALID_CN")]
