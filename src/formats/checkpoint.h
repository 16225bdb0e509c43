// A checkpoint folder in the Hugging Face form, or the same files embedded in the executable.
//
// Owns the mapped shards and the texts of the small files; resolves a tensor name to checked bytes.
// Knows no model. Read-only after opening, thread-safe.
#pragma once

#include "formats/safetensors.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spk {

// Bytes of one stored tensor; valid as long as its source lives.
struct TensorBytes {
  const StoredTensor* info = nullptr;
  const std::byte* data = nullptr;
  const std::string* file = nullptr;  // for messages
};

// Where tensors come from: a folder, the embedded model, or synthetic weights.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual std::string_view name() const = 0;
  virtual std::optional<TensorBytes> find(std::string_view tensor) const = 0;
  virtual void for_each(const std::function<void(const TensorBytes&)>& visit) const = 0;
  // False: names and shapes only, for what counts bytes.
  virtual bool has_values() const { return true; }
  // The file that holds these bytes, whole; empty when they are in memory.
  virtual std::span<const std::byte> file_of(const std::byte* data) const {
    static_cast<void>(data);
    return {};
  }
  // [data, data + bytes) of one file (or of one tensor in memory) for who passes by once: from a
  // disk they are read around the page cache into `buffer` (DirectFile::kAlign and room(bytes)).
  virtual const std::byte* read(const std::byte* data, size_t bytes, std::byte* buffer) const {
    static_cast<void>(bytes), static_cast<void>(buffer);
    return data;
  }
  // The weights behind [data, data + bytes) have been copied elsewhere: their pages may go.
  virtual void drop(const std::byte* data, size_t bytes) const = 0;
  // More than drop: nobody holds a pointer to these bytes of one tensor any more (they were
  // repacked elsewhere), so a source that made them in memory may give the memory back. They read
  // as anything until recall() brings them back; a source may also hand out bytes that nobody has
  // recalled yet (read() always has them).
  virtual void forget(const std::byte* data, size_t bytes) const { drop(data, bytes); }
  virtual void recall(const std::byte* data, size_t bytes) const {
    static_cast<void>(data);
    static_cast<void>(bytes);
  }
};

// One file of a checkpoint that is already in memory (the embedded model).
struct MemoryFile {
  std::string_view name;  // "config.json"
  std::string_view bytes;
};

class Checkpoint : public TensorSource {
 public:
  // Opens and checks everything that can be checked without a model: index against shards (every
  // named tensor exactly once, no foreign shard, no missing one, no leftover of a download),
  // headers, file sizes. All complaints at once.
  static std::unique_ptr<Checkpoint> open(const std::string& folder);
  static std::unique_ptr<Checkpoint> from_memory(std::string name,
                                                 const std::vector<MemoryFile>& files);

  // Text of config.json, tokenizer.json, chat_template.jinja, generation_config.json,
  // token_counts.txt; nullopt where
  // absent.
  virtual std::optional<std::string_view> text(std::string_view file) const = 0;
  virtual uint64_t file_bytes() const = 0;  // all shards
};

}  // namespace spk
