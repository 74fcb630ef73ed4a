// The CUDA driver, found by dlopen at run time: nothing of CUDA is needed to build or import this, and a test's library
// may stand in for the driver.
#pragma once

#include <torch/csrc/python_headers.h>

#include <torch/csrc/Exceptions.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace framegraph {

// Name here, symbol of the library, parameters. Handles are opaque; a result of 0 is success.
#define FRAMEGRAPH_DRIVER(X)                                                                            \
  X(init, "cuInit", (unsigned))                                                                         \
  X(get_error_name, "cuGetErrorName", (int, const char**))                                              \
  X(get_error_string, "cuGetErrorString", (int, const char**))                                          \
  X(device_get_count, "cuDeviceGetCount", (int*))                                                       \
  X(device_get, "cuDeviceGet", (int*, int))                                                             \
  X(device_get_attribute, "cuDeviceGetAttribute", (int*, int, int))                                     \
  X(primary_context_retain, "cuDevicePrimaryCtxRetain", (void**, int))                                  \
  X(primary_context_release, "cuDevicePrimaryCtxRelease_v2", (int))                                     \
  X(context_get_current, "cuCtxGetCurrent", (void**))                                                   \
  X(context_push, "cuCtxPushCurrent_v2", (void*))                                                       \
  X(context_pop, "cuCtxPopCurrent_v2", (void**))                                                        \
  X(module_load_data, "cuModuleLoadData", (void**, const void*))                                        \
  X(module_unload, "cuModuleUnload", (void*))                                                           \
  X(module_get_function, "cuModuleGetFunction", (void**, void*, const char*))                           \
  X(function_get_attribute, "cuFuncGetAttribute", (int*, int, void*))                                   \
  X(function_set_attribute, "cuFuncSetAttribute", (void*, int, int))                                    \
  X(launch_kernel, "cuLaunchKernel",                                                                    \
    (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**))

// An error of the driver in Python: inductor.runtime._plan.DeviceError. The text holds the remedy.
struct DeviceError : public torch::PyTorchError {
  using PyTorchError::PyTorchError;
  PyObject* python_type() override;
};

class Driver;

// A device's primary context, which torch uses too.
struct DeviceContext {
  std::shared_ptr<const Driver> driver;
  int device = 0;
  void* handle = nullptr;
  int major = 0, minor = 0;
  int shared_limit = 0;  // bytes that a kernel may ask for
};

class Driver : public std::enable_shared_from_this<Driver> {
 public:
  // Throws DeviceError where there is no such library, a function is missing, or the driver finds no device.
  // current_stream: a Python function of a device's number that gives the handle of a stream.
  static std::shared_ptr<Driver> open(const std::string& path, PyObject* current_stream);
  ~Driver();

  // Throws unless `code` is success: c10::OutOfMemoryError, or DeviceError.
  void check(int code, const std::string& what) const {
    if (code != 0) fail(code, what);
  }
  int count() const;
  std::shared_ptr<const DeviceContext> context(int device);
  void* stream(int device) const;  // needs the GIL

#define FRAMEGRAPH_MEMBER(name, symbol, parameters) int(*name) parameters = nullptr;
  FRAMEGRAPH_DRIVER(FRAMEGRAPH_MEMBER)
#undef FRAMEGRAPH_MEMBER

 private:
  [[noreturn]] void fail(int code, const std::string& what) const;

  std::string path_;
  PyObject* current_stream_ = nullptr;
  std::mutex mutex_;
  std::vector<std::weak_ptr<const DeviceContext>> contexts_;  // by device
};

// Makes a context current in this thread for a scope. Entering another leaves the one before.
class ContextScope {
 public:
  ContextScope() = default;
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() { leave(); }

  void enter(const DeviceContext& context) {
    if (entered_ != &context) change(context);
  }

 private:
  void change(const DeviceContext& context);
  void leave();

  const DeviceContext* entered_ = nullptr;
  bool pushed_ = false;
};

// A kernel in a device's memory, unloaded when nothing refers to it.
struct DeviceCode {
  std::shared_ptr<const DeviceContext> context;
  void* module = nullptr;
  void* function = nullptr;
  std::string name;
  unsigned threads = 0;     // of a program
  unsigned shared = 0;      // bytes of a program, asked for at a launch
  unsigned hidden = 0;      // parameters after those that the kernel's text has, null
  int registers = 0;        // of a thread
  int spills = 0;           // bytes of a thread's memory
  bool aligned = false;     // every pointer has to be a multiple of kAlignment
  static constexpr uintptr_t kAlignment = 16;

  DeviceCode() = default;
  DeviceCode(const DeviceCode&) = delete;
  DeviceCode& operator=(const DeviceCode&) = delete;
  ~DeviceCode();

  // `parameters` point to the arguments. The context is current.
  void launch(int64_t programs, void* stream, void** parameters) const;
};

std::shared_ptr<const DeviceCode> device_code(PyObject* kernel);  // of a DeviceKernel; TypeError otherwise
bool add_driver_types(PyObject* module);

}  // namespace framegraph
