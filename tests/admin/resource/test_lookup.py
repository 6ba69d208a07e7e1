from __future__ import annotations

import pytest

from tests.admin.driver import Admin

PATH = "/lookup/v2/topic/persistent/public/default"


def test_every_topic_is_served_here(admin: Admin) -> None:
    assert admin.get(f"{PATH}/t") == {
        "brokerUrl": "pulsar://broker.test:6650",
        "brokerUrlTls": "",
        "brokerUrlSsl": "",
        "httpUrl": "http://broker.test:8080",
        "httpUrlTls": "",
        "nativeUrl": "pulsar://broker.test:6650",
    }
    assert admin.existing() == ([], {})


@pytest.mark.parametrize(
    ("header", "host", "http"),
    [
        ("localhost:9090", "localhost", "localhost:9090"),
        ("broker.test", "broker.test", "broker.test:80"),
        ("[::1]:8080", "[::1]", "[::1]:8080"),
    ],
)
def test_returned_addresses_are_reachable_by_the_client(admin: Admin, header: str, host: str, http: str) -> None:
    answer = admin("GET", f"{PATH}/t", headers={"host": header}).json()
    assert (answer["brokerUrl"], answer["httpUrl"]) == (f"pulsar://{host}:6650", f"http://{http}")


def test_the_advertised_address_wins() -> None:
    admin = Admin(advertisedAddress="10.0.0.7")
    assert admin.get(f"{PATH}/t")["httpUrl"] == "http://10.0.0.7:8080"
    assert admin.get("/admin/v2/brokers/standalone") == ["10.0.0.7:8080"]


def test_a_topic_that_cannot_be_created_is_not_found() -> None:
    admin = Admin(allowAutoTopicCreation=False)
    assert admin.reason(404, "GET", f"{PATH}/t") == "Topic not found persistent://public/default/t"
    admin.done("PUT", "/admin/v2/persistent/public/default/t/partitions", json=1)
    assert admin.get(f"{PATH}/t") and admin.get(f"{PATH}/t-partition-0")
    assert admin.get("/lookup/v2/topic/non-persistent/public/default/n")


def test_bad_names(admin: Admin) -> None:
    admin.reason(404, "GET", "/lookup/v2/topic/persistent/public/none/t")
    admin.reason(412, "GET", f"{PATH}/a%2Fb")
    admin.reason(404, "GET", "/lookup/v2/topic/other/public/default/t")
