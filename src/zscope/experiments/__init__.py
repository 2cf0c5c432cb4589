"""What trains and measures: comparison, sizing, perturbation, and the studies of papers."""
