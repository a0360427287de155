"""A check as MLflow and the command line run it: what they state beside the verdict, and MLflow's evaluator."""
