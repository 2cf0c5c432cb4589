"""Scores that compare codes with known factors (and, for UDR, models with each other).

Each takes a recording, or arrays `(codes, factors)` with a row for each observation, and
returns a frozen `Score`. To compute all of them:

    zs.assay(recording, names=["disentanglement"])
    zscope score codes.csv factors.csv

`flavour="dlib"` (the definitions of most published tables since Locatello et al. 2019) differs
from the default in this:

- MIG, MIG-sup, JEMMIG, DCIMIG, modularity: all latents instead of those in use, 20
  equal-width bins instead of quantile bins, chance is not subtracted;
- DCI: all latents, scikit-learn's gradient boosting instead of LightGBM, classification of
  every factor instead of regression where values have an order;
- SAP: all latents, linear SVM or squared correlation instead of thresholds or a straight line;
- IRS: .99 quantile instead of the maximum, every factor in 20 bins instead of continuous ones
  only;
- explicitness: AUC of classes instead of 2 AUC - 1 or R² (`raw`: AUC or R²);
- FactorVAE score: latents with a standard deviation of .05 or more instead of those in use,
  every value fixed equally often instead of the value of a random row;
- BetaVAE score: all latents, unscaled, instead of those in use, scaled;
- UDR: the mean of two means instead of the mean over the latents of both models.

DS (`predictability_gap`) has the flavours `zscope` and `paper`, MCC `linear` and `rank`.
"""

__all__: list[str] = []
