"""Latents with channels and places: is this latent space ready for diffusion?

    python examples/diffusion_latents.py                      a small VAE, trained here for a moment
    python examples/diffusion_latents.py VAE PICTURES         a folder of diffusers, and pictures

Prints the checks and the lines for the config.json of the autoencoder, shows what is left of a
picture without its most important channel, and writes the page.
"""

import sys

import zscope as zs

if len(sys.argv) > 2:
    model, pictures = zs.load(sys.argv[1]), zs.data.load(sys.argv[2])
else:
    pictures = zs.data.load("rooms", resolution=32, pictures=1000)
    model = zs.models.build_for("spatial-vae", pictures, channels=4)  # latents of 4 x 8 x 8
    model = zs.train(model, pictures, steps=100, batch=32, rate=2e-3, progress=False).model

recording = zs.record(model, pictures, samples=500)
report = zs.assay(recording, names=["diffusion", "variable-types", "response-matrix"])
print(report.card)

importance = report.results["unit-importance"]
best = int(importance.importance.argmax())
print(f"Channel {best} matters most: without it {importance.importance[best]:.0%} is lost.")

others = [channel for channel in range(recording.layout.channels) if channel != best]
pruned = zs.prune(recording.autoencoder, units=others, fill=recording.codes.mean(0))
quality = zs.assays.reconstruction_quality(zs.record(pruned, pictures, samples=500))
print(f"PSNR {report.results['reconstruction-quality'].score:.1f} dB, without: {quality.score:.1f}")
report.save("report.html")
