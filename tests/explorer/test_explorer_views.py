"""The contract of an explorer view, in Python and in JavaScript."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from conftest import QUIET, open_page, settle

import zscope
from zscope.explorer.views import ENDPOINTS
from zscope.explorer.views.query import Query
from zscope.results import plain

PACKAGE = Path(zscope.__file__).parent
STATIC = PACKAGE / "explorer" / "static"
VIEWS = [endpoint.name for endpoint in ENDPOINTS.values() if endpoint.title]
VECTOR_VIEWS = ["overview", "latents", "map", "matrix", "graph", "samples", "compare"]
REQUIRED = {
    "pictures": {"samples": [0, 3]},
    "selection": {"samples": [5, 2, 5]},
    "decode": {"codes": [[0.5, -1, 0.25, 0, 2, -0.5]]},
    "traversal": {"latent": 0},
    "map": {"grid": 6},
    "path": {"start": [0, 0], "end": [1, 1], "grid": 6},
}


@pytest.mark.parametrize("name", ENDPOINTS)
def test_every_endpoint_documents_its_answer_and_its_parameters(name):
    endpoint = ENDPOINTS[name]
    assert endpoint.lane in ("live", "slow")
    assert inspect.getdoc(endpoint.answer), "the answer has no docstring"
    assert issubclass(endpoint.query, Query)
    assert endpoint.query.__doc__, "the query has no docstring"
    undocumented = [key for key, field in endpoint.query.model_fields.items()
                    if not field.description]  # fmt: skip
    assert undocumented == []
    described = endpoint.to_dict()["parameters"].get("properties", {})
    assert all(field["description"] for field in described.values())


@pytest.mark.parametrize("name", ENDPOINTS)
def test_every_endpoint_answers_with_plain_json(client, pictures, maps_client, maps, name):
    endpoint = ENDPOINTS[name]
    if endpoint.latents == "maps":
        client, pictures = maps_client, maps
    query = endpoint.query.model_validate(REQUIRED.get(name, {}))
    answer = endpoint.reply(pictures, query)
    assert isinstance(answer, dict)
    text = json.dumps(plain(answer), allow_nan=False)
    assert client.ask(name, **REQUIRED.get(name, {})).keys() == json.loads(text).keys()


def test_the_list_of_endpoints_describes_every_one(client):
    listed = {each["path"]: each for each in client.get("/api").json()["endpoints"]}
    assert set(listed) == {f"/api/{name}" for name in ENDPOINTS}
    for each in listed.values():
        assert each["description"]
        assert each["parameters"]["additionalProperties"] is False


def test_every_view_has_a_file_and_every_file_with_a_view_is_listed(client, maps_client):
    files = {file.stem for file in STATIC.glob("*.js") if "function make(" in file.read_text()}
    assert files == set(VIEWS)
    assert [view["name"] for view in client.ask("session")["views"]] == VECTOR_VIEWS
    of_maps = [view["name"] for view in maps_client.ask("session")["views"]]
    assert set(of_maps) | set(VECTOR_VIEWS) == set(VIEWS)


def test_every_view_exports_make_and_returns_root_and_show(tab, address):
    with open_page(tab, address) as page:
        settle(page)
        for name in VECTOR_VIEWS:
            exported = page.evaluate(
                "name => import(`/static/${name}.js`).then(m => [typeof m.make, m.make.length])",
                name,
            )
            assert exported == ["function", 1], name
            # The page checks what make returns, and the console must stay silent.
            page.locator(f"#tab-{name}").click()
            settle(page)
            assert page.locator(f"#panel-{name} > *").count() == 1


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("export const title = 1;", r"does not export make\(context\)"),
        ("export function make( {", "could not be loaded"),
        ("export const make = () => ({ show() {} });", "lacks the element root"),
        (
            "export const make = () => ({ root: document.createElement('p') });",
            r"lacks the function show\(parameters\)",
        ),
        ("export const make = () => { throw new Error('no luck'); };", "failed: no luck"),
    ],
)
def test_a_view_that_breaks_the_contract_is_named_and_the_others_work(
    tab, address, script, problem
):
    errors = []

    def listen(message):
        if message.type == "error":
            errors.append(message.text)

    tab.on("console", listen)
    tab.route(
        "**/static/graph.js",
        lambda route: route.fulfill(body=script, content_type="text/javascript"),
    )
    try:
        tab.goto(address)
        tab.wait_for_selector("[role=tab][aria-selected=true]")
        settle(tab)
        tab.locator("#tab-graph").click()
        message = rf"the view graph \(static/graph\.js\) {problem}.*CONTRIBUTING"
        assert re.search(message, tab.locator("#alert").inner_text())
        tab.evaluate(QUIET)
        assert any(re.search(message, error) for error in errors)
        tab.locator("#tab-samples").click()
        settle(tab)
        assert tab.locator(".sheet li").count() == 48
    finally:
        tab.unroute_all()
        tab.remove_listener("console", listen)


SERVE = """
import torch
import zscope as zs
from zscope.explorer import explore

model = zs.wrap(lambda x: x, lambda z: z, latents=2)
explore(model, torch.tensor([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]]), browser=False)
"""


@pytest.fixture(scope="module")
def recipe():
    """The code blocks of CONTRIBUTING's example: two files, and a line."""
    text = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text()
    section = text.split("## An explorer view\n")[1].split("\n## ")[0]
    return re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)


@pytest.fixture(scope="module")
def extended(recipe, tmp_path_factory):
    """The address of an explorer to which the example was added, as CONTRIBUTING says."""
    root = tmp_path_factory.mktemp("extended")
    copy = root / "src" / "zscope"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    *files, line = recipe
    for content in files:
        path = content.split("\n")[0].lstrip("/# ")
        (root / path).write_text(content)
    views = copy / "explorer" / "views" / "__init__.py"
    text = views.read_text()
    text = text.replace("import channels,", "import norms, channels,")
    views.write_text(text.replace(")\n\nENDPOINTS", f"    {line.strip()},\n)\n\nENDPOINTS"))
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        output, address = "", None
        for printed in process.stdout:
            output += printed
            if address := re.search(r"http://\S+", printed):
                break
        assert address, output
        yield address.group(0)
        process.kill()


def test_a_view_added_by_the_recipe_is_described_and_answers(extended):
    with httpx.Client(follow_redirects=True, timeout=60) as client:
        home = client.get(extended).url
        listed = client.get(home.join("/api")).json()["endpoints"]
        added = next(each for each in listed if each["path"] == "/api/norms")
        assert added["description"] == "The p-norm of every recorded code."
        parameter = added["parameters"]["properties"]["power"]
        assert parameter["description"] == "The p of the p-norm."
        assert client.get(home.join("/api/norms")).json() == {"power": 2, "norms": [5, 0, 10]}
        assert client.get(home.join("/api/norms?power=1")).json()["norms"] == [7, 0, 14]
        refused = client.get(home.join("/api/norms?power=0"))
        assert refused.status_code == 422
        assert "norms: power=0 is not valid" in refused.json()["error"]["message"]


def test_a_view_added_by_the_recipe_has_a_tab_a_panel_a_link_and_its_json(tab, extended):
    with open_page(tab, extended) as page:
        settle(page)
        page.get_by_role("tab", name="Norms").click()
        settle(page)
        assert page.get_by_role("tabpanel").inner_text() == "Mean norm 5.00"
        assert page.locator("#json").get_attribute("href") == "api/norms?power=2"
        page.goto(page.url.split("#")[0] + "#norms?power=1")
        settle(page)
        assert page.get_by_role("tabpanel").inner_text() == "Mean norm 7.00"
        assert page.title() == "Norms · Autoencoder · zscope"
