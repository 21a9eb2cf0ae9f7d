from __future__ import annotations

import pytest

from model_foundry.warehouse.catalogs import conninfo


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://ada@db.lan:5433/lake", "host=db.lan port=5433 user=ada dbname=lake"),
        ("postgresql://db/lake?sslmode=require", "host=db dbname=lake sslmode=require"),
        ("postgresql://postgres@/lake?host=/tmp/a%20b", "host='/tmp/a b' user=postgres dbname=lake"),
        ("postgresql://a%27b@db/lake", r"host=db user='a\'b' dbname=lake"),
    ],
)
def test_a_url_becomes_libpqs_own_text(url: str, text: str) -> None:
    assert conninfo(url) == text
