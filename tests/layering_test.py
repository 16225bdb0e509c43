"""tools/layering.py finds each kind of violation, and the real tree has none."""

import pytest

from conftest import ROOT, run_tool, write_source as write


def run(root):
    return run_tool("layering.py", root)


def test_the_tree_keeps_the_rules():
    status, output = run(ROOT)
    assert status == 0, output


def test_good_examples_pass(tmp_path):
    write(tmp_path, "src/base/log.cc", '#include "base/log.h"\n\n#include <spdlog/spdlog.h>\n#include <cstdio>\n')
    write(tmp_path, "src/base/file.cc", "#include <sys/mman.h>\n#include <fcntl.h>\n")
    write(tmp_path, "src/backend/cpu/cpu.cc", '#include "backend/backend.h"\n#include "formats/quant.h"\n'
                                              "#include <immintrin.h>\n")
    write(tmp_path, "src/kernels/kda.cuh", '#include "kernels/common.cuh"\n')
    write(tmp_path, "src/cli/run.cc", "#include <histedit.h>\n#include <nlohmann/json.hpp>\n"
                                      '#include "model/model.h"\n')
    status, output = run(tmp_path)
    assert status == 0, output
    assert "0 complaints" in output


@pytest.mark.parametrize("name, text, line, words", [
    ("src/base/file.cc", '#include "formats/quant.h"\n', 1, "layer base may not include"),
    ("src/formats/quant.cc", '\n#include "backend/layout.h"\n', 2, "layer formats may not include"),
    ("src/text/chat.cc", '#include "engine/engine.h"\n', 1, "layer text may not include"),
    ("src/backend/sampler.cc", '#include "model/config.h"\n', 1, "layer backend may not include"),
    ("src/backend/reference.cc", '#include "formats/checkpoint.h"\n', 1, "layer backend may not include"),
    ("src/backend/reference.cc", '#include "backend/cpu/cpu.h"\n', 1, "layer backend may not include"),
    ("src/backend/cpu/cpu.cc", '#include "backend/cuda/driver.h"\n', 1, "layer backend/cpu may not include"),
    ("src/model/forward.cc", '#include "backend/cpu/cpu_kernels.h"\n', 1, "layer model may not include"),
    ("src/model/model.cc", '#include "text/tokenizer.h"\n', 1, "layer model may not include"),
    ("src/engine/engine.cc", '#include "server/server.h"\n', 1, "layer engine may not include"),
    ("src/server/http.cc", '#include "model/model.h"\n', 1, "layer server may not include"),
    ("src/cli/bench.cc", '#include "backend/cpu/cpu.h"\n', 1, "layer cli may not include"),
    ("src/kernels/kda.cuh", "#include <cuda_fp16.h>\n", 1, "a kernel may not include"),
    ("src/kernels/kda.cuh", '#include "base/types.h"\n', 1, "layer kernels may not include"),
    ("src/odd/odd.h", "#include <vector>\n", 1, "is in no layer"),
    ("src/cli/run.cc", "#  include <CLI/CLI.hpp>\n", 1, "only by cli/options"),
    ("src/model/model.cc", "#include <spdlog/spdlog.h>\n", 1, "only by base/log"),
    ("src/base/error.cc", "#include <fmt/core.h>\n", 1, "only by base/log"),
    ("src/model/config.h", "#include <nlohmann/json.hpp>\n", 1, "<nlohmann/json.hpp> may be included only"),
    ("src/base/file.cc", "#include <pcre2.h>\n", 1, "<pcre2.h> may be included only"),
    ("src/text/tokenizer.h", "#include <utf8proc.h>\n", 1, "<utf8proc.h> may be included only"),
    ("src/engine/engine.cc", "#include <editline/readline.h>\n", 1, "<editline/readline.h> may be included only"),
    ("src/backend/cuda/device.cc", "#include <cuda.h>\n", 1, "<cuda.h> may be included only"),
    ("src/base/file.cc", "#include <boost/any.hpp>\n", 1, "neither standard"),
    ("src/model/model.cc", '#include "model/forward.cc"\n', 1, "source file"),
    ("tests/model_test.cc", '#include "model/forward.cc"\n', 1, "test the unit"),
    ("src/base/types.h", "int a;\nint b; // \u00b5s\n", 2, "U+00B5"),
    ("src/base/types.h", "\tint a;\n", 1, "U+0009"),
    ("src/base/types.h", "int a; \n", 1, "trailing white space"),
    ("src/base/types.h", "int a;", 1, "no newline"),
    ("src/base/types.h", "\n" * 1001, 1001, "the limit is 1000"),
    ("src/kernels/kda.cuh", "\n" * 1201, 1201, "the limit is 1200"),
])
def test_bad_examples_are_found(tmp_path, name, text, line, words):
    write(tmp_path, name, text)
    status, output = run(tmp_path)
    assert status == 1
    complaints = [each for each in output.splitlines() if each.startswith(f"{name}:{line}: ")]
    if name.startswith("tests/"):  # then src is empty, which is a complaint of its own
        assert "no sources" in output
    assert len(complaints) == 1 and words in complaints[0], output


def test_limits_are_inclusive(tmp_path):
    write(tmp_path, "src/base/types.h", "\n" * 1000)
    write(tmp_path, "src/kernels/kda.cuh", "\n" * 1200)
    status, output = run(tmp_path)
    assert status == 0, output


def test_an_empty_tree_is_an_error(tmp_path):
    assert run(tmp_path)[0] == 1
