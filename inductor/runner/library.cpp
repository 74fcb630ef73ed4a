#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "plan.h"

namespace fg {
namespace {

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

Library::Library(std::string_view bytes) {
#ifdef MFD_CLOEXEC
  file_ = memfd_create("framegraph-kernels", MFD_CLOEXEC);
  if (file_ >= 0 && write_all(file_, bytes)) {
    handle_ = dlopen(("/proc/self/fd/" + std::to_string(file_)).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (handle_ != nullptr) return;
  if (file_ >= 0) close(file_);
  file_ = -1;
#endif
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/framegraph-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) throw Error("its kernels find no place in " + path);
  const bool written = write_all(file, bytes);
  close(file);
  if (written) handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const reason = written && handle_ == nullptr ? dlerror() : "no room for them";
  const std::string text = reason != nullptr ? reason : "";
  unlink(path.c_str());
  if (handle_ == nullptr) throw Error("its kernels do not load: " + text);
}

Library::~Library() {
  dlclose(handle_);
  if (file_ >= 0) close(file_);
}

KernelFunction Library::find(const std::string& name) const {
  return reinterpret_cast<KernelFunction>(dlsym(handle_, name.c_str()));
}

}  // namespace fg
