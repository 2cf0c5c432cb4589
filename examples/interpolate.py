"""From one observation to another without leaving the data: a path on the manifold.

A straight line between two codes may cross a hole, where the decoder makes up things it has
never seen. The path takes the way around; its cost says how far off the data it is.
"""

import zscope as zs

data = zs.data.load("helix")  # two strands that wind around each other
model = zs.models.build("ae", shape=data.shape, latents=2, hidden=(32, 32))
zs.train(model, data, steps=1000, rate=5e-3, progress=False)
codes = zs.record(model, data).codes

along, strand = data.factors.T
start = (abs(along + 0.8) + strand).argmin()  # near one end of the first strand,
end = (abs(along - 0.8) + strand).argmin()  # and near the other
plane = zs.assays.response_map(model, codes[0], (0, 1), codes=codes, grid=60)
path = zs.assays.manifold_path(plane, codes[start], codes[end])
print(f"straight line: length {path.straight_length:.2f}, cost {path.straight_cost:.4f}")
print(f"manifold path: length {path.length:.2f}, cost {path.cost:.4f}")
path.plot().savefig("interpolate.png")
