"""`Security`: its settings, Pulsar's spellings of them, sources of tokens, and that no token is ever shown."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client import AsyncClient, Client, Security
from magnetar.client.connection.address import parse_service_url
from magnetar.client.errors import ClientError, InvalidArgument, NotSupported
from magnetar.clock import ManualClock
from magnetar.security.credentials import Credentials
from magnetar.security.pulsar_parameters import PULSAR_PARAMETERS
from magnetar.security.tls import check_settings
from magnetar.security.token import expiry_hint
from tests.client.fake_broker import fake_broker
from tests.client.tokens import token_with

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2VjcmV0"
TOKEN_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
OAUTH2_PLUGIN = "org.apache.pulsar.client.impl.auth.oauth2.AuthenticationOAuth2"
TLS_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationTls"


def test_it_can_be_pickled_compared_and_used_as_a_key() -> None:
    security = Security(token=TOKEN, trust_certs_file=Path("ca.pem"), verify_hostname=False)
    again = pickle.loads(pickle.dumps(security))
    assert again == security and hash(again) == hash(security)
    assert again.token == TOKEN


def test_a_token_is_never_shown() -> None:
    security = Security(token=TOKEN, trust_certs_file="ca.pem")
    assert repr(security) == (
        "Security(trust_certs_file='ca.pem', allow_insecure=False, verify_hostname=True, token=(hidden))"
    )
    for shown in (f"{security}", f"{[security]}", repr(security.credentials())):
        assert TOKEN not in shown


@pytest.mark.parametrize("token", ["", "two words", "line\nend", "x" * (1 << 20) + "x", "schlüssel", b"bytes", 7])
def test_invalid_tokens(token: object) -> None:
    with pytest.raises(InvalidArgument) as raised:
        Security(token=token)  # type: ignore[arg-type]
    assert raised.value.text.startswith("token ")
    assert not token or str(token) not in raised.value.text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"token": TOKEN, "token_file": "t"}, "token and token_file exclude each other"),
        ({"certificate_file": "c.pem"}, "certificate_file requires key_file"),
        ({"key_file": "k.pem"}, "key_file requires certificate_file"),
        ({"username": "u"}, "username requires password"),
        ({"password": "p"}, "password requires username"),
        ({"username": "a:b", "password": "p"}, "username contains a colon"),
        ({"username": "a", "password": "p\n"}, "password contains line breaks"),
        ({"username": "u", "password": "p", "token": TOKEN}, "token and username exclude each other"),
        ({"token_supplier": TOKEN}, "token_supplier is a str, not a function"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Security(**settings)  # type: ignore[arg-type]


def test_a_token_file_is_read_every_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    security = Security(token_file=file)
    assert security.credentials() == Credentials("token", TOKEN.encode())
    file.write_text("another")
    assert security.credentials() == Credentials("token", b"another")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n", "is empty"),
        (TOKEN.encode() + b"\n" + TOKEN.encode(), "contains spaces, line breaks or other characters"),
        (b"\xff\xfe", "contains spaces, line breaks or other characters"),
        (b"x" * ((1 << 20) + 1), "cannot be used: it has 1048577 bytes, more than 1048576"),
    ],
)
def test_an_unusable_token_file(tmp_path: Path, content: bytes | None, text: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidArgument) as raised:
        Client("pulsar://localhost:1", security=Security(token_file=file))
    assert raised.value.text.startswith(f"token_file {str(file)!r} ") and text in raised.value.text
    assert TOKEN not in raised.value.text


def test_a_token_takes_precedence_over_a_certificate() -> None:
    files = {"certificate_file": "c.pem", "key_file": "k.pem"}
    assert Security().credentials() is None
    assert Security(**files).credentials() == Credentials("tls", b"")  # type: ignore[arg-type]
    assert Security(**files, token=TOKEN).credentials() == Credentials("token", TOKEN.encode())  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["pulsar://a", "http://a"])
@pytest.mark.parametrize(
    "settings", [{"trust_certs_file": "ca.pem"}, {"certificate_file": "c.pem", "key_file": "k.pem"}]
)
def test_certificates_for_an_address_without_tls(url: str, settings: dict[str, str]) -> None:
    """Certificates imply TLS; plain text would be a surprise."""
    with pytest.raises(InvalidArgument, match=r"is set, but (pulsar|http)://a:\d+ is not encrypted"):
        AsyncClient(url, security=Security(**settings))  # type: ignore[arg-type]


def test_one_encrypted_address_is_enough(tmp_path: Path) -> None:
    security = Security(trust_certs_file=tmp_path / "missing")
    with pytest.raises(InvalidArgument, match=r"trust_certs_file .* cannot be read: No such file or directory"):
        check_settings(security, parse_service_url("pulsar://a"), parse_service_url("https://a"))


@pytest.mark.parametrize("content", ["no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"])
def test_files_without_certificates(tmp_path: Path, content: str) -> None:
    file = tmp_path / "some.pem"
    file.write_text(content)
    for settings in ({"trust_certs_file": file}, {"certificate_file": file, "key_file": file}):
        with pytest.raises(
            InvalidArgument, match=r"(trust_certs_file|certificate_file).*some.pem' cannot be used: not PEM"
        ):
            Client("pulsar+ssl://localhost:1", security=Security(**settings))  # type: ignore[arg-type]


# -- passwords, suppliers


def test_a_password_is_sent_and_never_shown() -> None:
    security = Security(username="ann", password="s3cret:x")
    assert security.credentials() == Credentials("basic", b"ann:s3cret:x")
    assert security.authorization() == "Basic YW5uOnMzY3JldDp4"
    assert "s3cret" not in repr(security) and "username='ann'" in repr(security)
    assert pickle.loads(pickle.dumps(security)) == security


def test_a_supplier_is_called_for_every_token() -> None:
    tokens = iter(["one", "two", "a b"])
    security = Security(token_supplier=lambda: next(tokens))
    assert security.authorization() == "Bearer one"
    assert security.credentials() == Credentials("token", b"two")
    with pytest.raises(InvalidArgument, match="the token of token_supplier contains spaces"):
        security.credentials()
    with pytest.raises(InvalidArgument, match="token_supplier failed with StopIteration"):
        security.credentials()


def test_a_supplier_serves_a_connection() -> None:
    with fake_broker() as fake, Client(fake.url, security=Security(token_supplier=lambda: TOKEN)) as client:
        client.producer("t").send(b"x")
        (connect,) = [command.connect for command in fake.received if command.connect.client_version]
        assert (connect.auth_method_name, connect.auth_data) == ("token", TOKEN.encode())


@pytest.mark.parametrize(
    "params",
    [
        "ann:s3cret:x",
        '{"username": "ann", "password": "s3cret:x"}',
        '{"userId": "ann", "password": "s3cret:x"}',
    ],
)
@pytest.mark.parametrize("plugin", ["basic", "org.apache.pulsar.client.impl.auth.AuthenticationBasic"])
def test_passwords_in_pulsars_spelling(plugin: str, params: str) -> None:
    found = Security.from_pulsar({"authPluginClassName": plugin, "authParams": params})
    assert found == Security(username="ann", password="s3cret:x")


# -- Pulsar's spellings


@pytest.mark.parametrize("plugin", [TOKEN_PLUGIN, "AuthenticationToken", "token"])
@pytest.mark.parametrize("params", [f"token:{TOKEN}", TOKEN, json.dumps({"token": TOKEN}), f' {{"token": "{TOKEN}"}}'])
def test_tokens_in_pulsars_spelling(plugin: str, params: str) -> None:
    assert Security.from_pulsar({"authPluginClassName": plugin, "authParams": params}) == Security(token=TOKEN)


@pytest.mark.parametrize(
    ("params", "file"),
    [("file:///etc/token", "/etc/token"), ("file:/etc/token", "/etc/token"), ("file:///with%20space", "/with space")],
)
def test_token_files_in_pulsars_spelling(params: str, file: str) -> None:
    found = Security.from_pulsar({"authPluginClassName": "token", "authParams": params})
    assert found == Security(token_file=file)


@pytest.mark.parametrize(
    "params", ["tlsCertFile:/c.pem,tlsKeyFile:/k.pem", '{"tlsCertFile":"/c.pem","tlsKeyFile":"/k.pem"}']
)
def test_certificates_in_pulsars_spelling(params: str) -> None:
    found = Security.from_pulsar({"authPluginClassName": TLS_PLUGIN, "authParams": params})
    assert found == Security(certificate_file="/c.pem", key_file="/k.pem")


def test_tls_settings_in_pulsars_spelling() -> None:
    found = Security.from_pulsar(
        {
            "tlsTrustCertsFilePath": "/ca.pem",
            "tlsAllowInsecureConnection": "True",
            "tlsHostnameVerificationEnable": False,
            "tlsCertificateFilePath": "/c.pem",
            "tlsKeyFilePath": "/k.pem",
        }
    )
    assert found == Security(
        trust_certs_file="/ca.pem",
        allow_insecure=True,
        verify_hostname=False,
        certificate_file="/c.pem",
        key_file="/k.pem",
    )
    assert (
        Security.from_pulsar({"tlsTrustCertsFilePath": "", "authPluginClassName": "", "authParams": None}) == Security()
    )


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"useKeyStoreTls": "true"}, NotSupported, "useKeyStoreTls is not supported"),
        ({"authPluginClassName": "org.example.Own", "authParams": TOKEN}, NotSupported, "'org.example.Own'"),
        ({"authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationSasl"}, NotSupported, "auth.Auth"),
        ({"authPluginClassName": OAUTH2_PLUGIN, "authParams": TOKEN}, InvalidArgument, "are JSON with issuerUrl"),
        ({"authPluginClassName": "oauth2", "authParams": f'{{"x": "{TOKEN}"}}'}, NotSupported, "accept only issuerUrl"),
        ({"authPluginClassName": "oauth2", "authParams": '{"issuerUrl": "https://a"}'}, InvalidArgument, "privateKey"),
        ({"authPluginClassName": "basic", "authParams": TOKEN}, InvalidArgument, "not of the form username:password"),
        ({"authPluginClassName": "basic", "authParams": f'{{"password": "{TOKEN}"}}'}, InvalidArgument, "of the form"),
        ({"authPluginClassName": TOKEN_PLUGIN}, InvalidArgument, "needs a token in authParams"),
        ({"authParams": f"token:{TOKEN}"}, InvalidArgument, "authParams requires authPluginClassName"),
        ({"authPluginClassName": "token", "authParams": f'{{"token": "{TOKEN}'}, InvalidArgument, "not a JSON object"),
        ({"authPluginClassName": "token", "authParams": f'{{"tok": "{TOKEN}"}}'}, InvalidArgument, "not of the form"),
        ({"authPluginClassName": "token", "authParams": f"token:a {TOKEN}"}, InvalidArgument, "contains spaces"),
        ({"authPluginClassName": "token", "authParams": "file://host/path"}, InvalidArgument, "file:///path"),
        ({"authPluginClassName": "tls", "authParams": TOKEN}, NotSupported, "accept only tlsCertFile and tlsKeyFile"),
        ({"authPluginClassName": "tls", "authParams": "tlsCertFile:/c"}, InvalidArgument, "requires key_file"),
        ({"tlsAllowInsecureConnection": "perhaps"}, InvalidArgument, "neither true nor false"),
    ],
)
def test_unsupported_authentication_of_pulsar(
    parameters: dict[str, object], error: type[ClientError], text: str
) -> None:
    with pytest.raises(error) as raised:
        Security.from_pulsar(parameters)
    assert text in raised.value.text
    assert TOKEN not in raised.value.text


@given(st.text(max_size=40), st.sampled_from(["", "token:", "file:", "{", '{"token":']))
def test_any_text_for_a_token_is_handled_and_never_shown(text: str, prefix: str) -> None:
    secret = f"{text}~{text}"
    try:
        found = Security.from_pulsar({"authPluginClassName": "token", "authParams": f"{prefix}{secret}"})
    except InvalidArgument as error:
        assert prefix == "file:" or secret not in error.text
    else:
        assert found.token_file is not None or (found.token and found.token not in repr(found))


def test_every_parameter_and_setting_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    for name in (*PULSAR_PARAMETERS, *Security.__struct_fields__):
        assert f"`{name}`" in page


def test_every_parameter_is_understood() -> None:
    values = {"authPluginClassName": "token", "authParams": TOKEN}
    for name in PULSAR_PARAMETERS:
        settings = (
            {"tlsCertificateFilePath": "c", "tlsKeyFilePath": "k"} if name.startswith(("tlsCert", "tlsKey")) else {}
        )
        value = values.get(name, "true")
        found = Security.from_pulsar({**values, **settings, name: value})
        assert found.token == TOKEN


# -- expiry of tokens


def test_an_expired_token_is_reported_with_its_expiry() -> None:
    token = token_with({"sub": "admin", "exp": 1_700_000_000})
    assert expiry_hint(token, ManualClock(1_699_999_999_999)) == ""
    assert expiry_hint(token, ManualClock(1_700_000_000_000)) == "the token expired at 2023-11-14T22:13:20Z"
    assert expiry_hint(token_with({"exp": 1.5}), ManualClock(2000)) == "the token expired at 1970-01-01T00:00:01Z"


@pytest.mark.parametrize(
    "claims", [{"sub": "admin"}, {"exp": "soon"}, {"exp": None}, {"exp": True}, {"exp": 1e300}, [7]]
)
def test_tokens_without_an_expiry(claims: object) -> None:
    assert expiry_hint(token_with(claims), ManualClock(1 << 60)) == ""


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126)))
def test_other_tokens_have_no_expiry(token: str) -> None:
    assert expiry_hint(token, ManualClock(1 << 60)) == ""
    assert expiry_hint(f"a.{token}.b", ManualClock(0)) == ""
