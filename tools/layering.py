"""Checks the include rules between the layers of src/ and the shape of the source files.

    tools/layering.py [ROOT]

Reads #include lines against the table below: which layer may include which of our headers, and in which few files a
third-party header may appear. Besides: kernels include only kernels, nobody includes a .cc file, sources are ASCII
without tabs or trailing white space, files stay below their length limit. Prints file:line: message, and the median
length; exit 1 when anything is wrong. That headers compile alone is the CMake target spk_headers.
"""

import pathlib
import re
import statistics
import sys

SEAM = r"backend/(backend|layout|lm_head|sampler|taps|upload)\.h"

# What stands above the seam knows the seam only; the decorators beside it (compare, trace) are for who
# opens a back end.
# Layer (folder below src) -> pattern of our headers that it may include. The first folder that matches counts.
LAYERS = {
    "base": r"base/.*",
    "formats": r"(base|formats)/.*",
    "text": r"(base|text)/.*",
    "backend/cpu": rf"base/.*|formats/quant\.h|{SEAM}|backend/cpu/.*",
    # device_tools.h: declared beside the seam, because the command line may not look into backend/cuda. args.cuh: what host
    # and kernels must agree on, once.
    "backend/cuda": rf"base/.*|formats/quant\.h|{SEAM}|backend/device_tools\.h|backend/cuda/.*|kernels/(resident_)?args\.cuh",
    "backend": r"base/.*|formats/quant\.h|backend/\w+\.h",
    "kernels": r"kernels/.*\.cuh",
    "model": rf"(base|formats|model)/.*|{SEAM}",
    "engine": r"(base|text|model|engine)/.*|formats/checkpoint\.h|backend/\w+\.h",
    "measure": r"(base|formats|text|model|engine|measure)/.*|backend/\w+\.h",
    "server": r"(base|text|server)/.*|engine/(engine|jobs)\.h",
    "cli": r"(base|formats|text|model|engine|measure|server|cli)/.*|backend/\w+\.h",
}

# Third-party header -> the only files (below src) that may include it. No header of ours is among them: what one
# library needs stays in the file that uses it, and costs no other file compile time.
THIRD_PARTY = [
    (r"CLI/", r"cli/options\.cc"),
    (r"(spdlog|fmt)/", r"base/log\.cc"),
    (r"nlohmann/", r"(formats/(checkpoint|safetensors)|model/config|text/(tokenizer_file|json_text|chat)|server/json_read"
                   r"|(measure|cli)/\w+)\.cc"),
    (r"(pcre2|utf8proc)", r"text/\w+\.cc"),
    (r"(histedit|editline/)", r"cli/\w+\.cc"),
    (r"httplib", r"server/http\.cc"),
    (r"prometheus/", r"server/metrics\.cc"),
    (r"(cuda|nvrtc|cublas|nccl)", r"(?!)"),
]

# What <...> may name without being third party: the standard library and the operating system.
SYSTEM = re.compile(r"[a-z_0-9]+|(sys|linux|asm|arpa|netinet|bits)/\w+\.h|\w+intrin\.h|arm_\w+\.h|"
                    r"(cpuid|dirent|dlfcn|errno|fcntl|glob|malloc|poll|pthread|pwd|sched|signal|spawn|stdlib|string|termios|unistd)\.h")

LIMITS = {".cuh": 1200}  # lines; kernels are long because their constants and layouts are beside the loops
LIMIT = 1000
MEDIAN_GOAL = 200

INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
CODE = (".h", ".cc", ".cuh", ".c")
TEXT = CODE + (".inc", ".sh", ".cmake")  # .inc: generated tables; Python may quote any language


def layer_of(path):
    """The layer of a file given relative to src, or None."""
    for layer in LAYERS:
        if path.startswith(layer + "/"):
            return layer
    return None


def check_include(path, quote, name):
    """Complaint about one #include line of src/<path>, or None."""
    layer = layer_of(path)
    if layer is None:
        return "is in no layer; the layers are " + ", ".join(LAYERS)
    if name.endswith((".cc", ".c")):
        return f"includes the source file {name}; move what is shared to a header"
    if quote == '"':
        if not re.fullmatch(LAYERS[layer], name):
            return f"layer {layer} may not include {name}; it may include {LAYERS[layer]}"
        return None
    if layer == "kernels":
        return f"a kernel may not include <{name}>: run-time compilation needs no toolkit and no host header"
    for library, files in THIRD_PARTY:
        if re.match(library, name):
            if not re.fullmatch(files, path):
                return f"<{name}> may be included only by {files}"
            return None
    if not SYSTEM.fullmatch(name):
        return f"<{name}> is neither standard, nor of the system, nor in the third-party table of tools/layering.py"
    return None


def check_text(path, text):
    """Complaints (line, message) about the bytes of one file, whatever its kind."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        for column, character in enumerate(line, 1):
            if ord(character) > 126 or (ord(character) < 32 and not (character == "\t" and path.suffix == ".mk")):
                yield number, f"column {column}: U+{ord(character):04X}; sources are printable ASCII, use escapes"
                break
        if line.endswith(" "):
            yield number, "trailing white space"
    if text and not text.endswith("\n"):
        yield len(lines), "no newline at the end of the file"
    limit = LIMITS.get(path.suffix, LIMIT)
    if path.suffix in CODE and len(lines) - 1 > limit:
        yield len(lines) - 1, f"{len(lines) - 1} lines; the limit is {limit}"


def check_tree(root):
    """All complaints about a source tree as strings, and the lengths of the files of src."""
    complaints, lengths = [], []
    for folder in ("src", "tests", "tools", "cmake"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in TEXT or "__pycache__" in path.parts or not path.is_file():
                continue
            name = path.relative_to(root).as_posix()
            text = path.read_bytes().decode("utf-8", errors="replace")
            complaints += [f"{name}:{line}: {message}" for line, message in check_text(path, text)]
            if path.suffix not in CODE:
                continue
            if folder == "src":
                lengths.append(text.count("\n"))
            for number, line in enumerate(text.splitlines(), 1):
                match = INCLUDE.match(line)
                if match is None:
                    continue
                if folder == "src":
                    message = check_include(path.relative_to(root / "src").as_posix(), *match.groups())
                elif match.group(2).endswith(".cc"):
                    message = f"includes the source file {match.group(2)}; test the unit, not the file"
                else:
                    message = None
                if message:
                    complaints.append(f"{name}:{number}: {message}")
    return complaints, lengths


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    complaints, lengths = check_tree(root)
    for complaint in complaints:
        print(complaint)
    if not lengths:
        print(f"layering: no sources below {root}/src")
        return 1
    median = statistics.median(lengths)
    remark = "" if median <= MEDIAN_GOAL else f" (above the goal of {MEDIAN_GOAL})"
    print(f"layering: {len(lengths)} files of src, {sum(lengths)} lines, median {median:g}{remark}, longest "
          f"{max(lengths)}; {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
