"""Targets of requests as answers and the log show them: without what may be a secret.

Owns where in a path or a query a secret may be. Knows no routes: a request that finds none is shown too.
"""

from __future__ import annotations

import re

from magnetar.replication.model import HIDDEN
from magnetar.settings.dynamic import DYNAMIC
from magnetar.settings.settings import SECRET

_SETTING = re.compile(r"(/admin/(?:v[0-9]+/)?brokers/configuration/([^/]*)/).+", re.DOTALL)
_LOGIN = re.compile(r"(//)[^/]*@")
_PARAMETER = re.compile(r"((?:^|&)(?:token|access_token|password|authParams)=)[^&]*", re.IGNORECASE)


def shown_path(path: str) -> str:
    """With the value of a setting only if it can be set, which no secret can, and without the login of an address."""
    setting = _SETTING.fullmatch(path)
    if setting is not None and (setting[2] not in DYNAMIC or setting[2] in SECRET):
        return setting[1] + HIDDEN
    return _LOGIN.sub(rf"\1{HIDDEN}@", path)


def shown_query(query: str) -> str:
    """With its question mark. A token does not belong there, but WebSockets of Apache Pulsar take it so."""
    return "?" + _PARAMETER.sub(rf"\1{HIDDEN}", query) if query else ""
