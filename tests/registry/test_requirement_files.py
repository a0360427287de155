"""From where a model's requirements may be installed: a table of lines, and one refusal by the gate itself."""

import pytest

from privgate.registry.mlmodel import VARIABLE, check_requirements

MLMODEL = "flavors:\n  python_function:\n    env: {conda: conda.yaml, virtualenv: python_env.yaml}\n"
LISTED = "https://packages.example.org/simple git+https://git.example.org/team"
#: lines of requirements.txt that pass, that pass where ``LISTED`` is, and that pass nowhere
USUAL = [
    *("numpy==2.1.0 --hash=sha256:00", "torch==2.13.0+cpu ; python_version >= '3.11'"),
    *("ray[serve] >= 2, \\\n  < 3  # comment", "--index-url https://pypi.org/simple", "--pre", "-c constraints.txt"),
    *("# -*- coding: utf-8 -*-", "--only-binary :all:"),
]
WHERE_LISTED = [
    *("-i https://packages.example.org/simple", "--index-url=https://packages.example.org/simple/"),
    *("git+https://git.example.org/team/name@v1", "-e git+https://git.example.org/team/name"),
]
NEVER = [
    "--index-url https://packages.example.org.evil.net/simple",
    *("--extra-index-url https://packages.example.org/simple/../other", "--extra-index-url ${INDEX}"),
    *("--trusted-host packages.example.org", "--find-links https://evil.net", "-fhttps://evil.net"),
    *("name @ https://evil.net/name-1.tar.gz", "-e .", "../name", "./name-1.tar.gz", "-r other.txt"),
    *("--pre --extra-index-url https://evil.net/simple", "# -*- coding: utf-7 -*-", "own @ file:/tmp/own.whl"),
    *("-i https://pypi.org/simple/ --extra-index-url https://evil.net/simple", "#\x0b\x0b#coding: utf-7"),
    "# ends here \\\n--index-url https://evil.net/simple",
]
LINES = [*((line, True, True) for line in USUAL), *((line, False, True) for line in WHERE_LISTED)]
LINES += [(line, False, False) for line in NEVER]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "MLmodel").write_text(MLMODEL)
    return tmp_path


@pytest.mark.parametrize(("line", "unlisted", "listed"), LINES)
def test_a_line_passes_only_where_it_names_a_usual_or_a_listed_place(folder, monkeypatch, line, unlisted, listed):
    (folder / "requirements.txt").write_text(f"{line}\nnumpy\n")
    assert check_requirements(folder).outcome == ("passed" if unlisted else "failed")

    monkeypatch.setenv(VARIABLE, LISTED)
    assert check_requirements(folder).outcome == ("passed" if listed else "failed")


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("conda.yaml", "channels: [conda-forge]\ndependencies:\n- python=3.11\n- pip: [numpy]\n", ""),
        ("conda.yaml", "channels:\n- defaults\n- evil\ndependencies: [python]\n", "conda.yaml: channel 'evil'"),
        ("conda.yaml", "dependencies:\n- evil::python\n", "conda.yaml: channel 'evil'"),
        ("conda.yaml", "dependencies:\n- pip:\n  - --index-url https://evil.net\n", "conda.yaml: "),
        ("python_env.yaml", "python: 3.11.7\ndependencies: [-r requirements.txt]\nbuild_dependencies: [pip==24]\n", ""),
        ("python_env.yaml", "python: 3.11.7\nbuild_dependencies:\n- git+https://e.net\n", "python_env.yaml: "),
        ("uv.lock", 'source = { registry = "https://evil.net/simple" }\n', "uv.lock: "),
        ("uv.lock", 'source = { registry = "https://pypi.org/simple" }\n', ""),
        ("conda.yaml", "dependencies: [", "cannot be read"),
        ("conda.yaml", "- a\n", "cannot be read"),
        ("conda.yaml", "variables: {PIP_INDEX_URL: x}\n", "conda.yaml: --variables"),
        ("conda.yaml", "dependencies: ['numpy[channel=evil]']\n", "conda.yaml: channel"),
        ("conda.yaml", "channels: [https://repo.anaconda.com/pkgs/main]\n", ""),
        ("python_env.yaml", "dependencies: [--index-url=https://evil.net]\n", "python_env.yaml: "),
        ("MLmodel", "flavors: {}\n", ""),
        ("MLmodel", "", "cannot be read"),
        ("MLmodel", "flavors: {python_function: {env: {conda: own/conda.yaml}}}\n", "in a folder of its own"),
        ("uv.lock", 'revision = 3\nsource = {editable = "."}\no = { git = "https://evil.net" }\n', "uv.lock: "),
        ("pyproject.toml", '[project.urls]\nurl = "https://evil.net"\n', ""),
        ("pyproject.toml", '[project]\ndescription = "ask me @ home/x"\n', ""),
        ("pyproject.toml", '[project]\ndependencies = ["--index-url https://evil.net"]\n', "pyproject.toml: "),
        ("pyproject.toml", '[project]\ndependencies = ["x @ https://evil.net/x"]\n', "pyproject.toml: "),
        ("pyproject.toml", '[[tool.uv.index]]\nurl = "https://evil.net"\n', "pyproject.toml: "),
    ],
)  # fmt: skip
def test_every_file_that_is_read_when_a_model_is_served_is_looked_at(folder, file, text, says):
    (folder / "requirements.txt").write_text("numpy\n")
    (folder / file).write_text(text)
    answer = check_requirements(folder)

    assert (answer.outcome == "failed") is bool(says)
    assert says in answer.message
