"""Compares values with the vendors' own definitions: TypedDicts (openai, anthropic), pydantic models (google-genai,
mistralai) and botocore's shapes. A member without a definition is a fault: vendors reject it."""

import base64
import binascii
import collections.abc
import functools
import re
import types
import typing

import pydantic
import typing_extensions


def faults_of_typed_dict(definition, value, place=""):
    """Returns the faults of `value` according to `definition` (a TypedDict, a union, a list, ...)."""
    origin, arguments = typing.get_origin(definition), typing.get_args(definition)
    if definition in (object, typing.Any):
        return []
    if typing_extensions.is_typeddict(definition):
        return faults_of_members(definition, value, place)
    if origin in (typing.Annotated, typing_extensions.Required, typing_extensions.NotRequired):
        return faults_of_typed_dict(arguments[0], value, place)
    if origin in (typing.Union, types.UnionType):
        tried = [faults_of_typed_dict(argument, value, place) for argument in arguments]
        # Report the faults against the most similar alternative.
        return min(tried, key=lambda faults: (bool(faults), -max((fault.count(".") for fault in faults), default=0), len(faults)))
    if origin is typing.Literal:
        return [] if value in arguments else [f"{place}: {value!r} is not one of {arguments}"]
    if origin in (dict, collections.abc.Mapping):
        return [] if isinstance(value, dict) else [f"{place}: no object"]
    if origin is not None:
        # A list by any name: `Iterable`, or a protocol of the package.
        if not isinstance(value, list):
            return [f"{place}: no array"]
        return [fault for at, item in enumerate(value) for fault in faults_of_typed_dict(arguments[0], item, f"{place}.{at}")]
    if definition is type(None):
        return [] if value is None else [f"{place}: not null"]
    if definition is float:
        definition = (int, float)
    fits = isinstance(value, definition) and not (isinstance(value, bool) and definition is not bool)
    return [] if fits else [f"{place}: {value!r:.60} is no {definition}"]


@functools.cache
def members_of(definition):
    return typing_extensions.get_type_hints(definition, include_extras=True)


def faults_of_members(definition, value, place):
    if not isinstance(value, dict):
        return [f"{place}: no object"]
    members = members_of(definition)
    unknown = [f"{place}.{name}: unknown" for name in value if name not in members]
    missing = [f"{place}.{name}: missing" for name in definition.__required_keys__ if name not in value]
    known = ((name, item) for name, item in value.items() if name in members)
    return unknown + missing + [
        fault for name, item in known for fault in faults_of_typed_dict(members[name], item, f"{place}.{name}")
    ]


def faults_of_model(model, value, place=""):
    """Like `faults`, for a pydantic model, which may be more lenient than its vendor: unknown members are checked
    separately."""
    try:
        read = model.model_validate(value)
    except pydantic.ValidationError as error:
        return [f"{place}.{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    return unknown_members(read, value, place)


def unknown_members(read, value, place):
    """Returns the members of `value` that `read`, which was parsed from it, does not have."""
    if isinstance(read, pydantic.BaseModel) and isinstance(value, dict):
        names = {name: field for field, info in type(read).model_fields.items() for name in aliases(field, info)}
        faults = [f"{place}.{name}: unknown" for name in value if name not in names]
        return faults + [
            fault for name, item in value.items() if name in names
            for fault in unknown_members(getattr(read, names[name]), item, f"{place}.{name}")
        ]
    if isinstance(read, list) and isinstance(value, list):
        pairs = enumerate(zip(read, value))
        return [fault for at, (one, item) in pairs for fault in unknown_members(one, item, f"{place}.{at}")]
    return []


def aliases(field, info):
    return {name for name in (field, info.alias, info.serialization_alias, info.validation_alias) if isinstance(name, str)}


def faults_of_shape(shape, value, place=""):
    """Like `faults`, for a botocore shape: with lengths, patterns, enums and unions, which botocore's own validator
    ignores."""
    if getattr(shape, "is_document_type", False):
        return []
    match shape.type_name:
        case "structure":
            return faults_of_structure(shape, value, place)
        case "list":
            if not isinstance(value, list):
                return [f"{place}: no array"]
            faults = [fault for at, item in enumerate(value) for fault in faults_of_shape(shape.member, item, f"{place}.{at}")]
            return out_of_bounds(shape, len(value), place) + faults
        case "map":
            return [] if isinstance(value, dict) else [f"{place}: no object"]
        case "string":
            return faults_of_string(shape, value, place)
        case "blob":
            return faults_of_base64(value, place)
        case "boolean":
            return [] if isinstance(value, bool) else [f"{place}: no boolean"]
        case "integer" | "long":
            fits = isinstance(value, int) and not isinstance(value, bool)
            return out_of_bounds(shape, value, place) if fits else [f"{place}: no whole number"]
        case "float" | "double":
            fits = isinstance(value, (int, float)) and not isinstance(value, bool)
            return out_of_bounds(shape, value, place) if fits else [f"{place}: no number"]
    return [f"{place}: a {shape.type_name} is not expected here"]


def faults_of_structure(shape, value, place):
    if not isinstance(value, dict):
        return [f"{place}: no object"]
    faults = [f"{place}.{name}: unknown" for name in value if name not in shape.members]
    faults += [f"{place}.{name}: missing" for name in shape.required_members if name not in value]
    if getattr(shape, "is_tagged_union", False) and len(value) != 1:
        faults.append(f"{place}: is one of {sorted(shape.members)}, not {len(value)} of them")
    known = ((name, item) for name, item in value.items() if name in shape.members)
    return faults + [fault for name, item in known for fault in faults_of_shape(shape.members[name], item, f"{place}.{name}")]


def faults_of_string(shape, value, place):
    if not isinstance(value, str):
        return [f"{place}: no string"]
    faults = out_of_bounds(shape, len(value), place)
    if shape.enum and value not in shape.enum:
        faults.append(f"{place}: {value!r} is not one of {shape.enum}")
    pattern = shape.metadata.get("pattern")
    if pattern and not re.fullmatch(pattern, value):
        faults.append(f"{place}: {value!r} does not match {pattern}")
    return faults


def out_of_bounds(shape, measure, place):
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    fits = (low is None or measure >= low) and (high is None or measure <= high)
    return [] if fits else [f"{place}: {measure} is not between {low} and {high}"]


def faults_of_base64(value, place):
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return [f"{place}: no base64"]
    return [] if value else [f"{place}: empty"]
