"""The second question: can an attacker tell who was in the training data."""

#: attacks by name, as policies have them: judging knows no more of them
NAMES = (
    "lira_online", "lira_neighbours", "lira_beside", "rmia", "lira_offline", "rmia_offline", "long_distance",
    "long_frequency", "long_untargeted", "shokri", "quantile", "yeom_threshold_known", "yeom_threshold", "yeom_loss",
    "label_gap", "residual_lira", "residual_neighbours", "residual_beside", "rmia_on_squared_error", "error_densities",
    "error_threshold", "squared_loss",
)  # fmt: skip
