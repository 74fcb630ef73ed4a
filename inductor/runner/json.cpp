#include "json.h"

#include <cstring>

namespace fg {

// Nothing that a saved program holds is nested deeper.
constexpr int kDepth = 96;

class Parser {
 public:
  explicit Parser(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  Json whole() {
    Json result = value(0);
    skip();
    if (at_ != end_) fail();
    return result;
  }

 private:
  [[noreturn]] static void fail() { throw Error("not JSON"); }

  void skip() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }

  char next() {
    skip();
    if (at_ == end_) fail();
    return *at_;
  }

  bool takes(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }

  void word(const char* text) {
    const size_t length = std::strlen(text);
    if (static_cast<size_t>(end_ - at_) < length || std::memcmp(at_, text, length) != 0) fail();
    at_ += length;
  }

  Json value(int depth) {
    if (depth > kDepth) throw Error("JSON that is nested too deep");
    Json made;
    switch (next()) {
      case '{':
        made.kind = Json::Object;
        members(made, depth);
        break;
      case '[':
        made.kind = Json::Array;
        items(made, depth);
        break;
      case '"':
        made.kind = Json::String;
        made.text_ = string();
        break;
      case 't':
      case 'f':
        made.kind = Json::Bool;
        made.number_ = *at_ == 't';
        word(made.number_ ? "true" : "false");
        break;
      case 'n':
        word("null");
        break;
      default:
        number(made);
    }
    return made;
  }

  void members(Json& made, int depth) {
    ++at_;
    if (takes('}')) return;
    do {
      if (next() != '"') fail();
      std::string key = string();
      if (!takes(':')) fail();
      made.members_.emplace_back(std::move(key), value(depth + 1));
    } while (takes(','));
    if (!takes('}')) fail();
  }

  void items(Json& made, int depth) {
    ++at_;
    if (takes(']')) return;
    do {
      made.items_.push_back(value(depth + 1));
    } while (takes(','));
    if (!takes(']')) fail();
  }

  // Integers as they are; of others, that they are none.
  void number(Json& made) {
    const char* const start = at_;
    const bool negative = *at_ == '-';
    if (negative) ++at_;
    bool whole = true;
    int64_t total = 0;
    const char* const digits = at_;
    for (; at_ != end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
      const int digit = *at_ - '0';
      if (__builtin_mul_overflow(total, int64_t{10}, &total) ||
          __builtin_add_overflow(total, negative ? -digit : digit, &total)) {
        whole = false;
        total = 0;
      }
    }
    if (at_ == digits) fail();
    for (; at_ != end_ && *at_ != '\0' && std::strchr(".eE+-0123456789", *at_) != nullptr; ++at_) whole = false;
    if (at_ - start > 64) fail();
    made.kind = whole ? Json::Int : Json::Real;
    made.number_ = whole ? total : 0;
  }

  std::string string() {
    ++at_;
    std::string made;
    for (;;) {
      if (at_ == end_) fail();
      const char c = *at_++;
      if (c == '"') return made;
      if (c != '\\') {
        made += c;
        continue;
      }
      if (at_ == end_) fail();
      const char escaped = *at_++;
      static const char kinds[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
      if (escaped == 'u') {
        append(made, character());
      } else {
        const char* const found = escaped == '\0' ? nullptr : std::strchr(kinds, escaped);
        if (found == nullptr) fail();
        made += meanings[found - kinds];
      }
    }
  }

  uint32_t unit() {
    if (end_ - at_ < 4) fail();
    uint32_t made = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = *at_++;
      const bool digit = c >= '0' && c <= '9', letter = (c | 32) >= 'a' && (c | 32) <= 'f';
      if (!digit && !letter) fail();
      made = made * 16 + static_cast<uint32_t>(digit ? c - '0' : (c | 32) - 'a' + 10);
    }
    return made;
  }

  uint32_t character() {
    const uint32_t first = unit();
    if (first < 0xD800 || first > 0xDFFF) return first;
    if (first > 0xDBFF || end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return '?';
    at_ += 2;
    const uint32_t second = unit();
    if (second < 0xDC00 || second > 0xDFFF) return '?';
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  static void append(std::string& text, uint32_t c) {
    const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
    if (c < 0x80) return add(c);
    if (c < 0x800) {
      add(0xC0 | (c >> 6));
    } else {
      if (c < 0x10000) {
        add(0xE0 | (c >> 12));
      } else {
        add(0xF0 | (c >> 18));
        add(0x80 | ((c >> 12) & 0x3F));
      }
      add(0x80 | ((c >> 6) & 0x3F));
    }
    add(0x80 | (c & 0x3F));
  }

  const char* at_;
  const char* const end_;
};

Json Json::parse(std::string_view text) { return Parser(text).whole(); }

void Json::expect(Kind wanted) const {
  static const char* const names[] = {"null", "a bool", "an integer", "a real", "a string", "an array", "an object"};
  if (kind != wanted) throw Error(std::string(names[kind]) + " in place of " + names[wanted]);
}

bool Json::boolean() const {
  expect(Bool);
  return number_ != 0;
}

int64_t Json::integer() const {
  expect(Int);
  return number_;
}

const std::string& Json::string() const {
  expect(String);
  return text_;
}

const std::vector<Json>& Json::items() const {
  expect(Array);
  return items_;
}

const std::vector<std::pair<std::string, Json>>& Json::members() const {
  expect(Object);
  return members_;
}

const Json* Json::find(const char* key) const {
  for (const auto& [name, value] : members()) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::operator[](const char* key) const {
  const Json* found = find(key);
  if (found == nullptr) throw Error(std::string("no ") + key);
  return *found;
}

const Json& Json::operator[](size_t index) const {
  if (index >= items().size()) throw Error("an array that is too short");
  return items_[index];
}

}  // namespace fg
