"""PCA as an autoencoder: the simplest model, measured like any other."""

from sklearn.decomposition import PCA

import zscope as zs

digits = zs.data.load("digits")
x = digits.images.reshape(len(digits), -1) / 255

report = zs.assay(PCA(8).fit(x), digits, names=["response-matrix", "holes", "mig", "explicitness"])
print(report)
print(f"The components explain {report.explained:.0%} of the variance of the digits.")
report.save("report.html")
