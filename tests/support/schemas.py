"""Fifty schemas whose replies are short even of a model that draws at random."""

from __future__ import annotations

from typing import Any

WORD = {"type": "string", "maxLength": 6}
SMALL = {"type": "integer", "minimum": -20, "maximum": 300}


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    """An object's schema; everything is required unless said."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names}


SCHEMAS: list[Any] = [
    *({"type": name} for name in ("integer", "boolean", "null", "number")),
    *(
        {"enum": values}
        for values in (["a", "b"], [1, 2.5, None, True], [["x"], {"k": 1}], ["é🦉"])
    ),
    *({"const": value} for value in ("one", 7, None, {"a": [1, "b"]})),
    *(WORD, {"type": "string", "minLength": 3, "maxLength": 5}, {"type": "string", "maxLength": 0}),
    *(
        {"type": "string", "pattern": p}
        for p in ("^[a-c]{2,4}$", "x?y{3}", "^(on|off)$", "\\d\\.\\d")
    ),
    *({"type": "string", "format": f} for f in ("date", "time", "uuid", "ipv4")),
    *(SMALL, {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6}),
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": ["integer", "null"]},
    {"type": ["boolean", "string"], "maxLength": 4},
    *({"anyOf": [WORD, SMALL]}, {"oneOf": [{"type": "null"}, SMALL]}, {"allOf": [SMALL]}),
    {"type": "array", "items": SMALL, "maxItems": 3},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
    {"type": "array", "items": {"type": "array", "items": SMALL, "maxItems": 2}, "maxItems": 2},
    {"type": "array", "prefixItems": [SMALL, WORD], "items": False, "minItems": 2},
    *(obj(), obj(a=SMALL), obj(a=WORD, b=SMALL, c={"type": "boolean"}), obj([], a=SMALL, b=WORD)),
    obj(["b"], a=SMALL, b=WORD, c={"type": "null"}),
    obj(["z"], a=SMALL) | {"additionalProperties": SMALL},
    obj(inner=obj(deep=obj(a=SMALL))),
    {
        "type": "object",
        "properties": {'key "quoted"': SMALL, "ключ": WORD, "with space": {"type": "null"}},
        "required": ["ключ"],
    },
    obj(list={"type": "array", "items": obj(x=SMALL, y=WORD), "minItems": 1, "maxItems": 2}),
    obj(a={"$ref": "#/$defs/n"}, b={"$ref": "#/$defs/n"}) | {"$defs": {"n": SMALL}},
    obj(kind={"enum": ["cat", "dog"]}, name=WORD, age={"anyOf": [SMALL, {"type": "null"}]}),
    {"anyOf": [obj(kind={"const": "a"}, n=SMALL), obj(kind={"const": "b"}, w=WORD)]},
    {"type": "object", "additionalProperties": False},
    {"type": "object", "title": "T", **obj(a={**SMALL, "default": 5})},
    obj(rating={"type": "integer", "enum": [1, 2, 3]}, tags={"type": "array", "maxItems": 0}),
    obj(tree={"$ref": "#/$defs/t"})
    | {"$defs": {"t": {"anyOf": [{"type": "null"}, obj(next={"$ref": "#/$defs/t"})]}}},
]
