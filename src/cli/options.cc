#include "cli/options.h"

#include "base/error.h"
#include "base/file.h"
#include "cli/config_file.h"
#include "cli/option_checks.h"
#include "cli/option_table.h"
#include "cli/values.h"
#include "cli/version.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>

namespace spk::cli {
namespace {

constexpr std::array<VerbInfo, kVerbs> kVerbTable = {{
    {Verb::kRun, "run", "answer a prompt, or chat on a terminal"},
    {Verb::kServe, "serve", "answer the OpenAI and Anthropic APIs over HTTP"},
    {Verb::kLogits, "logits", "write the logits of a token list as .npy"},
    {Verb::kTokenize, "tokenize", "text to token ids and back"},
    {Verb::kInspect, "inspect", "config, layers, parameters, bytes, cache sizes"},
    {Verb::kDoctor, "doctor", "this machine, what will be used and why, a self test"},
    {Verb::kPlan, "plan", "bytes per token, limits and projection for a device"},
    {Verb::kBench, "bench", "decode and prefill speed, bytes per token, percent of bandwidth"},
    {Verb::kEval, "eval", "accuracy and speed on question files, and two results compared"},
    {Verb::kCompare, "compare", "two back ends on the same inputs, verb by verb"},
    {Verb::kCompletion, "completion", "a completion script for bash or zsh"},
}};
constexpr std::array<std::string_view, 1> kLaterVerbs = {"quantize"};

std::string env_name(std::string_view option) {
  std::string name = "SPARKLING_";
  for (const char c : option) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

class Formatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || option->get_type_name().empty()) return "";
    return " " + option->get_type_name();
  }
};

// " (or SPARKLING_TOP_K)" where the variable holds the text that was refused.
std::string origin(const std::string& name, const std::string& text) {
  const std::string variable = env_name(name);
  const char* set = std::getenv(variable.c_str());
  return set != nullptr && text == set ? cat(" (or ", variable, ")") : std::string();
}

CLI::Option* add_switch(CLI::App& app, const OptionRow& row) {
  return app.add_flag_function(
      row.flags,
      [&row](int64_t count) {
        if (count > 0) row.parse("");
      },
      row.help);
}

CLI::Option* add_valued(CLI::App& app, const OptionRow& row) {
  const auto guarded = [&row](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      try {
        row.parse(text);
      } catch (const Error& error) {
        throw Error(error.kind(), cat("--", row.name, origin(row.name, text), ": ", error.what()));
      }
    }
  };
  auto* option = app.add_option_function<std::vector<std::string>>(row.flags, guarded, row.help);
  const bool many = row.kind == OptionRow::Kind::kMany;
  option->type_name(row.type)->allow_extra_args(many);
  if (many) {
    option->expected(1, CLI::detail::expected_max_vector_size);
  } else if (row.kind == OptionRow::Kind::kMaybe) {
    option->expected(0, 1);
  } else {
    option->expected(1);
  }
  return option->multi_option_policy(row.collects() ? CLI::MultiOptionPolicy::TakeAll
                                                    : CLI::MultiOptionPolicy::TakeLast);
}

const VerbInfo& find_verb(std::string_view name) {
  std::vector<std::string_view> names;
  for (const VerbInfo& info : kVerbTable) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  if (std::find(kLaterVerbs.begin(), kLaterVerbs.end(), name) != kLaterVerbs.end()) {
    fail_usage("'", name, "' is not in this version; available now: ", join_choices(names));
  }
  fail_usage(name.substr(0, 1) == "-" ? "expected a verb first, found '" : "unknown verb '", name,
             "'", did_you_mean(name, names), "; verbs: ", join_choices(names));
}

std::string version_text() {
  const Version v = version();
  return cat("sparkling ", v.number, "\ncommit    ", v.commit, "\nbuild     ", v.build, ", ",
             v.compiler, "\nback ends reference, cpu, cuda\n");
}

std::string overview() {
  std::string out =
      "sparkling: the Ling-3.0 family on one machine\n\n"
      "Usage: sparkling VERB [MODEL] [options]\n\nVerbs\n";
  for (const VerbInfo& info : kVerbTable) {
    out += cat("  ", info.name, std::string(12 - info.name.size(), ' '), info.summary, "\n");
  }
  return out +
         "\nMODEL is a checkpoint folder; without it SPARKLING_MODEL, else the small model "
         "ling-nano that is\n"
         "part of this program. 'sparkling VERB --help' shows options, defaults and units;\n"
         "'sparkling --version' shows commit, build and back ends.\n\n"
         "Exit status: 0 done, 1 bad input, 2 wrong usage, 3 memory or device, 130 interrupted.\n";
}

constexpr const char* kFooter =
    "\nEach option can also be set by SPARKLING_<OPTION> (SPARKLING_TOP_K=20) or in the --config "
    "file\n"
    "(TOML or INI, 'top-k = 20', at the top or in a section named by the verb); the command line "
    "wins,\n"
    "then the environment. Results go to standard output, the log to standard error.\n";
constexpr const char* kRunFooter =
    "\nThe model's reasoning is streamed first (dimmed on a terminal), then an empty line, then "
    "the answer;\n"
    "tool calls follow as one JSON object a line. The last line, on standard error, gives the "
    "speed.\n";

// A hint for an argument that nothing took.
[[noreturn]] void fail_unknown(const std::string& argument, std::span<const OptionRow> rows,
                               Verb verb) {
  if (argument.size() < 2 || argument[0] != '-') {
    fail_usage("expected no further word for '", verb_name(verb), "', found '", argument,
               "'; a text of several words needs quotes");
  }
  const size_t first = argument.find_first_not_of('-');
  const std::string name =
      first == std::string::npos ? "" : argument.substr(first, argument.find('=') - first);
  if (const std::string owners = owners_of(rows, name); !owners.empty())
    fail_usage("option '--", name, "' belongs to: ", owners);
  std::vector<std::string_view> names = names_of(rows, verb);
  names.insert(names.end(), {"help", "config"});
  fail_usage("unknown option '", argument.substr(0, argument.find('=')), "'",
             did_you_mean(name, names, "--"));
}

// Variables that look like ours but name no option: most likely slips, so they are said, not
// refused.
void check_environment(std::span<const OptionRow> rows, std::vector<std::string>& warnings) {
  std::vector<std::string> known = {
      "SPARKLING_MODEL",  "SPARKLING_CONFIG",  "SPARKLING_NVRTC", "SPARKLING_KERNEL_CACHE",
      "SPARKLING_GRAPHS", "SPARKLING_SAMPLER", "SPARKLING_FUSE",  "SPARKLING_RESIDENT"};
  for (const OptionRow& row : rows) known.push_back(env_name(row.name));
  const std::vector<std::string_view> views(known.begin(), known.end());
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view pair(*entry);
    const std::string_view name = pair.substr(0, pair.find('='));
    if (name.rfind("SPARKLING_", 0) != 0) continue;
    if (std::find(views.begin(), views.end(), name) != views.end()) continue;
    if (const auto near = nearest(name, views)) {
      warnings.push_back(
          cat("environment variable ", name, " sets nothing; did you mean ", *near, "?"));
    }
  }
}

void check_together(const Options& o) {
  if (!o.model.model.empty() && !o.model.synthetic.empty()) {
    fail_usage("expected MODEL or --synthetic, found both");
  }
  if (!o.serve.api_key.empty() && !o.serve.api_key_file.empty())
    fail_usage("expected --api-key or --api-key-file, found both");
  if (o.model.layers > 0 && o.model.synthetic.empty()) fail_usage("--layers needs --synthetic");
  if (o.run.prompt && !o.run.file.empty()) fail_usage("expected -p or -f, found both");
  if (o.verb == Verb::kRun && o.run.raw && !o.run.tools.empty()) {
    fail_usage("--tools needs the chat template, which --raw leaves out");
  }
  if (o.verb == Verb::kRun && o.run.raw && !o.run.system.empty()) {
    fail_usage("--system needs the chat template, which --raw leaves out");
  }
  if (o.verb == Verb::kLogits && o.tokens.empty()) fail_usage("logits needs --tokens 1,2,3");
  if (o.verb == Verb::kLogits && o.logits.output.empty()) fail_usage("logits needs -o FILE.npy");
  if (o.verb == Verb::kTokenize) {
    const TokenizeOptions& k = o.tokenize;
    const int forms = (k.text ? 1 : 0) + (k.file.empty() ? 0 : 1) + (k.jsonl.empty() ? 0 : 1) +
                      (k.decode ? 1 : 0) + (k.count.empty() ? 0 : 1);
    if (forms > 1)
      fail_usage("expected one of --text, -f, --jsonl, --decode, --count, found ", forms);
  }
}

}  // namespace

std::span<const VerbInfo> verbs() { return kVerbTable; }
std::string_view verb_name(Verb verb) { return kVerbTable[static_cast<size_t>(verb)].name; }

Options parse_options(int argc, const char* const* argv) {
  Options o;
  for (int i = 0; i < argc; ++i) o.command += (i > 0 ? " " : "") + std::string(argv[i]);
  if (argc < 2) {
    throw Error(ErrorKind::kUsage, cat("expected a verb, found nothing\n\n", overview()));
  }
  const std::string first = argv[1];
  if (first == "--help" || first == "-h" || first == "help") {
    o.text = overview();
    return o;
  }
  if (first == "--version" || first == "-V") {
    o.text = version_text();
    return o;
  }
  const VerbInfo& info = find_verb(first);
  o.verb = info.verb;
  const bool fast = o.verb == Verb::kRun || o.verb == Verb::kBench || o.verb == Verb::kEval ||
                    o.verb == Verb::kServe || o.verb == Verb::kDoctor;
  o.model.precision = fast ? PrecisionMode::kFast : PrecisionMode::kExact;

  CLI::App app(std::string(info.summary), cat("sparkling ", info.name));
  app.formatter(std::make_shared<Formatter>());
  app.get_formatter()->column_width(34);
  app.allow_extras();
  app.set_help_flag();  // added last, so that the help ends with it
  app.footer(std::string(o.verb == Verb::kRun ? kRunFooter : "") + kFooter);
  if (o.verb == Verb::kCompletion) {
    app.add_option("SHELL", o.shell, "bash or zsh")->type_name("");
  } else if (o.verb == Verb::kEval) {
    app.add_option("WHAT", o.eval.words,
                   "gsm8k [MODEL] --data FILE | set FILE [MODEL] | compare A.jsonl B.jsonl")
        ->type_name("");
  } else {
    app.add_option("MODEL", o.model.model, "checkpoint folder (SPARKLING_MODEL, else ling-nano)")
        ->type_name("");
  }
  const std::vector<OptionRow> rows = option_rows(o);
  std::map<const OptionRow*, const CLI::Option*> options;
  for (const OptionRow& row : rows) {
    if (!row.taken_by(o.verb)) continue;
    CLI::Option* option =
        row.kind == OptionRow::Kind::kSwitch ? add_switch(app, row) : add_valued(app, row);
    option->group(row.group)->envname(env_name(row.name));
    options[&row] = option;
  }
  std::string config;
  app.add_option("--config", config, "TOML or INI file with options")
      ->group("General")
      ->type_name("FILE")
      ->envname("SPARKLING_CONFIG")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_help_flag("-h,--help", "this text")->group("General");

  std::vector<std::string> arguments;  // the library wants the last first
  for (int i = argc - 1; i > 1; --i) arguments.emplace_back(argv[i]);
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    std::string help = app.help();
    for (size_t at = 0; (at = help.find("\n\n\n", at)) != std::string::npos;) help.erase(at, 1);
    o.text = help;
    return o;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view what(error.what());
    throw Error(ErrorKind::kUsage,
                cat(what.substr(0, what.find(':')), ": expected a value, found none"));
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::kUsage, error.what());
  } catch (const std::logic_error&) {  // std::stoll inside CLI11, from the value of a switch
    fail_usage("expected true or false as the value of a switch (--json, --raw, --ignore-eos, ",
               "--quiet, --verbose; also from SPARKLING_ variables), found another");
  }
  for (const std::string& argument : app.remaining()) fail_unknown(argument, rows, o.verb);
  if (!config.empty()) {
    const auto given = [&](const OptionRow& row) { return options.at(&row)->count() > 0; };
    constexpr uint64_t kMaxConfig = 1 << 20;
    const std::string text = read_input(config, kMaxConfig);
    apply_config(parse_config_text(text, config), config, o.verb, rows, given);
  }
  check_environment(rows, o.warnings);
  if (o.verb == Verb::kEval) settle_eval(o);
  check_together(o);
  return o;
}

std::string completion_script(std::string_view shell) {
  constexpr std::array<std::string_view, 2> kShells = {"bash", "zsh"};
  check_choice(shell, kShells);
  std::string names;
  std::string cases;
  Options o;
  const std::vector<OptionRow> rows = option_rows(o);
  for (const VerbInfo& info : kVerbTable) {
    names += (names.empty() ? "" : " ") + std::string(info.name);
    std::string words = "--help --config";
    for (const std::string_view name : names_of(rows, info.verb)) words += cat(" --", name);
    cases += cat("    ", info.name, ") words=\"", words, "\" ;;\n");
  }
  std::string out = "# sparkling completion ";
  out += shell;
  out += "; load it with: source <(sparkling completion ";
  out += shell;
  out += ")\n";
  if (shell == "zsh") out += "autoload -U +X bashcompinit && bashcompinit\n";
  return out +
         cat("_sparkling() {\n  local cur=\"${COMP_WORDS[COMP_CWORD]}\" words\n"
             "  if [ \"$COMP_CWORD\" -eq 1 ]; then words=\"",
             names, " --help --version\"\n  else case \"${COMP_WORDS[1]}\" in\n", cases,
             "    *) words=\"\" ;;\n  esac; fi\n"
             "  case \"$cur\" in\n"
             "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
             "    *) if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"$words\" -- "
             "\"$cur\")); else COMPREPLY=($(compgen -f -- \"$cur\")); fi ;;\n"
             "  esac\n}\ncomplete -o filenames -F _sparkling sparkling\n");
}

}  // namespace spk::cli
