// The file of a saved program: named sections, each with its hash (dynamo/saved/container.py describes it).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fg {

class File {
 public:
  // Maps the file and checks its table. Throws Error for a file that is none, or is damaged or cut off.
  explicit File(const char* path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool has(const std::string& name) const { return sections_.count(name) != 0; }
  std::vector<std::string> names() const;
  // The bytes of a section, whose hash is checked once.
  std::string_view section(const std::string& name);

 private:
  struct Section {
    size_t offset, size;
    std::string hash;
    bool whole = false;
  };

  void map(const char* path);
  void read_table();

  const char* data_ = nullptr;
  size_t size_ = 0;
  std::map<std::string, Section> sections_;
};

}  // namespace fg
