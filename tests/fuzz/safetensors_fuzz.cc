// Fuzz target: bytes that begin with '{' are an index beside two good shards, others a .safetensors
// file. An Error is a good answer; anything else (crash, sanitizer, broken promise) is a finding.
#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace spk {
namespace {

// What a header that was accepted promises: tensors one behind the other up to the file's end.
void check_promises(std::string_view file, uint64_t file_size) {
  uint64_t end = 0;
  for (const StoredTensor& t : parse_safetensors_header(file, file_size, "fuzz")) {
    SPK_CHECK(end == 0 || t.offset == end);
    SPK_CHECK(t.offset <= file_size && t.bytes <= file_size - t.offset);
    uint64_t bytes = static_cast<uint64_t>(stored_type_bytes(t.type));
    for (const int64_t n : t.shape) bytes *= static_cast<uint64_t>(n);
    SPK_CHECK(bytes == t.bytes);
    end = t.offset + t.bytes;
  }
}

std::string shard(std::string_view tensor) {
  const std::string header =
      cat("{\"", tensor, R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})");
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + "xy";
}

void open_all(std::string_view file) {
  const auto checkpoint = Checkpoint::from_memory("fuzz", {{"model.safetensors", file}});
  unsigned sum = 0;
  checkpoint->for_each([&](const TensorBytes& t) {
    SPK_CHECK(checkpoint->find(t.info->name));
    for (uint64_t i = 0; i < t.info->bytes; ++i) sum += static_cast<unsigned>(t.data[i]);
  });
  [[maybe_unused]] static volatile unsigned sink;  // every byte of every tensor can be read
  sink = sum;
}

void open_with_index(std::string_view index) {
  static const std::string one = shard("a");
  static const std::string two = shard("b");
  const auto checkpoint =
      Checkpoint::from_memory("fuzz", {{"one.safetensors", one},
                                       {"two.safetensors", two},
                                       {"model.safetensors.index.json", index}});
  SPK_CHECK(checkpoint->find("a") && checkpoint->find("b"));
}

template <typename Function>
void try_it(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    SPK_CHECK(error.kind() == ErrorKind::kInput && *error.what() != '\0');
  }
}

}  // namespace
}  // namespace spk

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && bytes[0] == '{') {
    spk::try_it([&] { spk::open_with_index(bytes); });
    return 0;
  }
  spk::try_it([&] { spk::check_promises(bytes, size); });
  // The same header in front of a file so large that sums of offsets come near the end of the
  // numbers.
  spk::try_it([&] { spk::check_promises(bytes, UINT64_MAX - 1); });
  spk::try_it([&] { spk::open_all(bytes); });
  return 0;
}
