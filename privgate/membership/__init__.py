"""The second question: can an attacker tell who was in the training data."""

#: attacks on classifiers by name, as policies have them, and where each stands; the strongest first
ATTACKS = {
    "lira_online": "lira:LiraOnline",
    "lira_neighbours": "neighbours:LiraNeighbours",
    "lira_beside": "neighbours:LiraBeside",
    "lira_labels": "neighbours:LiraLabels",
    "rmia": "rmia:Rmia",
    "lira_offline": "lira:LiraOffline",
    "rmia_offline": "rmia:RmiaOffline",
    "long_distance": "long_distance:LongDistance",
    "long_frequency": "long_frequency:LongFrequency",
    "long_untargeted": "long_untargeted:LongUntargeted",
    "shokri": "shokri:Shokri",
    "quantile": "quantile:Quantile",
    "yeom_threshold_known": "yeom_threshold:YeomThresholdKnown",
    "yeom_threshold": "yeom_threshold:YeomThreshold",
    "yeom_loss": "yeom_loss:YeomLoss",
    "label_gap": "label_gap:LabelGap",
}
#: every attack by name, those on regressors too: judging knows no more of them
NAMES = (
    *ATTACKS, "residual_lira", "residual_neighbours", "residual_beside", "rmia_on_squared_error", "error_densities",
    "error_threshold", "squared_loss",
)  # fmt: skip
