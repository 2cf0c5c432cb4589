"""The OpenAPI schema of the answers, served at /api/openapi.json."""

from typing import Any

from zscope import __version__

__all__ = ["SCHEMA", "openapi"]

SCHEMA = "/api/openapi.json"

ERRORS = {
    "400": "The request is malformed: it has a header twice, or its body is not a JSON object.",
    "403": "The token is missing or wrong, or the request came from another page or host.",
    "413": "The body is too large.",
    "414": "The address is too long.",
    "422": "A parameter is unknown, missing or not valid, or there is no answer for its value.",
    "429": "Too many requests per second.",
    "500": "The model, or an assay of it, raised an error.",
    "503": "Too many requests wait for their answers, or the server is stopping.",
}
GUARD = ("400", "403", "413", "414", "429", "503")
"""The errors of requests that reach no endpoint."""


def openapi(endpoints: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema of the endpoints that /api lists."""
    documents = {"/api": "The endpoints.", SCHEMA: "This schema."}
    paths: dict[str, Any] = {
        path: {"get": {"summary": about, "responses": _responses(GUARD)}}
        for path, about in documents.items()
    }
    for endpoint in endpoints:
        parameters = endpoint["parameters"]
        required = "required" in parameters
        common = {"summary": endpoint["description"], "responses": _responses(tuple(ERRORS))}
        body = {"required": required, "content": {"application/json": {"schema": parameters}}}
        operations = {
            "get": {**common, "parameters": _query(parameters)},
            "post": {**common, "requestBody": body},
        }
        paths[endpoint["path"]] = {
            method: operation
            for method, operation in operations.items()
            if method.upper() in endpoint["methods"]
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "zscope explorer", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token in the address that the terminal shows.",
                }
            },
        },
        "security": [{"token": []}],
    }


_TEXT = {"type": "string"}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["kind", "message"],
            "additionalProperties": False,
            "properties": {"kind": _TEXT, "message": _TEXT},
        }
    },
}


def _responses(errors: tuple[str, ...]) -> dict[str, Any]:
    def response(about: str, schema: dict[str, Any]) -> dict[str, Any]:
        return {"description": about, "content": {"application/json": {"schema": schema}}}

    error = {"$ref": "#/components/schemas/Error"}
    return {
        "200": response("The answer.", {"type": "object"}),
        **{status: response(ERRORS[status], error) for status in errors},
    }


def _query(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters as those of a query string, which knows no null."""
    items = []
    for name, schema in parameters.get("properties", {}).items():
        some = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        only = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        items.append(
            {
                "name": name,
                "in": "query",
                "required": name in parameters.get("required", ()),
                "description": schema.get("description", ""),
                "style": "form",
                "explode": False,  # lists are "1,2,3"
                "schema": {**only, **some[0]} if some else schema,
            }
        )
    return items
