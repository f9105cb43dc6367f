# SPDX-License-Identifier: MIT
"""The part of JSON Schema that scripts/schema uses; an unknown keyword is an error, not a pass."""

_KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_SILENT = {"$schema", "title", "description", "$defs"}


def _is(value, kind):
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, _KINDS[kind])


def check(value, schema, root=None, where="$"):
    """Raises AssertionError naming the place."""
    root = root or schema
    for word, rule in schema.items():
        if word == "$ref":
            check(value, root["$defs"][rule.rsplit("/", 1)[1]], root, where)
        elif word == "type":
            kinds = rule if isinstance(rule, list) else [rule]
            assert any(_is(value, kind) for kind in kinds), f"{where}: {value!r} is not {rule}"
        elif word == "const":
            assert value == rule, f"{where}: {value!r} is not {rule!r}"
        elif word == "enum":
            assert value in rule, f"{where}: {value!r} is not one of {rule}"
        elif word == "minimum":
            assert value is None or value >= rule, f"{where}: {value!r} < {rule}"
        elif word == "required":
            missing = [name for name in rule if value is not None and name not in value]
            assert not missing, f"{where}: without {missing}"
        elif word == "properties":
            for name, inner in rule.items():
                if value is not None and name in value:
                    check(value[name], inner, root, f"{where}.{name}")
        elif word == "additionalProperties":
            for name in value or ():
                if name not in schema.get("properties", {}):
                    assert rule is not False, f"{where}: unexpected {name}"
                    check(value[name], rule, root, f"{where}.{name}")
        elif word == "items":
            for index, item in enumerate(value or ()):
                check(item, rule, root, f"{where}[{index}]")
        elif word == "minItems":
            assert len(value) >= rule, where
        elif word == "maxItems":
            assert len(value) <= rule, where
        else:
            assert word in _SILENT, f"schema keyword {word} is not supported"
