"""Settings of access: names of the HTTP port, TLS, authentication and authorization.

They are a part of `Settings`, which inherits them.
"""

from __future__ import annotations

from typing import Annotated

from magnetar.settings.kinds import Flag, Text
from magnetar.settings.tls import TlsSettings

_PORT = r"(?:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_ADDRESS = rf"(?:pulsar|pulsar\+ssl|http|https)://(?:[-.\w]+|\[[0-9a-fA-F:.]+\])(?::{_PORT})?"
_TRUSTED = rf"[-\w.]+(?:=(?:{_ADDRESS}))?"
_HOST = r"(?:\*\.)?[-\w]+(?:\.[-\w]+)*\.?"


class AccessSettings(TlsSettings, frozen=True, kw_only=True):
    """Listed after the other settings on the reference page, before those that protect."""

    webServiceTrustedHosts: Annotated[
        str,
        Text(
            rf"(?:{_HOST}(?:\s*,\s*{_HOST})*)?",
            "host names separated by commas; *.name is every name below it",
            "Host names at which HTTP is served besides IP addresses, localhost and the advertised ones: those of"
            " containers and reverse proxies. See [Web pages](#web-pages).",
        ),
    ] = ""
    withoutAuthentication: Annotated[
        bool,
        Flag(
            "Serve other machines (`bindAddress`) although authentication is off, or `anonymousUserRole` may do"
            " everything: any client that reaches the broker can read, write and delete."
        ),
    ] = False
    # Credentials for remote clusters
    replicationTrustedClusters: Annotated[
        str,
        Text(
            rf"{_TRUSTED}( *, *{_TRUSTED})*|",
            "names of clusters, or `name=address` as in `west=pulsar+ssl://west:6651`, separated by commas",
            "Remote clusters that brokerClientAuthenticationParameters are sent to, unless they have their own; empty"
            " for none. With `west=pulsar+ssl://west:6651, west=https://west:8443` only these addresses of west get"
            " them, with its name alone every address that the cluster's record has, if it is encrypted and its"
            " certificate is verified.",
        ),
    ] = ""
    brokerClientTokenFolders: Annotated[
        str,
        Text(
            r"/[^,\r\n]*(,\s*/[^,\r\n]*)*|",
            "absolute paths of folders, separated by commas",
            "Folders of the files that records of remote clusters may name for tokens, certificates and keys; empty for"
            " none.",
        ),
    ] = ""
