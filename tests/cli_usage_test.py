"""Usage, help, completion and the sources of options: command line, environment, config file."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

from cli_support import environment
from conftest import SPARKLING

VERBS = ["run", "serve", "logits", "tokenize", "inspect", "doctor", "plan", "bench", "eval", "compare", "completion"]


# ---- usage: exit status 2 with a hint ----



@pytest.mark.parametrize("arguments, expected", [
    (["rum"], "did you mean 'run'?"),
    (["bnech"], "did you mean 'bench'?"),
    (["run", "--temperatur", "0.5", "-p", "x"], "did you mean '--temperature'?"),
    (["run", "--max-token=5", "-p", "x"], "did you mean '--max-tokens'?"),
    (["compare", "--require", "draft=3"], "belongs to: run, serve, logits, doctor, bench, eval"),
    (["run", "--mtp"], "belongs to: logits"),
    (["run", "--backend", "cup", "-p", "x"], "did you mean 'cpu'?"),
    (["run", "--thinking", "maybe"], "expected on or off, found 'maybe'"),
    (["run", "--temperature", "hot"], "--temperature: expected a number from 0 to 100, found 'hot'"),
    (["run", "--seed"], "--seed: expected a value, found none"),
    (["bench", "--format", "tabel"], "did you mean 'table'?"),
    (["inspect", "a", "b"], "found 'b'; a text of several words needs quotes"),
    (["run", "--memory", "12 parsecs"], "expected a size such as"),
    (["run", "--memory", "120%"], "expected a size such as"),
    (["run", "--rope-scaling", "linear:2"], "expected none or yarn:FACTOR"),
    (["run", "--synthetic", "ling-3.0-tiny", "folder"], "expected MODEL or --synthetic, found both"),
    (["run", "-p", "x", "-f", "y"], "expected -p or -f, found both"),
    (["bench", "--synthetic", "ling-3.0-flahs"], "ling-3.0-flash"),
    (["run", "--synthetic", "ling-3.0-tiny", "-p", "x"], "no tokenizer"),
    (["logits", "-o", "x.npy"], "logits needs --tokens"),
    (["logits", "--tokens", "1,2"], "logits needs -o"),
    (["logits", "--tokens", "1,two,3", "-o", "x.npy"], "found 'two' as number 2"),
    (["logits", "--tokens", ",", "-o", "x.npy"], "expected at least one id"),
    (["completion", "fish"], "expected bash or zsh, found 'fish'"),
    (["compare", "--a", "cpu:slow"], "expected exact or fast, found 'slow'"),
    (["logits", "--tokens", "1,,3", "-o", "x.npy"], "found none as number 2"),
    (["logits", "--tokens", ",1", "-o", "x.npy"], "found none as number 1"),
    (["tokenize", "--decode", "1, ,2"], "found none as number 2"),
    (["run", "--hlep"], "did you mean '--help'?"),
    (["run", ".", "more"], "expected no further word for 'run', found 'more'"),
    (["version"], "unknown verb 'version'; verbs: run"),
    (["run", "--require", "moe", "-p", "x"], "--require: expected moe=plain"),
    ([], "expected a verb"),
    (["--frobnicate"], "expected a verb first"),
])  # fmt: skip
def test_wrong_usage_is_refused_with_a_hint(sparkling, arguments, expected):
    done = sparkling(*arguments, status=2)
    assert expected in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("arguments, expected", [
    (["quantize"], "not in this version"),
    (["run", "--moe", "jit", "-p", "x"], "available now: plain or packed"),
    (["run", "--require", "lm-head=int8", "-p", "x"], "expected stored, fp32, bf16, fp8 or mxfp4, found int8"),
    (["run", "--require", "draft=auto", "-p", "x"], "expected draft=0 to draft=7, found draft=auto"),
    (["run", "--draft-head", "32768", "-p", "x"], "expected at most 4096 rows (the vocabulary), found 32768"),
    (["run", "--require", "moe=jit", "-p", "x"], "expected moe=plain or moe=packed, found moe=jit"),
    (["run", "--require", "drift=3", "-p", "x"], "did you mean 'draft'?"),
    (["run", "--device", "1", "-p", "x"], "CUDA"),
])  # fmt: skip
def test_what_is_not_built_yet_is_refused_not_ignored(sparkling, arguments, expected):
    done = sparkling(*arguments, status=2)
    assert expected in done.stderr and done.stderr.count("\n") == 1


def test_a_switch_takes_true_or_false(sparkling):
    for done in (sparkling("run", "-p", "x", "--ignore-eos=maybe", status=2),
                 sparkling("run", "-p", "x", status=2, env={"SPARKLING_QUIET": "x"})):  # fmt: skip
        assert "true or false" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["run", "-p", "x"], ["doctor"], ["doctor", "--warm"], ["bench"],
                                       ["logits", "--tokens", "1,2", "-o", "x.npy"]])  # fmt: skip
def test_cuda_without_a_gpu_exits_3_with_one_sentence(sparkling, arguments):
    if pathlib.Path("/dev/nvidiactl").exists():
        pytest.skip("no GPU is what this is about, and here is one")
    done = sparkling(*arguments, "--backend", "cuda", status=3)
    assert "back end cuda: " in done.stderr and "--backend cpu" in done.stderr and done.stderr.count("\n") == 1


def test_what_this_version_has_is_accepted(sparkling):
    done = sparkling("run", "-p", "x", "--max-tokens", 1, "--moe", "plain", "--lm-head", "stored", "--draft", 0,
                     "--draft-head", 0, "--require", "moe=plain,lm-head=stored,draft=0", "--device", 0,
                     "--precision", "fast")  # fmt: skip
    assert "tok/s" in done.stderr


@pytest.mark.parametrize("options, require, found", [
    ([], "moe=plain", "packed and"),
    ([], "lm-head=stored", "found heads in FP8 by row"),
    (["--precision", "exact"], "moe=packed", "found 0 packed and"),
    (["--draft", 2], "draft=3", "found 2 drafts in a cycle"),
    ([], "draft=3", "--draft auto"),
])  # fmt: skip
def test_a_probe_shows_what_runs_instead_of_what_is_required(sparkling, options, require, found):
    done = sparkling("run", "-p", "x", *options, "--require", require, status=3)
    assert f"expected {require}" in done.stderr and found in done.stderr and done.stderr.count("\n") == 1


def test_all_three_optimisations_are_proven_in_use(sparkling):
    done = sparkling("run", "-p", "x", "--max-tokens", 1, "-v", "--moe", "packed", "--lm-head", "fp8", "--draft", 3,
                     "--draft-head", 1024, "--require", "moe=packed,lm-head=fp8,draft=3")  # fmt: skip
    assert "from a head of 1024 rows in MXFP4" in done.stderr
    assert done.stderr.count(", at most ") == 5 and "FAILED" not in done.stderr  # the known-answer tests


def test_a_broken_list_of_token_counts_is_named(sparkling, checkpoint, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(checkpoint, model)
    for text, where in (("3 9\n3 8\n", "line 2"), ("-1 5\n", "line 1"), ("7\n", "line 1"), ("1 2 3\n", "line 1")):
        (model / "token_counts.txt").write_text(text)
        done = sparkling("bench", model, "--in", 1, "--out", 2, "--draft-head", 8, status=1)
        assert f"token_counts.txt {where}: expected 'id count'" in done.stderr


# ---- help, version, completion ----


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_each_verb(sparkling, verb):
    done = sparkling(verb, "--help")
    assert done.stderr == ""
    assert f"sparkling {verb}" in done.stdout
    flags = set(re.findall(r"--[a-z][a-z-]*", done.stdout.split("Each option")[0]))
    assert len(flags) <= 40, sorted(flags)


def test_help_shows_defaults_and_units(sparkling):
    text = sparkling("run", "--help").stdout
    for part in ["(0.6)", "(0.95)", "12GiB", "tokens", "physical cores", "reasoning is streamed first"]:
        assert part in text


def test_overview_and_version(sparkling):
    overview = sparkling("--help").stdout
    for verb in VERBS:
        assert verb in overview
    version = sparkling("--version").stdout
    for part in ["sparkling ", "commit", "build", "back ends", "reference", "cpu"]:
        assert part in version


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_script_names_verbs_and_options(sparkling, shell):
    script = sparkling("completion", shell).stdout
    assert "complete -o filenames -F _sparkling sparkling" in script
    for part in [*VERBS, "--temperature", "--routes-in", "--help"]:
        assert part in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


# ---- option sources ----


def test_config_file_environment_and_command_line_in_that_order(sparkling, tmp_path):
    config = tmp_path / "sparkling.toml"
    config.write_text("text = \"from the file\"\nmax-tokens = 3\n[tokenize]\nspecial = true\n[bench]\nin = 7\n")
    ids = {name: sparkling("tokenize", "--text", f"from the {name}").stdout
           for name in ["file", "environment", "command line"]}  # fmt: skip
    assert len(set(ids.values())) == 3
    given = ["tokenize", "--config", config]
    assert sparkling(*given).stdout == ids["file"]
    variables = environment(SPARKLING_TEXT="from the environment")
    assert sparkling(*given, env=variables).stdout == ids["environment"]
    assert sparkling(*given, "--text", "from the command line", env=variables).stdout == ids["command line"]
    # the file itself can be named by the environment
    assert sparkling("tokenize", env=environment(SPARKLING_CONFIG=str(config))).stdout == ids["file"]


def test_config_file_sections_lists_and_flags(ask, tmp_path):
    config = tmp_path / "c.ini"
    config.write_text("temperature = 0\n[run]\nmax-tokens = 4\nignore-eos = true\nstop = [\"zzzz\", \"yyyy\"]\n")
    answer = ask("-p", "Hi", "--config", config)
    assert answer["usage"]["completion_tokens"] == 4
    assert ask("-p", "Hi", "--config", config, "--max-tokens", 2)["usage"]["completion_tokens"] == 2


def test_config_values_are_taken_whole(sparkling, tmp_path):
    """A blank, a comma or a # inside a text belongs to it."""
    config = tmp_path / "c.ini"
    for value, text in [("one two", "one two"), ("1,2,3", "1,2,3"), ('"a # b"', "a # b"), ("a # b", "a")]:
        config.write_text(f"text = {value}\n")
        assert sparkling("tokenize", "--config", config).stdout == sparkling("tokenize", "--text", text).stdout


@pytest.mark.parametrize("text, status, expected", [
    ("temperatur = 1\n", 2, "unknown option 'temperatur'; did you mean 'temperature'?"),
    ("[runn]\ntemperature = 1\n", 2, "unknown section [runn]; did you mean 'run'?"),
    ("temperature = \"hot\"\n", 2, "found 'hot'"),
    (None, 1, "No such file"),
    ("temperature 1\n", 1, "line 1: expected '=' after 'temperature', found '1'"),
    ("\0\1\2", 1, "expected a [section] or 'option = value'"),
    ("[bench]\nnonsense = 1\n", 2, "unknown option 'nonsense'"),
    ("[bench]\nin = lots\n", 2, "found 'lots'"),
    ("top-k = [1, 2]\n", 2, "expected one value, found a list of 2"),
    ("seed = 1\nseed = 2\n", 2, "seed: expected once"),
])  # fmt: skip
def test_bad_config_files_name_the_file(sparkling, tmp_path, text, status, expected):
    config = tmp_path / "bad.toml"
    if text is not None:
        config.write_text(text)
    done = sparkling("run", "-p", "x", "--config", config, status=status)
    assert expected in done.stderr and "bad.toml" in done.stderr


def test_environment_values_are_checked_and_slips_are_named(sparkling):
    done = sparkling("run", "-p", "x", env=environment(SPARKLING_TOP_K="many"), status=2)
    assert "--top-k (or SPARKLING_TOP_K): expected a whole number" in done.stderr
    done = sparkling("tokenize", "--text", "x", env=environment(SPARKLING_TEMPERTURE="0"))
    assert "did you mean SPARKLING_TEMPERATURE?" in done.stderr


def test_model_from_the_environment(sparkling, checkpoint):
    done = sparkling("inspect", "--json", env=environment(SPARKLING_MODEL=str(checkpoint)))
    assert json.loads(done.stdout)["config"]["hidden_size"] == 64
    done = sparkling("inspect", env=environment(SPARKLING_MODEL="/nowhere"), status=1)
    assert "/nowhere (from SPARKLING_MODEL)" in done.stderr


@pytest.mark.parametrize("arguments, expected", [
    (["--host", ""], "--host: expected an address, found nothing"),
    (["--host", "local\nhost"], "found the byte \\x0a"),
    (["--api-key", "a\r\nb"], "--api-key: expected an API key of visible ASCII characters, found the byte \\x0d"),
    (["--api-key", "a b"], "found a blank"),
    (["--api-key", "schl\u00fcssel"], "found the byte \\xc3"),
    (["--cors", "https://a\nb"], "found the byte \\x0a"),
    (["--cors", "https://example.org/"], "expected an origin such as"),
    (["--cors", "://"], "expected an origin such as"),
    (["--model-name", ""], "expected a name, found nothing"),
    (["--model-name", "a\x1b[2Jb"], "found 'a\\x1b[2Jb'"),
    (["--model-name", b"\xff\xfe"], "found '\\xff\\xfe'"),
])  # fmt: skip
def test_what_serve_shows_others_holds_no_control_bytes(sparkling, arguments, expected):
    done = subprocess.run([SPARKLING, "serve", *arguments], capture_output=True, check=False)
    assert done.returncode == 2 and expected in done.stderr.decode() and done.stdout == b""


def test_a_key_file_is_checked_like_a_key(sparkling, tmp_path):
    file = tmp_path / "key"
    for content, expected in [(b"\n", "expected an API key, found nothing"), (b"a\0b\n", "found the byte \\x00"),
                              (b"one\ntwo\n", "found the byte \\x0a")]:  # fmt: skip
        file.write_bytes(content)
        done = sparkling("serve", "--api-key-file", file, status=1)
        assert str(file) in done.stderr and expected in done.stderr


@pytest.mark.parametrize("option, most", [("--draft", 7), ("--draft-head", 1048576)])
@pytest.mark.parametrize("value", ["AUTO", "-1", "1.5", "", "99999999"])
def test_what_may_be_auto_says_so(sparkling, option, most, value):
    done = sparkling("run", "-p", "x", option, value, status=2)
    assert f"{option}: expected auto or a whole number from 0 to {most}, found '{value}'" in done.stderr
