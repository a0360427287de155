"""The documentation quotes what benches measured."""

from tests.bench import results_table


def test_the_documentation_quotes_the_ranges_that_were_measured():
    measured, said = results_table.RESULTS.read_text(), results_table.QUOTED.read_text()
    lines = said.partition(results_table.MARKS[0])[2].partition(results_table.MARKS[1])[0].strip().splitlines()
    assert len(lines) > 4
    assert all(line in measured for line in lines)
