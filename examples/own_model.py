"""Your own model in ten lines: two callables, some data, one report."""

import torch

import zscope as zs

generator = torch.Generator().manual_seed(0)
a, b = torch.randn(500, 3, generator=generator), torch.randn(3, 8, generator=generator)
x = a @ b  # your data
basis = torch.linalg.svd(x, full_matrices=False).Vh[:5]  # your model: any two functions or
encoder, decoder = (lambda x: x @ basis.T), (lambda z: z @ basis)  # modules; this has 5 latents

report = zs.assay((encoder, decoder), x, names=["response-matrix", "holes", "effective-rank"])
print(report)
report.save("report.html")
