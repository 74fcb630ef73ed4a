// A stand-in for libcuda.so: it records what a driver is asked for, and fails at any call on demand. Its device is this
// process: an address is an address here, and a launch calls back what stands for the kernel's code.
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Callback = void (*)(const char* name, unsigned programs, const uint64_t* arguments, unsigned count);

struct Function {
  std::string name;
  unsigned parameters;
};

struct Module {
  std::vector<Function*> functions;
  unsigned parameters;
};

struct Launch {
  Function* function;
  unsigned programs, threads, shared;
  void* stream;
  std::vector<uint64_t> arguments;
};

struct Graph {
  std::vector<Launch> launches;
};

struct Failure {
  int code = 0;
  int after = 0;
};

std::recursive_mutex mutex;
std::vector<std::string> entries;
std::map<std::string, Failure> failures;
std::map<void*, Graph*> captures;  // by stream
std::map<std::string, int> live;
std::set<void*> broken;  // streams whose capture was invalidated
int lost = 0;            // an error that every call returns from now on
Callback callback = nullptr;
thread_local std::vector<void*> contexts;
char primary[8];  // a context for each device
int references[8];

void record(const std::string& text) { entries.push_back(text); }

bool lasting(int code) { return code == 46 || code == 214 || code == 700 || code == 719 || code == 999; }

// The code to return from a function, 0 to go on.
int enter(const char* name) {
  if (lost != 0) return lost;
  auto found = failures.find(name);
  if (found == failures.end() || found->second.after-- > 0) return 0;
  const int code = found->second.code;
  failures.erase(found);
  if (lasting(code)) lost = code;
  return code;
}

#define ENTER(name)                                            \
  const std::lock_guard<std::recursive_mutex> lock(mutex);     \
  if (const int code = enter(name)) return code

std::string describe(const Launch& launch) {
  std::ostringstream text;
  text << launch.function->name << " programs=" << launch.programs << " threads=" << launch.threads
       << " shared=" << launch.shared << " stream=" << reinterpret_cast<uintptr_t>(launch.stream) << " arguments=";
  for (size_t i = 0; i < launch.arguments.size(); ++i) text << (i ? "," : "") << launch.arguments[i];
  return text.str();
}

void run(const Launch& launch) {
  if (callback == nullptr) return;
  callback(launch.function->name.c_str(), launch.programs, launch.arguments.data(),
           static_cast<unsigned>(launch.arguments.size()));
}

// Parameters of the one kernel of an ELF image, as its records of them count: 04 17 0c 00, or 04 45 0c 00.
unsigned parameters_of(const unsigned char* image) {
  uint64_t sections;
  uint16_t size, count;
  std::memcpy(&sections, image + 0x28, 8);
  std::memcpy(&size, image + 0x3a, 2);
  std::memcpy(&count, image + 0x3c, 2);
  const uint64_t end = sections + uint64_t{size} * count;
  unsigned found = 0;
  for (uint64_t i = 0; i + 4 <= end; ++i) {
    found += image[i] == 4 && (image[i + 1] == 0x17 || image[i + 1] == 0x45) && image[i + 2] == 0x0c && image[i + 3] == 0;
  }
  return found;
}

}  // namespace

// --- for tests --------------------------------------------------------------------------------------

EXPORT void stub_reset() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  entries.clear();
  failures.clear();
  captures.clear();
  broken.clear();
  lost = 0;
  callback = nullptr;
}

// Fails the call of a function after so many that succeed.
EXPORT void stub_fail(const char* function, int code, int after) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  failures[function] = {code, after};
}

// Whether the failure of a function is still to come.
EXPORT int stub_armed(const char* function) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return failures.count(function) != 0;
}

EXPORT void stub_on_launch(Callback given) { callback = given; }

EXPORT int stub_live(const char* kind) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return live[kind];
}

EXPORT int stub_contexts() { return static_cast<int>(contexts.size()); }

EXPORT const char* stub_log() {
  static std::string text;
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  text.clear();
  for (const std::string& entry : entries) text += entry + "\n";
  return text.c_str();
}

EXPORT void stub_forget() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  entries.clear();
}

// --- the driver's functions -------------------------------------------------------------------------

EXPORT int cuInit(unsigned) {
  ENTER("cuInit");
  return 0;
}

EXPORT int cuGetErrorName(int code, const char** name) {
  static std::string text;
  text = "CUDA_ERROR_STUB_" + std::to_string(code);
  *name = text.c_str();
  return 0;
}

EXPORT int cuGetErrorString(int, const char** text) {
  *text = "told to fail";
  return 0;
}

EXPORT int cuDeviceGetCount(int* count) {
  ENTER("cuDeviceGetCount");
  *count = 2;
  return 0;
}

EXPORT int cuDeviceGet(int* handle, int number) {
  ENTER("cuDeviceGet");
  if (number < 0 || number > 1) return 101;
  *handle = number;
  return 0;
}

EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER("cuDeviceGetAttribute");
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 97 ? 232448 : 1;
  return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER("cuDevicePrimaryCtxRetain");
  ++live["context"];
  ++references[device];
  *context = &primary[device];
  return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  --live["context"];
  --references[device];
  return 0;
}

EXPORT int cuCtxGetCurrent(void** context) {
  ENTER("cuCtxGetCurrent");
  *context = contexts.empty() ? nullptr : contexts.back();
  return 0;
}

EXPORT int cuCtxPushCurrent_v2(void* context) {
  ENTER("cuCtxPushCurrent");
  contexts.push_back(context);
  return 0;
}

EXPORT int cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return 201;
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}

EXPORT int cuModuleLoadData(void** module, const void* image) {
  ENTER("cuModuleLoadData");
  if (contexts.empty()) return 201;
  if (!captures.empty()) {
    for (const auto& item : captures) broken.insert(item.first);
    return 900;
  }
  if (std::memcmp(image, "\177ELF", 4) != 0) return 200;
  auto* made = new Module{{}, parameters_of(static_cast<const unsigned char*>(image))};
  ++live["module"];
  record("load parameters=" + std::to_string(made->parameters));
  *module = made;
  return 0;
}

EXPORT int cuModuleUnload(void* module) {
  ENTER("cuModuleUnload");
  auto* made = static_cast<Module*>(module);
  for (Function* function : made->functions) delete function;
  delete made;
  --live["module"];
  record("unload");
  return 0;
}

EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER("cuModuleGetFunction");
  auto* made = static_cast<Module*>(module);
  made->functions.push_back(new Function{name, made->parameters});
  *function = made->functions.back();
  record(std::string("function ") + name);
  return 0;
}

EXPORT int cuFuncGetAttribute(int* value, int attribute, void*) {
  ENTER("cuFuncGetAttribute");
  *value = attribute == 4 ? 32 : 0;
  return 0;
}

EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  record("attribute " + static_cast<Function*>(function)->name + " " + std::to_string(attribute) + "=" +
         std::to_string(value));
  return 0;
}

#ifndef WITHOUT_LAUNCH
EXPORT int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned,
                          unsigned shared, void* stream, void** parameters, void**) {
  Launch launch{static_cast<Function*>(function), x, threads, shared, stream, {}};
  {
    ENTER("cuLaunchKernel");
    if (contexts.empty()) return 201;
    if (x == 0 || y != 1 || z != 1) return 1;
    for (unsigned i = 0; i < launch.function->parameters; ++i) {
      launch.arguments.push_back(*static_cast<uint64_t*>(parameters[i]));
    }
    auto capture = captures.find(stream);
    if (capture != captures.end()) {
      record("captured " + describe(launch));
      capture->second->launches.push_back(std::move(launch));
      return 0;
    }
    record("launch " + describe(launch));
  }
  run(launch);  // without the lock: it may wait for Python's
  return 0;
}
#endif

EXPORT int cuStreamBeginCapture_v2(void* stream, int) {
  ENTER("cuStreamBeginCapture");
  if (captures.count(stream) != 0) return 901;
  captures[stream] = new Graph;
  record("begin capture stream=" + std::to_string(reinterpret_cast<uintptr_t>(stream)));
  return 0;
}

EXPORT int cuStreamEndCapture(void* stream, void** graph) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  auto found = captures.find(stream);
  if (found == captures.end()) return 1;
  *graph = found->second;
  captures.erase(found);
  record("end capture");
  if (const int code = enter("cuStreamEndCapture")) return code;
  return broken.erase(stream) != 0 ? 901 : 0;
}

EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  ENTER("cuGraphInstantiate");
  *executable = new Graph(*static_cast<Graph*>(graph));
  ++live["graph"];
  return 0;
}

EXPORT int cuGraphLaunch(void* executable, void* stream) {
  auto* graph = static_cast<Graph*>(executable);
  {
    ENTER("cuGraphLaunch");
    record("replay " + std::to_string(graph->launches.size()) + " stream=" +
           std::to_string(reinterpret_cast<uintptr_t>(stream)));
  }
  for (const Launch& launch : graph->launches) run(launch);
  return 0;
}

EXPORT int cuGraphExecDestroy(void* executable) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  delete static_cast<Graph*>(executable);
  --live["graph"];
  return 0;
}

EXPORT int cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return 0;
}
