"""The documentation, which the wheel has as a site: served at /docs, to everybody who reaches the console."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from magnetar import docs_site

DOCUMENTATION_PATH = "/docs/"


def documentation() -> Starlette | None:
    """An ASGI application for what is below that path; None if the package was built without the site."""
    folder = docs_site.folder()
    if folder is None:
        return None
    return Starlette(routes=[Mount(DOCUMENTATION_PATH.rstrip("/"), StaticFiles(directory=folder, html=True))])
