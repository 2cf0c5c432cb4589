"""Scores that compare codes with known factors (and, for UDR, models with each other).

All take plain arrays or tensors, `(codes, factors)`, row by row the same observations,
and return a frozen `Score`; `scores.disentanglement_scores` runs them all.

What `flavour="dlib"` (the definitions behind tables since Locatello et al. 2019) changes:

- MIG, MIG-sup, JEMMIG, DCIMIG, modularity: all codes instead of the latents in use, 20
  equal-width bins instead of quantile bins, chance is not taken off;
- DCI: all codes, scikit-learn's gradient boosting instead of LightGBM, every factor as
  classes instead of regression where values have an order;
- SAP: all codes, linear SVM or squared correlation instead of thresholds or a straight line;
- IRS: .99 quantile instead of the maximum, factors in 20 bins instead of as they are;
- explicitness: AUC of classes instead of 2 AUC - 1 or R² (`raw`: AUC or R²);
- FactorVAE score: codes with a standard deviation of .05 or more instead of the latents in
  use, every value held equally often instead of the value of a random row;
- BetaVAE score: all codes as they are instead of the latents in use, scaled;
- UDR: the mean of two means instead of the mean over the codes of both models.

DS (`predictability_gap`) knows `zscope` and `paper`, MCC `linear` and `rank`.
"""
