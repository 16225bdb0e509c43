"""The documents name tests; a test that was renamed or dropped must not go on vouching for a fault."""

import re

import pytest
from conftest import ROOT

CPP = {f"{suite}.{name}" for path in (ROOT / "tests").rglob("*.cc")
       for suite, name in re.findall(r"^(?:TEST|TEST_P|TEST_F|RC_GTEST_PROP)\((\w+),\s*(\w+)", path.read_text(encoding="utf-8"), re.M)}  # fmt: skip
SUITES = {name.split(".")[0] for name in CPP}
PYTHON = {path.stem: set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)) for path in (ROOT / "tests").rglob("*.py")}


def missing(text):
    """Names of tests in backquotes that nothing defines; `.Name` and `test_name` go on with the suite or file named before."""
    gone, suite, file, ended = [], None, None, 0
    for found in re.finditer(r"`([^`\s]+)`", text):
        name = found[1]
        if "\n" in text[ended : found.start()]:
            suite = file = None
        ended = found.end()
        if re.fullmatch(r"\.[A-Z]\w+", name) and suite:
            name = suite + name
        if full := re.fullmatch(r"([A-Z]\w+)\.([A-Z]\w+|\*)", name):
            suite = full[1]
            known = suite in SUITES if full[2] == "*" else name in CPP
        elif full := re.fullmatch(r"(\w+)::(test_\w+)", name):
            file = full[1]
            known = full[2] in PYTHON.get(file, ())
        elif re.fullmatch(r"test_\w+", name) and file:
            known = name in PYTHON.get(file, ())
        else:
            continue
        if not known:
            gone.append(name)
    return gone


def test_a_name_that_is_gone_is_seen():
    some = sorted(CPP)[0]
    assert missing(f"`{some}`, `.Gone`") == [f"{some.split('.')[0]}.Gone"]
    assert missing("`Nowhere.Is`, `docs_test::test_gone` and `test_away`") == ["Nowhere.Is", "docs_test::test_gone", "test_away"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_every_named_test_exists(path):
    assert missing(path.read_text(encoding="utf-8").replace("`Suite.Name`", "").replace("`file::name`", "")) == []


def test_every_word_that_selects_tests_of_the_server_selects_some():
    """A renamed test would silently leave the short forms that the sanitizers run."""
    script = (ROOT / "tools" / "server_sanitized.sh").read_text(encoding="utf-8")
    files = re.findall(r"tests/(\w+)\.py", script)
    names = [f"{file} {test}" for file in files for test in PYTHON[file]]
    selections = re.findall(r'select="([^"]+)"', script)
    assert len(selections) == 2 and len(files) >= 4
    for word in {word for selection in selections for word in selection.split() if word not in ("not", "and", "or")}:
        assert any(word in name for name in names), word


def commands(text):
    """(line, words) of each command of the program that a page shows: in backquotes, or a line of a block."""
    for number, line in enumerate(text.splitlines(), 1):
        for shown in re.findall(r"`((?:build/)?sparkling(?: [^`]*)?)`", line) + re.findall(r"^    ((?:build/)?sparkling(?: .*)?)$", line):
            yield number, shown.split(" #")[0].split()[1:]


def wrong_commands(text, sparkling):
    """Complaints about commands that name no verb of the program, or options that the verb does not have."""
    overview, helps, wrong = sparkling("--help").stdout, {}, []
    for number, words in commands(text):
        if not words:
            wrong.append(f"line {number}: a command without a verb")
            continue
        verb = words[0]
        if verb == "VERB" or verb.startswith("--"):
            continue
        if not re.search(rf"^  {re.escape(verb)} ", overview, re.M):
            wrong.append(f"line {number}: no verb {verb}")
            continue
        if verb not in helps:
            helps[verb] = sparkling(verb, "--help").stdout
        known = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", helps[verb]))
        wrong += [f"line {number}: {verb} has no {word}" for word in words if re.fullmatch(r"--?[A-Za-z][\w-]*", word) and word not in known]
    return wrong


def test_a_command_that_is_gone_is_seen(sparkling):
    page = "x `sparkling run --draft 3` y\n    build/sparkling            # chat\n    sparkling rum -p x\n    sparkling run --drat 3\n"
    assert wrong_commands(page, sparkling) == ["line 2: a command without a verb", "line 3: no verb rum", "line 4: run has no --drat"]


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name)
def test_every_command_shown_exists(path, sparkling):
    text = path.read_text(encoding="utf-8").replace("`sparkling`", "")  # the name of the program
    assert wrong_commands(text, sparkling) == []
