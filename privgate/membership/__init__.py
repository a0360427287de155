"""The second question: can an attacker tell who was in the training data."""

#: attacks on classifiers by name, as policies have them, and where each stands; the strongest first
ATTACKS = {
    "lira_online": "lira:LiraOnline",
    "lira_neighbours": "lira:LiraNeighbours",
    "lira_beside": "lira:LiraBeside",
    "lira_labels": "lira:LiraLabels",
    "rmia": "rmia:Rmia",
    "lira_offline": "lira:LiraOffline",
    "rmia_offline": "rmia:RmiaOffline",
    "long_distance": "long:LongDistance",
    "long_frequency": "long:LongFrequency",
    "long_untargeted": "long:LongUntargeted",
    "shokri": "shokri:Shokri",
    "quantile": "quantile:Quantile",
    "yeom_threshold_known": "yeom:YeomThresholdKnown",
    "yeom_threshold": "yeom:YeomThreshold",
    "yeom_loss": "yeom:YeomLoss",
    "label_gap": "yeom:LabelGap",
}
#: every attack by name, those on regressors too: judging knows no more of them
NAMES = (
    *ATTACKS, "residual_lira", "residual_neighbours", "residual_beside", "rmia_on_squared_error", "error_densities",
    "error_threshold", "squared_loss",
)  # fmt: skip
