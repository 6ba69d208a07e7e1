"""Headers that proxies add are not believed: any client could name the address of another one."""

from __future__ import annotations

from pathlib import Path

import httpx
from passlib.hash import apr_md5_crypt

from magnetar.testing import broker


def test_guesses_of_one_client_are_counted_together_whatever_it_says_of_its_address(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("ann:" + apr_md5_crypt.hash("word"))
    settings = {"authenticationEnabled": True, "authenticationProviders": "basic", "basicAuthConf": str(users)}
    with broker(**settings) as running, httpx.Client(base_url=running.http_url, trust_env=False) as http:
        reasons = [
            http.get(
                "/admin/v2/tenants", auth=("ann", f"wrong {guess}"), headers={"X-Forwarded-For": f"9.9.9.{guess}"}
            ).json()["reason"]
            for guess in range(30)
        ]
    assert "too many" in reasons[-1] and "too many" not in reasons[0]
