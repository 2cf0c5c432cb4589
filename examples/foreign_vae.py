"""A VAE that somebody else trained on MNIST: is its latent space healthy?

    python foreign_vae.py vae-mnist.safetensors FOLDER_OF_DATASETS

`burgess.py` is their network; FOLDER_OF_DATASETS contains mnist/ with the publisher's files.
"""

import sys

from burgess import VAE

import zscope as zs

weights, root = sys.argv[1:3]
model = zs.load(VAE, weights=weights)
digits = zs.data.load("mnist", root=root, part="test", resolution=32)
names = ["response-matrix", "variable-types", "latent-divergence"]  # leave out for all assays
report = zs.assay(model, digits, names=names, samples=400)
print(report)
report.save("report.html")
