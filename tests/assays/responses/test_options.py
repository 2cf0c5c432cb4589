"""Options that count, or name: what cannot be meant is refused by name, whichever assay it is.

In a process of its own, where annotations are not checked: it is how users call them.
"""

import json
import subprocess
import sys

PROGRAM = """
import json, numpy as np, torch, zscope as zs
from zscope import assays as a, sampling as s
from zscope.assays.generation.quality import sample_quality

class World(zs.Autoencoder):
    latents, prior = 2, "normal"
    def encode(self, x, auxiliary=None): return zs.Posterior(x)
    def decode(self, z): return 0.9 * z

model, codes = World(), torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
factors = torch.stack([torch.arange(40) % 4, torch.arange(40) // 4 % 5], 1)
plane = a.response_map(model, codes[0], codes=codes, grid=5)
posterior = zs.Posterior(codes)
calls = [
    (lambda **o: a.response(model, codes, **o), "samples"),
    (lambda **o: a.response_matrix(model, codes, **o), "samples resamples"),
    (lambda **o: a.conditioned_response_matrix(model, codes, factors, **o), "samples resamples"),
    (lambda **o: a.structure_score(model, **o), "samples permutations"),
    (lambda **o: a.independence(codes, **o), "samples permutations"),
    (lambda **o: a.mmd(codes, codes.flip(1), **o), "permutations"),
    (
        lambda **o: a.interventional_consistency(model, codes, **o),
        "interventions samples levels resamples",
    ),
    (lambda **o: a.traversal_responses(model, codes, **o), "steps"),
    (lambda **o: a.holes(model, codes, **o), "samples"),
    (lambda **o: a.hole_score(model, codes, codes, **o), "samples"),
    (lambda **o: a.response_map(model, codes[0], codes=codes, **o), "grid decode_grid"),
    (lambda **o: a.drift(plane, **o), "steps grid trajectories"),
    (
        lambda **o: a.manifold_path(model, codes[0], codes[1], codes=codes, **o),
        "points frames samples neighbours relax",
    ),
    (lambda **o: a.precision_recall(codes, codes, **o), "neighbours"),
    (lambda **o: sample_quality(model, codes, posterior=posterior, **o), "samples neighbours"),
    (lambda **o: s.prior(2, **o), "samples"),
    (lambda **o: s.posterior(posterior, **o), "samples"),
    (lambda **o: s.hybrid(codes, **{"samples": 3, **o}), "samples store"),
    (lambda **o: s.uniform(codes, **o), "samples"),
]
wrong = []
for call, options in calls:
    for option in options.split():
        for value in (8.5, 8.0, "8", True):
            try:
                call(**{option: value})
                wrong.append(f"{option}={value!r} was taken")
            except zs.errors.ConfigError as error:
                if f"{option}={value!r}; expected a whole number" not in str(error):
                    wrong.append(str(error))
            except Exception as error:
                wrong.append(f"{option}={value!r}: {type(error).__name__}: {error}")
        call(**{option: np.int64(8)})
try:
    a.hybridisation(model, codes, on="cause")
except zs.errors.ConfigError as error:
    typo = str(error)
print(json.dumps([typo, sum(len(options.split()) for _, options in calls), wrong]))
"""


def test_a_count_is_a_whole_number_of_any_type_and_a_name_is_a_known_one():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    typo, counted, wrong = json.loads(ran.stdout)
    assert counted == 35
    assert wrong == []
    assert "on='cause'; expected noises or causes" in typo
