"""What zscope answers, and which function of another library answers it too.

    python benchmarks/against/answers.py

Prints the table of the README. Each name is imported in the environment of its library (made on
first use under .bench/), and each assay looked up in the catalogue: a name that does not exist is
an error. Libraries are compared at the versions in benchmarks/ratios.py; an empty cell means that
none of these four answers the question, which says nothing about others.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ratios import PEERS, command, peer

LATENTVERSE = "latentverse.evaluations"
ANSWERS: dict[str, tuple[str, dict[str, str]]] = {
    "Which latents are used, which are noise?": ("variable-types", {}),
    "Which latents depend on which?": ("response-matrix", {}),
    "How much of the prior falls into holes?": ("holes", {}),
    "Does a change to one latent survive?": ("interventional-consistency", {}),
    "Which path between two codes stays on data?": (
        "manifold-path",
        {"stochman": "stochman.discretized_manifold:DiscretizedManifold"},
    ),
    "How many latents are needed?": ("intrinsic-dimension", {"scikit-dimension": "skdim.id:MLE"}),
    "How disentangled are the codes?": (
        "mig", {"latentverse": f"{LATENTVERSE}.disentanglement:run_disentanglement"},
    ),
    "Are the latents the principal axes of the data?": ("codes-against-pca", {}),
    "How do two models compare, layer by layer?": ("similarity-heatmap", {}),
    "Are latent maps ready for diffusion?": ("latent-spectrum", {}),
    "Do codes cluster by label?": ("", {"latentverse": f"{LATENTVERSE}.clustering:run_clustering"}),
    "Samplers fitted to the codes": ("", {"pythae": "pythae.samplers:MAFSampler"}),
}  # fmt: skip


def check(library: str, name: str) -> None:
    """Import a name in the environment of its library."""
    module, _, attribute = name.partition(":")
    code = f"from operator import attrgetter as a; import {module} as m; a({attribute!r})(m)"
    command(peer(library), "-W", "ignore", "-c", code)


def table() -> str:
    lines = ["| question | zscope | elsewhere |", "| --- | --- | --- |"]
    for question, (assay, others) in ANSWERS.items():
        places = [f"{library}: `{name.rpartition(':')[2]}`" for library, name in others.items()]
        ours = f"`{assay}`" if assay else "no"
        lines.append(f"| {question} | {ours} | {', '.join(places)} |")
    return "\n".join(lines)


def main() -> int:
    import zscope as zs

    for assay, others in ANSWERS.values():
        if assay and assay not in zs.assays.CATALOGUE:
            raise SystemExit(f"answers: there is no assay {assay}")
        for library, name in others.items():
            check(library, name)
    versions = ", ".join(packages[-1].replace("==", " ") for packages in PEERS.values())
    print(f"{table()}\n\n{versions}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
