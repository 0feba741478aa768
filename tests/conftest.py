"""Fixtures that every test may ask for. Each is started at its first use and once a run.

| fixture | what it is |
| --- | --- |
| `oracle` | ClickHouse in this process (chdb) |
| `spark` | a `local[2]` Spark session |
| `spark_cluster` | a standalone master and two workers; a dict with SPARK_MASTER_URL |
| `s3_server` | a real S3 server (Ceph radosgw); a dict with the AWS_* variables, S3_ENDPOINT and S3_BUCKET |
| `s3_url`, `s3_options` | an empty place of the test's own in its bucket, and how to open it |
| `fault_proxy` | a fault-injecting proxy before that server; `fault_proxy.rules = [...]`, cleared for each test |
| `fault_proxy_to` | makes such a proxy before another server |
| `zookeeper` | a ZooKeeper server; a dict with ZOOKEEPER_HOSTS |

A service that cannot start skips its tests and says why.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from mergelake.log.backends.keeper import close_all
from tests.helpers.oracle import oracle as shared_oracle
from tests.helpers.services import SCRIPTS, or_skip, service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("default", max_examples=100, **_common)
settings.register_profile("quick", max_examples=25, **_common)
settings.register_profile("deep", max_examples=2000, **_common)
# The same examples in every run of CI, so that a red run means a change; new ones are drawn by every run by hand.
settings.register_profile("ci", max_examples=100, derandomize=True, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))

_FIXTURE_MARKS = {
    "oracle": "chdb",
    "spark": "spark",
    "spark_cluster": "spark",
    "s3_server": "s3",
    "zookeeper": "zookeeper",
}


def pytest_configure() -> None:
    """A shell starts its background jobs with SIGINT ignored, and children inherit that: Ctrl-C is tested here."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say what failed as soon as it did: a run that is cut off never comes to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = crash.message[:500] if crash else report.longrepr
        print(f"\nFAILED {report.nodeid} ({report.when}): {said}", flush=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a test by the services it asks for, so that `-m 'not s3'` needs no discipline."""
    for item in items:
        for fixture, mark in _FIXTURE_MARKS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)


def _started(name: str, **arguments: Any) -> Iterator[dict[str, str]]:
    with or_skip(), service(name, **arguments) as variables:
        yield variables


@pytest.fixture(scope="session")
def oracle() -> Any:
    """ClickHouse in this process, as a chdb session shared by the whole run."""
    pytest.importorskip("chdb", reason="the extra `sql` (chdb) is not installed")
    return shared_oracle()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[dict[str, str]]:
    """A real S3 server on loopback."""
    yield from _started("s3", ports=4)


@pytest.fixture
def s3_url(s3_server: dict[str, str]) -> str:
    """An empty prefix of the test's own."""
    return f"s3://{s3_server['S3_BUCKET']}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def s3_options(s3_server: dict[str, str]) -> dict[str, str]:
    """Options for `open_store(s3_url, s3_options)`."""
    return {
        "endpoint": s3_server["S3_ENDPOINT"],
        "access_key_id": s3_server["AWS_ACCESS_KEY_ID"],
        "secret_access_key": s3_server["AWS_SECRET_ACCESS_KEY"],
    }


@pytest.fixture(scope="session")
def fault_proxy_to() -> Iterator[Any]:
    """Makes a proxy before the server at an endpoint."""
    spec = importlib.util.spec_from_file_location("s3_fault_proxy", SCRIPTS / "s3_fault_proxy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with ExitStack() as proxies:
        yield lambda endpoint: proxies.enter_context(module.FaultProxy(endpoint))


@pytest.fixture(scope="session")
def _proxy(s3_server: dict[str, str], fault_proxy_to: Any) -> Any:
    return fault_proxy_to(s3_server["S3_ENDPOINT"])


@pytest.fixture
def fault_proxy(_proxy: Any) -> Iterator[Any]:
    """The proxy at `fault_proxy.url`, without rules and with counters at zero."""
    _proxy.rules = []
    yield _proxy
    _proxy.rules = []


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[dict[str, str]]:
    """A ZooKeeper server on loopback."""
    for variables in _started("zookeeper", ports=1, ZK_FSYNC="no"):
        yield variables
        close_all()  # before the server goes: sessions without one look for it for ever


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[dict[str, str]]:
    """A Spark master and two one-core workers on loopback."""
    yield from _started("spark-cluster", ports=5)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run, `local[2]`."""
    pytest.importorskip("pyspark.sql", reason="the extra `spark` (pyspark) is not installed")
    from mergelake.api.spark.session import session as start

    session = start(
        "local[2]",
        config={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
        },
    )
    yield session
    session.stop()
