# SPDX-License-Identifier: MIT
"""The validator can fail, every schema is one it understands, and the statistics' fields are all described."""

import json
import re

import pytest
from command import ROOT
from schema import check

FILES = sorted((ROOT / "scripts" / "schema").glob("*.schema.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_schema_refuses_nonsense(path):
    schema = json.loads(path.read_text())
    for nonsense in ({}, [], 3, {"format": "other", "format_version": 1}):
        with pytest.raises(AssertionError):
            check(nonsense, schema)


@pytest.mark.parametrize("value, schema", [
    (1.5, {"type": "integer"}), (True, {"type": "integer"}), (-1, {"type": "integer", "minimum": 0}),
    ({"a": 1}, {"required": ["b"]}), ({"a": 1}, {"properties": {}, "additionalProperties": False}),
    (["x"], {"items": {"type": "integer"}}), ("c", {"enum": ["a", "b"]}), (None, {"type": ["string"]}),
    (1, {"unheard-of": 1}),
])
def test_validator_can_fail(value, schema):
    with pytest.raises(AssertionError):
        check(value, schema)


def test_every_statistic_is_described():
    written = set(re.findall(r"\bX\((\w+)\)", (ROOT / "allocator" / "core" / "stats.h").read_text())) - {"name"}
    written |= {"index", "name", "uuid", "version", "finished_only_reasons"}
    schema = json.loads((ROOT / "scripts" / "schema" / "stats.schema.json").read_text())
    assert set(schema["properties"]["devices"]["items"]["properties"]) == written
    table = (ROOT / "docs" / "statistics.md").read_text().split("<!-- statistics:begin -->")[1].split("<!-- statistics:end -->")[0]
    whole, device = table.split("| of a device |")
    assert set(re.findall(r"^\| `(\w+)` \|", device, re.M)) == written
    assert set(re.findall(r"^\| `(\w+)` \|", whole, re.M)) == set(schema["properties"]) - {"format", "format_version", "devices"}
