"""Pages without scripts: the login, and what is shown when there is nothing else to show."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from starlette.responses import HTMLResponse

from magnetar.console.web.assets import STYLE_PATH

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">{refresh}
<title>{title} · Magnetar console</title><link rel="stylesheet" href="{style}"></head>
<body class="plain"><main class="plain-page" id="content">
<p class="brand">Magnetar console</p>
<h1>{title}</h1>
{body}
</main></body>
</html>
"""
_LOGIN = """\
{fault}<p>The broker at <code>{url}</code> asks for a login. The console acts with the rights of your token, keeps it
in memory while you are logged in, and shows it to nothing but this broker.</p>
<form method="post" action="/login?next={next}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required autofocus{described}>
<button type="submit">Log in</button>
</form>
<p class="hint">A token is made with <code>magnetar tokens create</code>. One line, usually beginning with
<code>ey</code>.</p>"""


def plain_page(title: str, body: str, status: int = 200, refresh_s: int = 0) -> HTMLResponse:
    """`body` is HTML."""
    refresh = f'<meta http-equiv="refresh" content="{refresh_s}">' if refresh_s else ""
    text = _PAGE.format(title=escape(title), body=body, style=STYLE_PATH, refresh=refresh)
    return HTMLResponse(text, status, headers={"Cache-Control": "no-store"})


def login_page(url: str, next_path: str, fault: str = "") -> HTMLResponse:
    shown = f'<p class="error" role="alert" id="fault">{escape(fault)}</p>' if fault else ""
    described = ' aria-invalid="true" aria-describedby="fault"' if fault else ""
    body = _LOGIN.format(fault=shown, url=escape(url), next=quote(next_path, safe=""), described=described)
    return plain_page("Log in", body, 401 if fault else 200)


def unreachable_page(reason: str) -> HTMLResponse:
    body = (
        f'<p class="error" role="alert">{escape(reason)}</p><p>Start a broker with <code>magnetar standalone</code>, or'
        " start the console with another <code>--url</code>. This page tries again every five seconds.</p>"
    )
    return plain_page("The broker does not answer", body, 503, refresh_s=5)


def refused_page(reason: str, status: int = 403) -> HTMLResponse:
    return plain_page("Refused", f'<p class="error" role="alert">{escape(reason)}</p>', status)
