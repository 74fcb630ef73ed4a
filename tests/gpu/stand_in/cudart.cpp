// A stand-in for the CUDA runtime, preloaded before torch's: a device whose memory is this process's. Work is done when
// it is asked for, so streams and events only keep order while a graph is captured: what is asked for then is a list of
// nodes, run at each launch of the graph. A node is a copy, or a number that a callback (stand_in_on_node) runs.
// Kernels of torch's own libraries cannot run: their launch names them and fails.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

// Opaque to callers; the names are those of the header's handles.
struct CUgraph_st {
  std::vector<std::function<void()>> nodes;
  bool broken = false;
};
struct CUstream_st {
  int device, priority;
};
struct CUevent_st {
  double at = 0;
  CUgraph_st* capture = nullptr;
  bool recorded = false;
};
struct CUgraphExec_st {
  CUgraph_st graph;
};

namespace {

constexpr int kDevices = 2;
constexpr size_t kBytes = size_t{139} << 30;  // of a device

std::recursive_mutex mutex;
std::map<std::pair<int, cudaStream_t>, CUgraph_st*> captures;
std::map<char*, std::pair<size_t, cudaPointerAttributes>> memory;  // by its start
size_t used[kDevices];
std::map<const void*, std::string> kernels;  // by the function of the host that stands for them
void (*on_node)(long) = nullptr;
thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

using Lock = std::lock_guard<std::recursive_mutex>;

cudaError_t failed(cudaError_t code) { return last = code; }

double now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The default streams are one for each device.
std::pair<int, cudaStream_t> key(cudaStream_t stream) {
  const bool own = stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
  return {own ? stream->device : current, own ? stream : nullptr};
}

CUgraph_st* capture_of(cudaStream_t stream) {
  const auto found = captures.find(key(stream));
  return found == captures.end() ? nullptr : found->second;
}

cudaError_t work(cudaStream_t stream, std::function<void()> run) {
  const Lock lock(mutex);
  if (CUgraph_st* graph = capture_of(stream)) {
    graph->nodes.push_back(std::move(run));
  } else {
    run();
  }
  return cudaSuccess;
}

cudaError_t waited(CUgraph_st* graph) {
  if (graph == nullptr) return cudaSuccess;
  graph->broken = true;
  return failed(cudaErrorStreamCaptureUnsupported);
}

cudaError_t allocate(void** address, size_t bytes, cudaMemoryType type) {
  const Lock lock(mutex);
  const bool device = type == cudaMemoryTypeDevice;
  if (device && used[current] + bytes > kBytes) return failed(cudaErrorMemoryAllocation);
  const size_t whole = std::max<size_t>(bytes, 1);
  void* made = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  cudaPointerAttributes about{};
  about.type = type;
  about.device = current;
  about.devicePointer = made;
  about.hostPointer = device ? nullptr : made;
  memory[static_cast<char*>(made)] = {whole, about};
  if (device) used[current] += whole;
  *address = made;
  return cudaSuccess;
}

cudaError_t release(void* address) {
  if (address == nullptr) return cudaSuccess;
  const Lock lock(mutex);
  const auto found = memory.find(static_cast<char*>(address));
  if (found == memory.end()) return failed(cudaErrorInvalidValue);
  const auto& [bytes, about] = found->second;
  if (about.type == cudaMemoryTypeDevice) used[about.device] -= bytes;
  munmap(address, bytes);
  memory.erase(found);
  return cudaSuccess;
}

cudaError_t no_kernel(const void* function) {
  const auto found = kernels.find(function);
  std::fprintf(stderr, "stand-in: torch launches a kernel of its own: %s\n",
               found == kernels.end() ? "unknown" : found->second.c_str());
  return failed(cudaErrorInvalidDeviceFunction);
}

// Functions of the driver that its stand-in lacks: each says its name when called.
std::vector<std::string> lacking;
template <size_t N>
int lacks() {
  std::fprintf(stderr, "stand-in: the driver has no %s\n", lacking[N].c_str());
  return 801;
}
template <size_t... N>
std::vector<void*> all_lacking(std::index_sequence<N...>) {
  return {reinterpret_cast<void*>(lacks<N>)...};
}

}  // namespace

// --- for tests ------------------------------------------------------------------------------------

EXPORT void stand_in_on_node(void (*function)(long)) { on_node = function; }

// Makes a number a node of the graph that the stream is captured into; false if it is not.
EXPORT bool stand_in_captures(cudaStream_t stream, int device, long number) {
  const Lock lock(mutex);
  const auto found = captures.find({device, stream});
  if (found == captures.end()) return false;
  if (number >= 0) found->second->nodes.push_back([number] { on_node(number); });
  return true;
}

// --- devices --------------------------------------------------------------------------------------

EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return failed(cudaErrorInvalidDevice);
  current = device;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* about, int device) {
  std::memset(about, 0, sizeof *about);
  std::strcpy(about->name, "NVIDIA H200");
  about->totalGlobalMem = kBytes;
  about->sharedMemPerBlock = 48 << 10;
  about->sharedMemPerBlockOptin = 227 << 10;
  about->sharedMemPerMultiprocessor = 228 << 10;
  about->regsPerBlock = about->regsPerMultiprocessor = 65536;
  about->warpSize = 32;
  about->maxThreadsPerBlock = 1024;
  about->maxThreadsPerMultiProcessor = 2048;
  about->maxBlocksPerMultiProcessor = 32;
  about->maxThreadsDim[0] = about->maxThreadsDim[1] = 1024;
  about->maxThreadsDim[2] = 64;
  about->maxGridSize[0] = 2147483647;
  about->maxGridSize[1] = about->maxGridSize[2] = 65535;
  about->totalConstMem = 65536;
  about->major = 9;
  about->minor = 0;
  about->multiProcessorCount = 132;
  about->l2CacheSize = 60 << 20;
  about->unifiedAddressing = about->managedMemory = about->concurrentKernels = about->ECCEnabled = 1;
  about->pciBusID = device;
  about->textureAlignment = 512;
  return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    default: *value = 1;
  }
  return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device);
  return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSynchronize() {
  const Lock lock(mutex);
  for (const auto& [stream, graph] : captures) {
    if (stream.first == current) return waited(graph);
  }
  return cudaSuccess;
}

// --- errors ---------------------------------------------------------------------------------------

EXPORT const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfTheStandIn";
}

EXPORT const char* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    default: return "an error of the stand-in";
  }
}

EXPORT cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }

EXPORT cudaError_t cudaPeekAtLastError() { return last; }

// --- memory ---------------------------------------------------------------------------------------

EXPORT cudaError_t cudaMalloc(void** address, size_t bytes) { return allocate(address, bytes, cudaMemoryTypeDevice); }

EXPORT cudaError_t cudaFree(void* address) { return release(address); }

EXPORT cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  return allocate(address, bytes, cudaMemoryTypeHost);
}

EXPORT cudaError_t cudaFreeHost(void* address) { return release(address); }

EXPORT cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  const Lock lock(mutex);
  cudaPointerAttributes about{};
  about.type = cudaMemoryTypeHost;
  about.device = current;
  about.devicePointer = about.hostPointer = address;
  memory[static_cast<char*>(address)] = {bytes, about};
  return cudaSuccess;
}

EXPORT cudaError_t cudaHostUnregister(void* address) {
  const Lock lock(mutex);
  memory.erase(static_cast<char*>(address));
  return cudaSuccess;
}

EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* about, const void* address) {
  const Lock lock(mutex);
  auto* place = static_cast<char*>(const_cast<void*>(address));
  auto found = memory.upper_bound(place);
  *about = {};
  about->type = cudaMemoryTypeUnregistered;
  if (found == memory.begin()) return cudaSuccess;
  --found;
  if (place < found->first + found->second.first) *about = found->second.second;
  return cudaSuccess;
}

EXPORT bool stand_in_reaches(int device, const void* address) {
  cudaPointerAttributes about;
  cudaPointerGetAttributes(&about, address);
  return about.type == cudaMemoryTypeHost || (about.type == cudaMemoryTypeDevice && about.device == device);
}

EXPORT cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Lock lock(mutex);
  *free = kBytes - used[current];
  *total = kBytes;
  return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return work(stream, [=] { std::memmove(to, from, bytes); });
}

EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

EXPORT cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return work(stream, [=] { std::memset(to, value, bytes); });
}

EXPORT cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }

// --- streams and events ---------------------------------------------------------------------------

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  *stream = new CUstream_st{current, priority};
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }  // a capture may name it

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream == nullptr ? 0 : stream->priority;
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock(mutex);
  return waited(capture_of(stream));
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(mutex);
  return waited(capture_of(stream));
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(mutex);
  if (event->capture != nullptr) captures[key(stream)] = event->capture;
  return cudaSuccess;
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return work(stream, [=] { function(data); });
}

EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
  return work(stream, [=] { function(stream, cudaSuccess, data); });
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  const Lock lock(mutex);
  event->capture = capture_of(stream);
  event->at = now();
  event->recorded = true;
  return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(mutex);
  return waited(event->capture);
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaEventQuery(event); }

EXPORT cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  if (!start->recorded || !end->recorded) return failed(cudaErrorInvalidResourceHandle);
  *ms = static_cast<float>(end->at - start->at);
  return cudaSuccess;
}

// --- graphs ---------------------------------------------------------------------------------------

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(mutex);
  if (capture_of(stream) != nullptr) return failed(cudaErrorIllegalState);
  captures[key(stream)] = new CUgraph_st;
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(mutex);
  CUgraph_st* const made = capture_of(stream);
  *graph = nullptr;
  if (made == nullptr) return failed(cudaErrorIllegalState);
  for (auto item = captures.begin(); item != captures.end();) {
    item = item->second == made ? captures.erase(item) : std::next(item);
  }
  if (made->broken) return failed(cudaErrorStreamCaptureInvalidated);
  *graph = made;
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock(mutex);
  const CUgraph_st* graph = capture_of(stream);
  *status = graph == nullptr   ? cudaStreamCaptureStatusNone
            : graph->broken ? cudaStreamCaptureStatusInvalidated
                            : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                            unsigned long long* id, cudaGraph_t* graph, const cudaGraphNode_t**,
                                            const cudaGraphEdgeData**, size_t* dependencies) {
  const Lock lock(mutex);
  CUgraph_st* const made = capture_of(stream);
  if (id != nullptr) *id = reinterpret_cast<unsigned long long>(made);
  if (graph != nullptr) *graph = made;
  if (dependencies != nullptr) *dependencies = 0;
  return cudaStreamIsCapturing(stream, status);
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = graph->nodes.size();
  return cudaSuccess;
}

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = new CUgraphExec_st{*graph};
  return cudaSuccess;
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  for (const auto& run : graph->graph.nodes) run();
  return cudaSuccess;
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

// --- kernels, and the driver ----------------------------------------------------------------------

EXPORT void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}

EXPORT void __cudaRegisterFatBinaryEnd(void**) {}

EXPORT void __cudaUnregisterFatBinary(void**) {}

EXPORT void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*, void*,
                                   void*, int*) {
  const Lock lock(mutex);
  kernels[function] = name;
}

EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

EXPORT unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t) { return 0; }

EXPORT cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return no_kernel(kernel);
}

EXPORT cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t) {
  return no_kernel(function);
}

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* function, void**) {
  return no_kernel(function);
}

EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* about, const void*) {
  std::memset(about, 0, sizeof *about);
  about->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}

EXPORT cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t,
                                                                          unsigned) {
  *blocks = 1;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                                    cudaDriverEntryPointQueryResult* status) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  static const std::vector<void*> others = all_lacking(std::make_index_sequence<128>());
  const Lock lock(mutex);
  *function = driver == nullptr ? nullptr : dlsym(driver, symbol);
  if (*function == nullptr && lacking.size() < others.size()) {
    lacking.push_back(symbol);
    *function = others[lacking.size() - 1];
  }
  if (status != nullptr) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
