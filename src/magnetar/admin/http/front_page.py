"""The front page: what a bare GET on the HTTP port shows, as HTML to browsers and as JSON to programs.

A browser on this machine is led to the console, if one runs beside the broker.
"""

from __future__ import annotations

import msgspec
from starlette.responses import HTMLResponse, RedirectResponse, Response

from magnetar.admin.http.request import Call
from magnetar.settings.addresses import is_loopback
from magnetar.version import __version__

LINKS = {
    "health": "/admin/v2/brokers/health",
    "all checks": "/health/ready",
    "clusters": "/admin/v2/clusters",
    "tenants": "/admin/v2/tenants",
    "namespaces of public": "/admin/v2/namespaces/public",
    "topics of public/default": "/admin/v2/persistent/public/default",
    "replication status": "/admin/v2/replication/status",
    "settings": "/admin/v2/brokers/configuration/runtime",
    "metrics": "/metrics/",
}

_CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_HTML = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Magnetar: {cluster}</title>
<style>body {{ font: 16px/1.5 sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }}</style></head>
<body>
<h1>Magnetar {version}</h1>
<p>A message broker that speaks Apache Pulsar's protocol. This is its HTTP port, cluster <b>{cluster}</b>.</p>
<p>Pulsar clients connect to <code>{service_url}</code>.</p>
<p>The admin REST interface is Apache Pulsar's, below <code>/admin/v2/</code>; docs/admin.md lists every path:</p>
<ul>
{links}
</ul>
<p>On the command line, start with <code>magnetar topics list</code> and <code>magnetar --help</code>.</p>
</body>
</html>
"""


class FrontPage(msgspec.Struct, rename="camel"):
    product: str
    version: str
    cluster: str
    service_url: str
    links: dict[str, str]


def front_page(call: Call) -> Response:
    """Show what this is and where to go: HTML to browsers, JSON to programs."""
    page = FrontPage("Magnetar", __version__, call.broker.settings.clusterName, call.service_url, LINKS)
    headers = {"Vary": "Accept"}
    if "text/html" in call.accept:
        if call.broker.console_url and is_loopback(call.host):  # the console serves this machine alone
            return RedirectResponse(call.broker.console_url, 303, headers=headers)
        return HTMLResponse(_html(page), headers={**headers, "Content-Security-Policy": _CSP})
    return Response(msgspec.json.encode(page), media_type="application/json", headers=headers)


def _html(page: FrontPage) -> str:
    from html import escape  # slow to import, and only people see this page

    links = [f'<li><a href="{path}">{escape(name)}</a></li>' for name, path in page.links.items()]
    return _HTML.format(
        version=escape(page.version),
        cluster=escape(page.cluster),
        service_url=escape(page.service_url),
        links="\n".join(links),
    )
