// SHA-256 (FIPS 180-4).
#pragma once

#include <cstddef>
#include <string>

namespace fg {

// In hexadecimal digits.
std::string sha256(const void* data, size_t size);

}  // namespace fg
