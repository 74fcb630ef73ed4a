#include "file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "json.h"
#include "sha256.h"

namespace fg {
namespace {

constexpr char kMagic[] = "\x93" "FGPROG\n";
constexpr uint32_t kVersion = 1;
constexpr size_t kHead = 48, kLargestTable = size_t{1} << 20, kAlignment = 4096, kGap = size_t{1} << 16;

uint32_t little(const char* at) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(at[i]);
  return value;
}

std::string hex(const char* at, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(at[i]);
    text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  }
  return text;
}

}  // namespace

File::File(const char* path) {
  map(path);
  try {
    read_table();
  } catch (...) {
    munmap(const_cast<char*>(data_), size_);
    throw;
  }
}

File::~File() { munmap(const_cast<char*>(data_), size_); }

void File::map(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) throw Error(std::string("cannot be read: ") + std::strerror(errno));
  struct stat about {};
  void* mapped = MAP_FAILED;
  const bool known = fstat(file, &about) == 0;
  const bool plain = known && S_ISREG(about.st_mode);
  if (plain && static_cast<size_t>(about.st_size) >= kHead) {
    size_ = static_cast<size_t>(about.st_size);
    mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
  }
  const int reason = errno;
  close(file);
  if (known && !plain) throw Error("cannot be read: not a file");
  if (plain && size_ < kHead) throw Error("not a saved program, or cut off: it is too short");
  if (mapped == MAP_FAILED) throw Error(std::string("cannot be read: ") + std::strerror(reason));
  data_ = static_cast<const char*>(mapped);
}

void File::read_table() {
  if (std::memcmp(data_, kMagic, 8) != 0) throw Error("not a saved program");
  const uint32_t version = little(data_ + 8), length = little(data_ + 12);
  if (version != kVersion) {
    throw Error("format " + std::to_string(version) + "; this runner reads " + std::to_string(kVersion) +
                (version > kVersion ? " (a newer framegraph wrote it)" : ""));
  }
  if (length > std::min(kLargestTable, size_ - kHead)) throw Error("damaged or cut off: its table does not end");
  if (sha256(data_ + kHead, length) != hex(data_ + 16, 32)) {
    throw Error("damaged: its table has another hash than when it was saved");
  }
  size_t end = kHead + length;
  try {
    const Json table = Json::parse({data_ + kHead, length});
    for (const auto& [name, row] : table["sections"].members()) {
      const int64_t offset = row["offset"].integer(), size = row["size"].integer();
      const auto start = static_cast<size_t>(offset);
      const bool near = offset >= 0 && size >= 0 && start >= end && start <= end + kGap && start <= size_ &&
                        static_cast<size_t>(size) <= size_ - start && start % kAlignment == 0;
      if (!near || std::any_of(data_ + end, data_ + start, [](char c) { return c != 0; })) {
        throw Error("the section '" + name.substr(0, 80) + "' is in no place");
      }
      if (!sections_.emplace(name, Section{start, static_cast<size_t>(size), row["sha256"].string()}).second) {
        throw Error("two sections have one name");
      }
      end = start + static_cast<size_t>(size);
    }
  } catch (const Error& error) {
    throw Error(std::string("damaged: its table is none (") + error.what() + ")");
  }
  if (end != size_) {
    throw Error("damaged or cut off: it has " + std::to_string(size_) + " bytes instead of " + std::to_string(end));
  }
}

std::vector<std::string> File::names() const {
  std::vector<std::string> found;
  for (const auto& [name, section] : sections_) found.push_back(name);
  return found;
}

std::string_view File::section(const std::string& name) {
  const auto found = sections_.find(name);
  if (found == sections_.end()) throw Error("not a whole program: it has no section '" + name + "'");
  Section& section = found->second;
  const std::string_view bytes(data_ + section.offset, section.size);
  if (!section.whole && sha256(bytes.data(), bytes.size()) != section.hash) {
    throw Error("damaged: the section '" + name + "' has another hash than when it was saved");
  }
  section.whole = true;
  return bytes;
}

}  // namespace fg
