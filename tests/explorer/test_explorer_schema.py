"""The OpenAPI schema, and thousands of requests that schemathesis makes from it."""

import functools
import importlib.util
import json
import os
import traceback

import pytest
import torch
from conftest import TOKEN, Client
from hypothesis import HealthCheck, given, settings

import zscope as zs
from zscope.explorer.schema import SCHEMA
from zscope.explorer.session import Session
from zscope.explorer.views import ENDPOINTS

OPERATIONS = [(name, method) for name, one in ENDPOINTS.items() for method in one.methods]
PATIENCE = 120  # seconds, for the slowest of machines
HEADERS = {"authorization": f"Bearer {TOKEN}", "host": "127.0.0.1:8000"}


@pytest.fixture(scope="module")
def small():
    """A session whose answers take milliseconds."""
    torch.manual_seed(0)
    factors = torch.randint(3, (60, 2))
    x = torch.cat([factors.float(), torch.rand(60, 1)], 1)
    data = zs.data.from_arrays(x, factors=factors)
    model = zs.wrap(lambda x: (x, 0.1 * torch.ones_like(x)), lambda z: z.tanh(), latents=3)
    other = zs.wrap(lambda x: x.flip(1), lambda z: z.flip(1), latents=3)
    session = Session(model, data, name="small", other=other, other_name="flipped")
    yield session
    session.close()


@pytest.fixture(scope="module")
def small_maps():
    """The same, with latents of 3 x 3 x 3."""
    x = torch.rand(20, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(lambda x: (x, torch.full_like(x, -4.0)), lambda z: z.tanh())
    session = Session(model, x, name="small maps")
    yield session
    session.close()


@pytest.fixture(scope="module")
def load(small, small_maps):
    """Load the schema, perhaps changed, into schemathesis."""
    # Continuous integration has it, and must not pass without these tests.
    if importlib.util.find_spec("schemathesis") is None and os.environ.get("CI") != "true":
        pytest.skip("needs schemathesis: pip install schemathesis")
    import schemathesis

    text = Client(small).get(SCHEMA).text

    def load(*changes, name=""):
        changed = text
        for before, after in changes:
            assert before in changed
            changed = changed.replace(before, after)
        schema = schemathesis.openapi.from_dict(json.loads(changed))
        of_maps = name and ENDPOINTS[name].latents == "maps"
        schema.app = Client(small_maps if of_maps else small).app
        schema.config.generation.update(with_security_parameters=False)
        return schema

    return load


@pytest.fixture(scope="module")
def schema(load):
    """The schema, for a model that the endpoint `name` is for."""
    return functools.cache(lambda name: load(name=name))


@pytest.fixture(scope="module")
def fitting(load):
    """What fits this model, of all that fits the schema: few random vectors have three numbers."""

    def fitting(name):
        return load(
            ('"maximum": 2147483648', '"maximum": 1'),
            ('"maxItems": 65536', '"maxItems": 3, "minItems": 3'),
            ('"maxItems": 4096, "minItems": 1', '"maxItems": 3, "minItems": 3'),
            name=name,
        )

    return functools.cache(fitting)


def test_the_schema_is_for_those_with_the_token(pictures):
    reply = Client(pictures).get(SCHEMA)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    stranger = Client(pictures, token=None)
    for path in (SCHEMA, "/openapi.json", "/docs", "/redoc"):
        assert stranger.get(path).status_code == 403


def test_the_schema_has_every_endpoint_parameter_and_error(pictures):
    schema = Client(pictures).get(SCHEMA).json()
    names = {f"/api/{name}" for name in ENDPOINTS}
    assert set(schema["paths"]) == names | {"/api", SCHEMA}
    for name, method in OPERATIONS:
        operation = schema["paths"][f"/api/{name}"][method.lower()]
        assert operation["summary"]
        fields = set(ENDPOINTS[name].query.model_fields)
        if method == "GET":
            assert {each["name"] for each in operation["parameters"]} == fields
        else:
            body = operation["requestBody"]["content"]["application/json"]["schema"]
            assert set(body["properties"]) == fields
        errors = {"400", "403", "413", "414", "422", "429", "500", "503"}
        assert set(operation["responses"]) == errors | {"200"}
    assert set(schema["paths"]["/api/decode"]) == {"post"}


@pytest.mark.parametrize(
    "query", ["grid=5&grid=6", "grid=5.0", "grid= 5", "grid=null", "grid=", "sample=true",
              "first=[0]", "layer=", "exact=1", "z=0,0,0,", "z=[0,0,0]", "z=a"],
)  # fmt: skip
def test_a_query_string_is_read_as_the_schema_says(small, query):
    reply = Client(small).get(f"/api/map?layer=none&{query}")
    assert reply.status_code == 422, reply.text
    assert "is not valid" in reply.json()["error"]["message"]


def test_a_query_string_says_the_same_as_a_body(small):
    client = Client(small)
    reply = client.get("/api/latents?z=0.5,-1,2e-1&exact=true")
    assert reply.json() == client.ask("latents", z=[0.5, -1, 0.2], exact=True)
    for wrong in ({"sample": "3"}, {"sample": True}, {"z": "1,2,3"}, {"exact": 1}):
        client.error(422, "latents", **wrong)


def send(schema, name, method, mode, examples):
    """The statuses of requests that fit the schema, or do not; each reply must fit it."""
    import schemathesis
    from schemathesis.generation import GenerationMode

    names = (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    )
    checks = [getattr(schemathesis.checks, name) for name in names]
    operation, statuses = schema[f"/api/{name}"][method], set()

    @settings(max_examples=examples, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    def requests(case):
        reply = case.call(headers=HEADERS, timeout=PATIENCE)
        # The last check does not know that a long address is refused as such.
        case.validate_response(reply, checks=checks[:-1] if reply.status_code == 414 else checks)
        statuses.add(reply.status_code)

    requests()
    return statuses


@pytest.mark.parametrize(("name", "method"), OPERATIONS)
def test_requests_that_fit_the_schema_are_answered(fitting, name, method):
    statuses = send(fitting(name), name, method, "positive", 5)
    assert 200 in statuses
    assert statuses <= {200, 422}


# The first, GET session, has no parameters, so that every query string fits.
@pytest.mark.parametrize(("name", "method"), OPERATIONS[1:])
def test_requests_that_do_not_fit_the_schema_are_refused(schema, name, method):
    # Some are none: an empty list is not sent, and an empty body is allowed. The check knows.
    assert send(schema(name), name, method, "negative", 5) & {400, 422}


@pytest.mark.parametrize(
    ("change", "mode", "failure"),
    [
        (('"422"', '"418"'), "negative", "Undocumented status code"),
        (('{"type": "object"}', '{"type": "array"}'), "positive", "Response violates schema"),
        (('"application/json": {"schema": {"type"', '"text/plain": {"schema": {"type"'),
         "positive", "Undocumented Content-Type"),
    ],
)  # fmt: skip
def test_a_schema_that_is_wrong_is_noticed(load, change, mode, failure):
    with pytest.raises(BaseException) as raised:  # noqa: PT011
        send(load(change), "samples", "POST", mode, 60)
    assert failure in "".join(traceback.format_exception(raised.value))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["positive", "negative", "fitting"])
@pytest.mark.parametrize(("name", "method"), OPERATIONS)
def test_many_requests_made_from_the_schema(schema, fitting, name, method, mode):
    if (name, method, mode) == ("session", "GET", "negative"):
        return
    if mode == "fitting":
        send(fitting(name), name, method, "positive", 100)
    else:
        send(schema(name), name, method, mode, 500)
