"""One Apache Pulsar with TLS and tokens for all tests of this folder, and one broker of ours that replicates to it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "geo"))

import apache
import java
from clusters import Ours

os.umask(0o077)  # our broker refuses files of tokens that others can read


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.Secured]:
    try:
        runtime = java.find_java()
    except java.JavaMissing as missing:
        pytest.skip(str(missing))
    with apache.of(tmp_path_factory.mktemp("secure"), runtime).serving() as secured:
        yield secured


@pytest.fixture(scope="session")
def ours(secured: apache.Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    """Starts its pipelines process on the first declaration; the log contains both.

    Its settings provide credentials for clusters declared without any.
    """
    folder = tmp_path_factory.mktemp("ours")
    token = folder / "token"
    token.write_text(secured.token())
    cluster = Ours(
        "ours",
        folder,
        pipelinesEnabled=True,
        pipelinesMaster="local[2,3]",
        replicationRetryMaxSeconds=2,
        brokerClientAuthenticationPlugin="token",
        brokerClientAuthenticationParameters=f"file://{token}",
        brokerClientTrustCertsFilePath=secured.authority_file,
        brokerClientTokenFolders=f"{tempfile.gettempdir()},{secured.folder}",
        replicationTrustedClusters="apache",
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
