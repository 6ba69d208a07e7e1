"""Settings of authentication: the role of a client. Pulsar's names, and those of its providers.

They are a part of `Settings`, which inherits them. `access.authentication` obeys them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from magnetar.settings.kinds import Flag, Text, Whole

_LINE = r"[^\r\n]*"
_DAY_SECONDS = 86_400


class AuthenticationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The first of the settings of access."""

    authenticationEnabled: Annotated[
        bool,
        Flag("Only clients that prove a role, by one of `authenticationProviders`, are served."),
    ] = False
    authenticationProviders: Annotated[
        str,
        Text(
            _LINE,
            "token, basic, tls and openid, or Pulsar's names of their classes, separated by commas",
            "How clients may prove a role; of several for the same method, the first that accepts one counts.",
        ),
    ] = ""
    authenticationRefreshCheckSeconds: Annotated[
        int,
        Whole(
            1,
            _DAY_SECONDS,
            "Interval at which connections with expired tokens are found: their clients are asked for a new one, and"
            " disconnected if none is sent until the next check.",
        ),
    ] = 60
    authenticateMetricsEndpoint: Annotated[bool, Flag("Also `/metrics` needs authentication.")] = False
    anonymousUserRole: Annotated[
        str,
        Text(_LINE, "the name of a role", "Role of clients that show nothing; empty refuses them."),
    ] = ""
    proxyRoles: Annotated[
        str,
        Text(
            _LINE,
            "names of roles, separated by commas",
            "Roles of proxies: they must name the role on whose behalf they act, and other clients must not.",
        ),
    ] = ""
    authenticateOriginalAuthData: Annotated[
        bool,
        Flag(
            "A proxy of binary clients also shows what its client showed, and that is checked here; without it, and"
            " over HTTP, where a proxy only names its client (`X-Original-Principal`), the proxy is believed."
        ),
    ] = False
    tokenSecretKey: Annotated[
        str,
        Text(
            _LINE,
            "file:///path, data:;base64,…, a path, or base64",
            "Secret key of tokens (HS256, HS384, HS512): 32 bytes or more.",
        ),
    ] = ""
    tokenPublicKey: Annotated[
        str,
        Text(
            _LINE,
            "file:///path, data:;base64,…, a path, or base64",
            "Public key of tokens, in DER or PEM; not asked if there is a secret key.",
        ),
    ] = ""
    tokenPublicAlg: Annotated[
        str,
        Text(
            r"[RP]S(256|384|512)|ES(256|384|512)",
            "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or ES512",
            "Algorithm of tokens that `tokenPublicKey` verifies; of RS and PS the hash may be another, as in Pulsar.",
        ),
    ] = "RS256"
    tokenAuthClaim: Annotated[
        str, Text(_LINE, "the name of a claim", "Claim of a token that has the role, as a text or the first of a list.")
    ] = "sub"
    tokenAudienceClaim: Annotated[
        str, Text(_LINE, "the name of a claim", "Claim of a token that must have `tokenAudience`; empty for none.")
    ] = ""
    tokenAudience: Annotated[
        str, Text(_LINE, "one line of text", "This broker, in `tokenAudienceClaim`: the text, or one of a list.")
    ] = ""
    tokenAllowedClockSkewSeconds: Annotated[
        int, Whole(0, _DAY_SECONDS, "Difference between the clocks of issuer and broker that tokens are allowed.")
    ] = 0
    basicAuthConf: Annotated[
        str,
        Text(
            _LINE,
            "a path, file:///path, data:;base64,…, or base64",
            "Users and hashes of their passwords, as `htpasswd` writes them. A file is read again when it changes.",
        ),
    ] = ""
    openIDAllowedTokenIssuers: Annotated[
        str, Text(_LINE, "addresses, separated by commas", "Issuers (claim `iss`) of tokens for the provider openid.")
    ] = ""
    openIDAllowedAudiences: Annotated[
        str, Text(_LINE, "texts, separated by commas", "Audiences, of which the claim `aud` must have one.")
    ] = ""
    openIDRoleClaim: Annotated[
        str, Text(_LINE, "the name of a claim", "Claim that has the role, as a text or the first of a list.")
    ] = "sub"
    openIDAcceptedTimeLeewaySeconds: Annotated[
        int, Whole(0, _DAY_SECONDS, "Difference between the clocks of issuer and broker that these tokens are allowed.")
    ] = 0
    openIDKeySetFile: Annotated[
        str,
        Text(
            _LINE,
            "a path, or file:///path",
            "Public keys of the issuers: a JSON web key set, read again when it changes. Nothing is fetched.",
        ),
    ] = ""
