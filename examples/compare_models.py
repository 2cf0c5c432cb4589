"""Do two models that differ only in their seed learn the same codes and the same layers?"""

import zscope as zs

data = zs.data.load("digits")
models = []
for seed in (0, 1):
    model = zs.models.build("vae", shape=data.shape, latents=4, backbone="mlp", seed=seed)
    models.append(zs.train(model, data, steps=200, rate=3e-3, seed=seed, progress=False).model)

first, second = (zs.record(model, data, samples=1000) for model in models)
layers = [zs.assays.activations(each.autoencoder, each.observations) for each in (first, second)]
heatmap = zs.assays.similarity_heatmap(*layers)
print(f"codes: CKA {zs.assays.cka(first, second).score:.2f}, ", end="")
print(f"Procrustes {zs.assays.procrustes(first, second).score:.2f}")
for name, value in heatmap.summary():
    print(f"{name}: {value}")
heatmap.plot().get_figure().savefig("compare_models.png")
