// JSON texts as trees: the content of a file's sections.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fg {

// The error that fg_error reports.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Json {
 public:
  enum Kind : uint8_t { Null, Bool, Int, Real, String, Array, Object };

  // Throws Error for a text that is no JSON, or nested too deep.
  static Json parse(std::string_view text);

  Kind kind = Null;

  // Each throws Error for a tree of another kind.
  bool boolean() const;
  int64_t integer() const;
  const std::string& string() const;
  const std::vector<Json>& items() const;
  const std::vector<std::pair<std::string, Json>>& members() const;
  const Json& operator[](const char* key) const;
  const Json& operator[](size_t index) const;
  const Json* find(const char* key) const;  // nullptr: no such member

 private:
  friend class Parser;
  void expect(Kind wanted) const;

  int64_t number_ = 0;  // of Int and Bool
  std::string text_;
  std::vector<Json> items_;
  std::vector<std::pair<std::string, Json>> members_;
};

}  // namespace fg
