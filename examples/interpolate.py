"""A path from one observation to another that stays on the data manifold.

A straight line between two codes may cross a hole, where decoded observations resemble no data.
The path goes around it, and says how far it gets from the codes of data.
"""

import zscope as zs

data = zs.data.load("helix")  # two strands that wind around each other
model = zs.models.build("ae", shape=data.shape, latents=2, hidden=(32, 32))
zs.train(model, data, steps=1000, rate=5e-3, progress=False)
recording = zs.record(model, data)
codes = recording.codes

position, strand = data.factors.T
start = (abs(position + 0.8) + strand).argmin()  # near one end of the first strand,
end = (abs(position - 0.8) + strand).argmin()  # and near the other
plane = zs.assays.response_map(recording, grid=60)
path = zs.assays.manifold_path(plane, codes[start], codes[end])
for name, far in (
    ("straight line", path.straight_code_distance),
    ("manifold path", path.code_distance),
):
    print(f"{name}: up to {far.max():.2f} times the spacing of codes away from them")
path.plot().savefig("interpolate.png")
