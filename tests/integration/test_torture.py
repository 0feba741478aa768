"""Eight writers, nodes and a collector, killed at random moments, on real servers (`make torture`: for longer)."""

from __future__ import annotations

import functools
import os
import uuid

import pytest

from mergelake.log.backends.keeper import close_all
from tests.helpers.services import or_skip, restart, service
from tests.helpers.torture import Place, acknowledged, torture

KILLS = int(os.environ.get("TORTURE_KILLS", "8"))
FAULTS = [
    {"do": "lose_response", "method": "PUT", "prob": 0.02},
    {"do": "status_after", "method": "PUT", "prob": 0.01},
    {"do": "status", "prob": 0.01},
    {"do": "drop_download", "method": "GET", "bytes": 10, "prob": 0.01},
    {"do": "drop_upload", "method": "PUT", "bytes": 10, "prob": 0.01},
]


@pytest.fixture(scope="module")
def own_s3():
    """A server that may be stopped: not the one of all other tests."""
    with or_skip(), service("s3", ports=4) as variables:
        yield variables


def place_on(server, endpoint="", log=None):
    options = {
        "endpoint": endpoint or server["S3_ENDPOINT"],
        "access_key_id": server["AWS_ACCESS_KEY_ID"],
        "secret_access_key": server["AWS_SECRET_ACCESS_KEY"],
    }
    return Place(f"s3://{server['S3_BUCKET']}/{uuid.uuid4().hex}", options, log)


def told(report, capsys):
    with capsys.disabled():
        print(f"\n{report}")


@pytest.mark.slow
@pytest.mark.s3
def test_killed_writers_on_s3_lose_and_double_no_acknowledged_row(own_s3, fault_proxy_to, capsys):
    proxy = fault_proxy_to(own_s3["S3_ENDPOINT"])
    place = place_on(own_s3, proxy.url)
    place.open()  # the warehouse is made in peace
    proxy.rules = FAULTS

    def calm():
        proxy.rules = []

    again = functools.partial(restart, "s3", own_s3["SERVICE_DIR"])
    report = torture(place, kills=KILLS, restarts=[(KILLS // 2, again)], calm=calm)
    assert report.kills == KILLS
    assert report.restarts
    assert report.batches
    told(report, capsys)


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.zookeeper
def test_killed_writers_on_zookeeper_lose_and_double_no_acknowledged_row(own_s3, capsys):
    with or_skip(), service("zookeeper", ports=1, ZK_FSYNC="no") as keeper:
        place = place_on(own_s3, log=f"zookeeper://{keeper['ZOOKEEPER_HOSTS']}/{uuid.uuid4().hex}")
        again = functools.partial(restart, "zookeeper", keeper["SERVICE_DIR"])
        report = torture(place, kills=KILLS, restarts=[(KILLS // 2, again)], seed=1)
        assert report.batches
        told(report, capsys)
        close_all()


def test_a_line_that_was_cut_off_is_no_acknowledgement(tmp_path):
    path = tmp_path / "writer"
    assert acknowledged(path) == 0
    path.write_bytes(b"0\n1\n2")
    assert acknowledged(path) == 2
