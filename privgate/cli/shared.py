"""Options that several commands take, said once; light, because the verifier has them too."""

import click

tracking_uri = click.option(
    "--tracking-uri", default=None, help="MLflow server or store; MLFLOW_TRACKING_URI if absent."
)
jobs = click.option("--jobs", type=click.IntRange(min=1), default=None, help="Worker processes; all cores if absent.")
ledger = click.option("--ledger", default=None, metavar="FOLDER|URL", help="Where results are remembered.")
quiet = click.option("--quiet", is_flag=True, help="No progress on stderr.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
