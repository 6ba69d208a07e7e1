"""Settings of access: names of the HTTP port, TLS, authentication and authorization.

They are a part of `Settings`, which inherits them.
"""

from __future__ import annotations

from typing import Annotated

from magnetar.settings.kinds import Flag, Text
from magnetar.settings.tls import TlsSettings

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
            r"[-\w.]+( *, *[-\w.]+)*|",
            "names of clusters, separated by commas",
            "Remote clusters that brokerClientAuthenticationParameters are sent to, unless they have their own; empty"
            " for none.",
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
