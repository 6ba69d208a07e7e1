"""Topics with a JSON schema, for tests."""

from __future__ import annotations

import json

import httpx

from magnetar.testing import TestBroker


def put_schema(running: TestBroker, topic: str, **fields: str) -> None:
    """Registers a record whose fields, of these types, may be null."""
    definition = {
        "type": "record",
        "name": "r",
        "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()],
    }
    body = {"type": "JSON", "schema": json.dumps(definition), "properties": {}}
    url = f"{running.http_url}/admin/v2/schemas/public/default/{topic}/schema"
    httpx.post(url, json=body).raise_for_status()
