#include "backend/cuda/kernel_cache.h"

#include "base/error.h"
#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace spk::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "SPKKERN1";
constexpr size_t kNumbers = 6;  // see the file comment of kernel_cache.h
constexpr uint64_t kLargestEntry = uint64_t{64} << 20;
constexpr auto kStale = std::chrono::hours(1);

void put(std::string& out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}
uint64_t take(std::string_view bytes, size_t index) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i)
    value |= uint64_t{static_cast<unsigned char>(bytes[8 * index + i])} << (8 * i);
  return value;
}

std::string pack(const std::string& key, const Kernel& k) {
  const std::string body = key + k.lowered + k.log + k.cubin;
  std::string out(kMagic);
  for (const std::string* part : {&key, &k.lowered, &k.log, &k.cubin}) put(out, part->size());
  put(out, static_cast<uint64_t>(k.compile_seconds * 1e6));
  put(out, hash_bytes(body));
  return out + body;
}

// Nothing when the bytes are not whole, not ours, or another kernel's.
std::optional<Kernel> unpack(std::string_view bytes, const std::string& key) {
  constexpr size_t kHeader = kMagic.size() + 8 * kNumbers;
  if (bytes.size() < kHeader || bytes.substr(0, kMagic.size()) != kMagic) return {};
  const std::string_view numbers = bytes.substr(kMagic.size(), 8 * kNumbers);
  const std::string_view body = bytes.substr(kHeader);
  size_t sizes[4];
  size_t left = body.size();
  for (size_t i = 0; i < 4; ++i) {
    if (take(numbers, i) > left) return {};
    sizes[i] = static_cast<size_t>(take(numbers, i));
    left -= sizes[i];
  }
  if (left != 0 || take(numbers, 5) != hash_bytes(body)) return {};
  if (body.substr(0, sizes[0]) != key) return {};
  Kernel k;
  size_t at = sizes[0];
  k.lowered = body.substr(at, sizes[1]);
  k.log = body.substr(at += sizes[1], sizes[2]);
  k.cubin = body.substr(at += sizes[2], sizes[3]);
  k.compile_seconds = static_cast<double>(take(numbers, 4)) * 1e-6;
  k.cached = true;
  return k;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// "spk::matvec<2, 4>" -> "matvec_2_4": for the eye; the hash behind it tells entries apart.
std::string stem(std::string_view expression) {
  if (const size_t colon = expression.rfind("::"); colon != std::string_view::npos)
    expression = expression.substr(colon + 2);
  std::string out;
  for (const char c : expression) {
    const bool word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (word) {
      out += c;
    } else if (!out.empty() && out.back() != '_') {
      out += '_';
    }
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out.substr(0, 80);
}

// The number in front of the first `unit`, or -1.
int number_before(std::string_view text, std::string_view unit) {
  const size_t at = text.find(unit);
  if (at == std::string_view::npos) return -1;
  size_t first = at;
  while (first > 0 && text[first - 1] >= '0' && text[first - 1] <= '9') --first;
  int value = -1;
  std::from_chars(text.data() + first, text.data() + at, value);
  return value;
}

void write_whole(const std::string& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) throw std::system_error(errno, std::generic_category(), path);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() &&
                       std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  const int error = errno;
  std::fclose(file);
  if (!written) throw std::system_error(error, std::generic_category(), path);
}

// What crashed writers left behind.
void remove_stale(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(".private-", 0) != 0) continue;
    const auto age = fs::file_time_type::clock::now() - entry.last_write_time(ignored);
    if (age > kStale) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

Resources parse_resources(std::string_view log) {
  Resources r;
  r.registers = number_before(log, " registers");
  r.stack_bytes = number_before(log, " bytes stack frame");
  r.spill_stores = number_before(log, " bytes spill stores");
  r.spill_loads = number_before(log, " bytes spill loads");
  r.shared_bytes = std::max(0, number_before(log, " bytes smem"));
  if (r.registers < 0 || r.stack_bytes < 0 || r.spill_stores < 0 || r.spill_loads < 0)
    fail_resource("compiler log: expected registers, stack and spills of a kernel, found ", log);
  return r;
}

KernelCache::KernelCache(std::string folder, std::vector<SourceText> sources, std::string prologue)
    : folder_(std::move(folder)), sources_(std::move(sources)), prologue_(std::move(prologue)) {}

std::string KernelCache::default_folder() {
  const auto variable = [](const char* name) {
    const char* set = std::getenv(name);
    return std::string(set ? set : "");
  };
  if (std::string set = variable("SPARKLING_KERNEL_CACHE"); !set.empty()) return set;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/sparkling/kernels";
  if (const std::string home = variable("HOME"); !home.empty())
    return home + "/.cache/sparkling/kernels";
  return "";
}

std::string KernelCache::key(const KernelSpec& spec, const std::string& arch) const {
  uint64_t hash = hash_bytes(prologue_);
  for (const SourceText& s : reachable_sources(sources_, spec.header))
    hash = hash_bytes(s.text, hash_bytes(s.name, hash));
  std::string flags;
  for (const std::string& flag : compile_flags()) flags += " " + flag;
  return cat(spec.header, "\n", spec.expression, "\n", arch, "\nNVRTC ", nvrtc_version(), flags,
             "\nsources ", hex(hash), "\n");
}

std::string KernelCache::entry_folder(const KernelSpec& spec, const std::string& arch) const {
  const std::string text = key(spec, arch);
  return cat(folder_, "/", stem(spec.expression), "-", arch, "-", hex(hash_bytes(text)));
}

std::string KernelCache::program(const KernelSpec& spec) const {
  return cat("#include \"", spec.header, "\"\n", prologue_);
}

std::optional<Kernel> KernelCache::load(const KernelSpec& spec, const std::string& arch) const {
  if (folder_.empty()) return {};
  const std::string path = entry_folder(spec, arch) + "/kernel.bin";
  if (!file_exists(path)) return {};
  try {
    return unpack(read_small_file(path, kLargestEntry), key(spec, arch));
  } catch (const Error&) {
    return {};  // unreadable is as good as absent
  }
}

Kernel KernelCache::get(const KernelSpec& spec, const std::string& arch) {
  if (std::optional<Kernel> found = load(spec, arch)) return *std::move(found);
  const auto start = std::chrono::steady_clock::now();
  CompileOutput made =
      compile(program(spec), reachable_sources(sources_, spec.header), spec.expression, arch);
  Kernel kernel;
  kernel.cubin = std::move(made.cubin);
  kernel.lowered = std::move(made.lowered);
  kernel.log = std::move(made.log);
  kernel.compile_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!folder_.empty()) keep(spec, arch, kernel);
  return kernel;
}

void KernelCache::warn(const std::string& text) {
  // One reason is enough: a full disk would say it for every kernel.
  if (warnings_.empty()) warnings_.push_back(text);
}

void KernelCache::keep(const KernelSpec& spec, const std::string& arch, const Kernel& kernel) {
  static std::atomic<uint64_t> counter{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string own =
      cat(folder_, "/.private-", getpid(), "-", counter++, "-", hex(static_cast<uint64_t>(now)));
  std::error_code ignored;
  try {
    fs::create_directories(own + "/new");
    std::string source = cat("// ", spec.expression, ", ", arch, "\n", program(spec));
    for (const SourceText& s : reachable_sources(sources_, spec.header))
      source += cat("\n// ==== ", s.name, "\n", s.text);
    write_whole(own + "/new/kernel.cu", source);
    write_whole(own + "/new/kernel.log", kernel.log);
    write_whole(own + "/new/kernel.bin", pack(key(spec, arch), kernel));
    const std::string target = entry_folder(spec, arch);
    // rename() takes the place of an empty folder only. A whole entry there is another process's
    // and as good as ours; a broken one goes aside first.
    if (std::rename((own + "/new").c_str(), target.c_str()) != 0 && !load(spec, arch)) {
      std::rename(target.c_str(), (own + "/old").c_str());
      if (std::rename((own + "/new").c_str(), target.c_str()) != 0 && !load(spec, arch))
        throw std::system_error(errno, std::generic_category(), target);
    }
    remove_stale(folder_);
  } catch (const std::system_error& e) {  // fs::filesystem_error is one
    warn(cat("compiled kernels cannot be kept in ", folder_, " (", e.code().message(),
             "): the next start compiles them again"));
  }
  fs::remove_all(own, ignored);
}

}  // namespace spk::cuda
