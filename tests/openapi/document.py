"""The OpenAPI document as a judge of requests and answers."""

import copy
import re

from jsonschema import Draft202012Validator


class Document:
    """Finds operations, and lists what contradicts their schemas.

    A member of an answer that its schema lacks is a fault, because readers of the document would not know of it.
    """

    def __init__(self, document):
        self.document = document
        self.components = document["components"]
        self.open = Draft202012Validator(document)
        closed = copy.deepcopy(document)
        for schema in closed["components"]["schemas"].values():
            if "properties" in schema and "additionalProperties" not in schema:
                schema["unevaluatedProperties"] = False
        self.closed = Draft202012Validator(closed)

    def operations(self):
        """Yields (method, path, operation) of each operation."""
        for path, item in self.document["paths"].items():
            for method, operation in item.items():
                yield method.upper(), path, operation

    def operation(self, method, path):
        return self.document["paths"][path][method.lower()]

    def resolved(self, value):
        """The component to which a reference leads, or the value itself."""
        while "$ref" in value:
            _, _, kind, name = value["$ref"].split("/")
            value = self.components[kind][name]
        return value

    def parameters(self, operation, place):
        found = map(self.resolved, operation.get("parameters", []))
        return {parameter["name"]: parameter for parameter in found if parameter["in"] == place}

    def faults_of_body(self, operation, body):
        if "requestBody" not in operation:
            return [] if body is None else ["the operation takes no body"]
        if body is None:
            return ["a body is required"] if operation["requestBody"].get("required") else []
        media = operation["requestBody"]["content"]
        media = media.get("application/json") or media["*/*"]
        return self.faults(self.open, media.get("schema"), body)

    def faults_of_query(self, operation, query):
        parameters = self.parameters(operation, "query")
        faults = [f"{name} is required" for name, known in parameters.items() if known.get("required") and name not in query]
        for name, value in query.items():
            name, value = ("tags", {name: value}) if name.startswith("tag.") else (name, value)
            if name not in parameters:
                faults.append(f"no parameter {name}")
                continue
            schema = parameters[name]["schema"]
            if schema.get("type") == "array":
                value = value.split(",")
            faults += self.faults(self.open, schema, value)
        return faults

    def faults_of_answer(self, operation, answer):
        """Lists what is wrong with the status, the headers, the media type and the content of an answer."""
        responses = operation["responses"]
        response = responses.get(str(answer.status)) or responses.get("default")
        if response is None:
            return [f"the status {answer.status} is not documented"]
        response = self.resolved(response)
        content = response.get("content", {})
        if not content:
            return ["there is a body"] if answer.body else []
        kind = answer.headers.get("content-type", "").split(";")[0]
        if kind not in content and "*/*" not in content:
            return [f"the media type {kind!r} is not documented"]
        if kind != "application/json" or "*/*" in content:
            return []
        return self.faults(self.closed, content[kind].get("schema"), answer.json())

    @staticmethod
    def faults(validator, schema, value):
        if schema is None:
            return []
        errors = validator.evolve(schema=wrapped(validator.schema, schema)).iter_errors(value)
        return [f"{error.json_path}: {error.message[:300]}" for error in errors]


def wrapped(document, schema):
    """A schema whose references are those of the document."""
    return {"components": document["components"], **schema}


def filled(path, arguments):
    """The path with the arguments in place of its names."""
    names = iter(arguments)
    return re.sub(r"\{\w+\}", lambda _: str(next(names)), path)
