"""The answers of the explorer, and the views of its page.

`ENDPOINTS` lists them. /api/NAME answers GET with a query string and POST with a JSON
object of the same parameters; /api describes every endpoint, and /api/openapi.json does so
for programs.

An endpoint is a function `answer(session, query)` in a file of this folder:

- `query` is a subclass of `Query`: one field for each parameter, with limits and with a
  docstring below it.
- It returns a dict of numbers, texts, lists, tensors and arrays, without NaN: the server
  turns it into JSON. Where there is no answer it raises a `ZscopeError`.
- Its docstring says what the answer holds; /api shows it.
- The lane "live" is for answers within a few calls of `session.model`. The lane "slow" is
  for anything longer: it uses `session.subject.copy`, a recording with its own copy of the
  model, and may keep results with `session.cached`.

`latents` says which models an endpoint answers for: "vector" for those whose latents are
single numbers, "maps" for those with channels and places, or "any". A page shows the views of
its model only.

An endpoint with a `title` is a view: it has a tab of the page, and static/NAME.js draws it.
The contract of that file is in static/app.js. CONTRIBUTING.md has an example of both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from zscope.errors import ConfigError
from zscope.explorer.session import Session
from zscope.explorer.views import channels, compare, graph, latents, maps, matrix, overview, samples
from zscope.explorer.views.query import NoParameters, Query

__all__ = ["ENDPOINTS", "Endpoint"]


@dataclass(frozen=True)
class Endpoint:
    """One kind of answer: its name, parameters, function and lane, and the title of its tab."""

    name: str
    query: type[Query]
    answer: Callable[[Session, Any], dict[str, Any]]
    lane: Literal["live", "slow"] = "live"
    title: str = ""
    latents: Literal["vector", "maps", "any"] = "vector"

    def suits(self, session: Session) -> bool:
        """Whether it answers for the latents of this model."""
        return self.latents in ("any", "vector" if session.maps is None else "maps")

    def reply(self, session: Session, query: Query) -> dict[str, Any]:
        """The answer, if the latents of the model are those that the endpoint is about."""
        if self.suits(session):
            return self.answer(session, query)
        if session.maps is None:
            raise ConfigError(
                f"{self.name}: the {session.codes.shape[1]} latents of this model have no channels "
                "and places. Ask /api/latents instead. If they are maps, say so: "
                "zs.wrap(encoder, decoder, layout=zs.Layout(channels, places))"
            )
        raise ConfigError(
            f"{self.name}: this is about single latents, but those of this model are maps of "
            f"{session.maps.layout} ({session.maps.layout.latents:,} numbers), whose units are "
            "channels and places. Ask /api/channels instead."
        )

    @property
    def methods(self) -> list[str]:
        """POST, and GET unless a parameter is a list of lists: a query string has none."""
        properties = self.query.model_json_schema().get("properties", {})
        nested = any("items" in each.get("items", {}) for each in properties.values())
        return ["POST"] if nested else ["GET", "POST"]

    def to_dict(self) -> dict[str, Any]:
        """The address, a description, and the JSON schema of the parameters."""
        return {
            "path": f"/api/{self.name}",
            "methods": self.methods,
            "description": " ".join((self.answer.__doc__ or "").split()),
            "parameters": self.query.model_json_schema(),
        }


def session(session: Session, query: NoParameters) -> dict[str, Any]:
    """The model, its latents (most important first) or the layout of its latent maps, data and
    factors, and the page's views."""
    views = [{"name": each.name, "title": each.title} for each in _views(session)]
    return {**session.to_dict(), "views": views}


def _views(session: Session) -> list[Endpoint]:
    return [each for each in _ENDPOINTS if each.title and each.suits(session)]


_ENDPOINTS = (
    Endpoint("session", NoParameters, session, latents="any"),
    Endpoint("channels", channels.Channels, channels.channels, title="Channels", latents="maps"),
    Endpoint("overview", overview.Overview, overview.overview, "slow", "Codes", "any"),
    Endpoint("colours", overview.Colours, overview.colours, "slow", latents="any"),
    Endpoint("pictures", overview.Pictures, overview.pictures, latents="any"),
    Endpoint("selection", overview.Selection, overview.selection, "slow", latents="any"),
    Endpoint("export", overview.Export, overview.export, "slow", latents="any"),
    Endpoint("latents", latents.Latents, latents.latents, title="Latents"),
    Endpoint("decode", latents.Decode, latents.decode),
    Endpoint("sample", latents.Sample, latents.sample, latents="any"),
    Endpoint("draw", latents.Draw, latents.draw),
    Endpoint("project", latents.Project, latents.project),
    Endpoint("traversal", latents.Traversal, latents.traversal),
    Endpoint("map", maps.Map, maps.response_plane, "slow", title="Map"),
    Endpoint("path", maps.Path, maps.path, "slow"),
    Endpoint("matrix", matrix.Matrix, matrix.matrix, "slow", title="Matrix"),
    Endpoint("graph", graph.Graph, graph.graph, "slow", title="Graph"),
    Endpoint("samples", samples.Samples, samples.samples, "slow", title="Samples"),
    Endpoint("compare", compare.Compare, compare.compare, title="Compare", latents="any"),
    Endpoint("similarity", compare.Similarity, compare.similarity, "slow", latents="any"),
)

ENDPOINTS = {endpoint.name: endpoint for endpoint in _ENDPOINTS}
