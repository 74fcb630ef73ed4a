#include "driver.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "../../../fxgraph/csrc/callable.h"

namespace framegraph {
namespace {

PyObject* device_error_type = nullptr;

// Numbers of the driver's interface, which never change.
constexpr int kOutOfMemory = 2;
constexpr int kAttributeMajor = 75, kAttributeMinor = 76, kAttributeSharedOptIn = 97;
constexpr int kFunctionLocalBytes = 3, kFunctionRegisters = 4, kFunctionDynamicShared = 8;
constexpr unsigned kPlainShared = 48 << 10;  // bytes that need no asking for

struct Remedy {
  int code;
  const char* text;
};

constexpr const char* kLate =
    "A kernel launched before may have caused this: devices report late. CUDA_LAUNCH_BLOCKING=1 tells which; "
    "options={\"aten_ops\": [...]} leaves operators to aten. The device works again in a new process.";
constexpr const char* kAnother = "The kernel was compiled for another device: leave options={\"target\": ...} out, or "
                                 "name this device's.";
constexpr const char* kLost = "The device no longer answers: see nvidia-smi and the system's log; a new process, or a "
                              "reset of the device, may help.";

constexpr Remedy kRemedies[] = {
    {kOutOfMemory, "Smaller batches, torch.cuda.empty_cache(), or fewer processes on this device leave more memory."},
    {3, "After a fork the driver does not work: start processes with the method \"spawn\"."},
    {4, "The driver has shut down, as it does when the interpreter exits: make no calls from then on."},
    {46, kLost},
    {100, "No device is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES."},
    {101, "There is no device of this number: see CUDA_VISIBLE_DEVICES."},
    {200, kAnother},
    {209, kAnother},
    {218, kAnother},
    {214, kLost},
    {304, "The system's driver does not match the installed library: restart, or install both of one version."},
    {500, "The kernel is not in its module: clear the cache folder (python -m dynamo doctor names this)."},
    {700, kLate},
    {701, "The kernel needs more registers or memory than a program may have here: options={\"aten_ops\": [...]}."},
    {702, kLate},
    {710, kLate},
    {714, kLate},
    {715, kLate},
    {716, kLate},
    {717, kLate},
    {718, kLate},
    {719, kLate},
    {900, "While a device graph is captured, this is not allowed: call once before capturing."},
    {901, "While a device graph is captured, this is not allowed: call once before capturing."},
    {999, kLost},
};

const char* remedy(int code) {
  for (const Remedy& one : kRemedies) {
    if (one.code == code) return one.text;
  }
  return "See the CUDA driver's documentation of this error; DYNAMO_DISABLE=1 runs without compiled kernels.";
}

}  // namespace

PyObject* DeviceError::python_type() { return device_error_type; }

// --- the driver -----------------------------------------------------------------------------------

std::shared_ptr<Driver> Driver::open(const std::string& path, PyObject* current_stream) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw DeviceError(std::string("no CUDA driver: ") + (why != nullptr ? why : path) +
                      ". Install the NVIDIA driver; in a container, start it with the devices (--gpus all).");
  }
  auto driver = std::make_shared<Driver>();
  driver->path_ = path;
  // The library stays open: a driver cannot be unloaded from a process.
#define FRAMEGRAPH_FIND(name, symbol, parameters)                                                             \
  driver->name = reinterpret_cast<int(*) parameters>(dlsym(library, symbol));                                \
  if (driver->name == nullptr) {                                                                              \
    throw DeviceError("the CUDA driver " + path + " has no function " symbol                                  \
                      ": it is older than CUDA 11. Install a newer driver.");                                 \
  }
  FRAMEGRAPH_DRIVER(FRAMEGRAPH_FIND)
#undef FRAMEGRAPH_FIND
  driver->check(driver->init(0), "cuInit");
  Py_INCREF(current_stream);
  driver->current_stream_ = current_stream;
  return driver;
}

Driver::~Driver() {
  if (current_stream_ == nullptr || !Py_IsInitialized()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(current_stream_);
  PyGILState_Release(state);
}

void Driver::fail(int code, const std::string& what) const {
  const char *name = nullptr, *text = nullptr;
  if (get_error_name(code, &name) != 0 || name == nullptr) name = "an unknown error";
  if (get_error_string(code, &text) != 0 || text == nullptr) text = "no description";
  std::string whole =
      "framegraph: " + what + " failed with " + name + " (" + std::to_string(code) + "): " + text + ". " + remedy(code);
  if (code == kOutOfMemory) TORCH_CHECK_WITH(OutOfMemoryError, false, whole);
  throw DeviceError(std::move(whole));
}

int Driver::count() const {
  int found = 0;
  check(device_get_count(&found), "cuDeviceGetCount");
  return found;
}

std::shared_ptr<const DeviceContext> Driver::context(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = static_cast<size_t>(std::max(device, 0));
  if (contexts_.size() <= place) contexts_.resize(place + 1);
  if (auto known = contexts_[place].lock()) return known;
  int handle = 0;
  check(device_get(&handle, device), "cuDeviceGet " + std::to_string(device));
  DeviceContext made;
  check(device_get_attribute(&made.major, kAttributeMajor, handle), "cuDeviceGetAttribute");
  check(device_get_attribute(&made.minor, kAttributeMinor, handle), "cuDeviceGetAttribute");
  check(device_get_attribute(&made.shared_limit, kAttributeSharedOptIn, handle), "cuDeviceGetAttribute");
  check(primary_context_retain(&made.handle, handle), "cuDevicePrimaryCtxRetain");
  made.driver = shared_from_this();
  made.device = device;
  std::shared_ptr<const DeviceContext> kept(new DeviceContext(std::move(made)), [handle](DeviceContext* context) {
    context->driver->primary_context_release(handle);
    delete context;
  });
  contexts_[place] = kept;
  return kept;
}

void* Driver::stream(int device) const {
  PyObject* number = PyLong_FromLong(device);
  PyObject* found = number == nullptr ? nullptr : PyObject_CallOneArg(current_stream_, number);
  Py_XDECREF(number);
  if (found == nullptr) throw python_error();
  void* handle = PyLong_AsVoidPtr(found);
  Py_DECREF(found);
  if (handle == nullptr && PyErr_Occurred() != nullptr) throw python_error();
  return handle;
}

void ContextScope::change(const DeviceContext& context) {
  leave();
  const Driver& driver = *context.driver;
  void* current = nullptr;
  driver.check(driver.context_get_current(&current), "cuCtxGetCurrent");
  if (current != context.handle) {
    driver.check(driver.context_push(context.handle), "cuCtxPushCurrent");
    pushed_ = true;
  }
  entered_ = &context;
}

void ContextScope::leave() {
  if (pushed_) {
    void* popped = nullptr;
    entered_->driver->context_pop(&popped);
  }
  pushed_ = false;
  entered_ = nullptr;
}

// --- kernels --------------------------------------------------------------------------------------

DeviceCode::~DeviceCode() {
  if (module == nullptr) return;
  try {
    ContextScope scope;
    scope.enter(*context);
    context->driver->module_unload(module);  // after an error, or at exit, the driver may refuse
  } catch (const std::exception&) {
  }
}

void DeviceCode::launch(int64_t programs, void* stream, void** parameters) const {
  if (programs <= 0) return;
  if (programs > INT_MAX) throw DeviceError("framegraph: " + name + " has more programs than a launch may have");
  const int code = context->driver->launch_kernel(function, static_cast<unsigned>(programs), 1, 1, threads, 1, 1,
                                                  shared, stream, parameters, nullptr);
  if (C10_UNLIKELY(code != 0)) context->driver->check(code, "the launch of " + name);
}

namespace {

std::shared_ptr<DeviceCode> load(const std::shared_ptr<Driver>& driver, const char* image, const char* name, int device,
                                 unsigned threads, unsigned shared, unsigned hidden, bool aligned) {
  auto code = std::make_shared<DeviceCode>();
  code->context = driver->context(device);
  code->name = name;
  code->threads = threads;
  code->shared = shared;
  code->hidden = hidden;
  code->aligned = aligned;
  if (shared > static_cast<unsigned>(code->context->shared_limit)) {
    throw DeviceError("framegraph: " + code->name + " needs " + std::to_string(shared) + " bytes of shared memory, but device " +
                      std::to_string(device) + " has " + std::to_string(code->context->shared_limit) + ". " + remedy(701));
  }
  ContextScope scope;
  scope.enter(*code->context);
  driver->check(driver->module_load_data(&code->module, image), "loading " + code->name);
  driver->check(driver->module_get_function(&code->function, code->module, name), "finding " + code->name);
  driver->check(driver->function_get_attribute(&code->registers, kFunctionRegisters, code->function), "cuFuncGetAttribute");
  driver->check(driver->function_get_attribute(&code->spills, kFunctionLocalBytes, code->function), "cuFuncGetAttribute");
  if (shared > kPlainShared) {
    driver->check(driver->function_set_attribute(code->function, kFunctionDynamicShared, static_cast<int>(shared)),
                  "shared memory for " + code->name);
  }
  return code;
}

struct DriverObject {
  PyObject_HEAD
  std::shared_ptr<Driver>* driver;
};

struct KernelObject {
  PyObject_HEAD
  std::shared_ptr<const DeviceCode>* code;
};

extern PyTypeObject KernelType;

PyObject* driver_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"path", "current_stream", nullptr};
  const char* path = nullptr;
  PyObject* stream = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO", const_cast<char**>(names), &path, &stream)) return nullptr;
  auto driver = Driver::open(path, stream);
  auto* self = reinterpret_cast<DriverObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->driver = new std::shared_ptr<Driver>(std::move(driver));
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

void driver_dealloc(PyObject* object) {
  delete reinterpret_cast<DriverObject*>(object)->driver;
  Py_TYPE(object)->tp_free(object);
}

PyObject* driver_count(PyObject* object, PyObject*) {
  HANDLE_TH_ERRORS
  return PyLong_FromLong((*reinterpret_cast<DriverObject*>(object)->driver)->count());
  END_HANDLE_TH_ERRORS
}

PyObject* driver_capability(PyObject* object, PyObject* device) {
  HANDLE_TH_ERRORS
  const long number = PyLong_AsLong(device);
  if (number == -1 && PyErr_Occurred() != nullptr) return nullptr;
  const auto context = (*reinterpret_cast<DriverObject*>(object)->driver)->context(static_cast<int>(number));
  return Py_BuildValue("(ii)", context->major, context->minor);
  END_HANDLE_TH_ERRORS
}

PyObject* driver_load(PyObject* object, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"image", "name", "device", "threads", "shared", "hidden", "aligned", nullptr};
  PyObject* image = nullptr;
  const char* name = nullptr;
  int device = 0, aligned = 0;
  unsigned threads = 0, shared = 0, hidden = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "SsiIIIp", const_cast<char**>(names), &image, &name, &device, &threads,
                                   &shared, &hidden, &aligned)) {
    return nullptr;
  }
  std::shared_ptr<Driver> driver = *reinterpret_cast<DriverObject*>(object)->driver;
  std::shared_ptr<const DeviceCode> code;
  {
    py::gil_scoped_release released;
    code = load(driver, PyBytes_AS_STRING(image), name, device, threads, shared, hidden, aligned != 0);
  }
  auto* self = reinterpret_cast<KernelObject*>(KernelType.tp_alloc(&KernelType, 0));
  if (self == nullptr) return nullptr;
  self->code = new std::shared_ptr<const DeviceCode>(std::move(code));
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

PyMethodDef driver_methods[] = {
    {"count", driver_count, METH_NOARGS, "count() -> int: devices."},
    {"capability", driver_capability, METH_O, "capability(device) -> (major, minor)."},
    {"load", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(driver_load)), METH_VARARGS | METH_KEYWORDS,
     "load(image, name, device, threads, shared, hidden, aligned) -> DeviceKernel: the function `name` of a cubin."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject DriverType = [] {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "inductor.runtime._plan.Driver";
  type.tp_doc = "Driver(path, current_stream): the CUDA driver; DeviceError where there is none that works.";
  type.tp_basicsize = sizeof(DriverObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_new = driver_new;
  type.tp_dealloc = driver_dealloc;
  type.tp_methods = driver_methods;
  return type;
}();

void kernel_dealloc(PyObject* object) {
  delete reinterpret_cast<KernelObject*>(object)->code;
  Py_TYPE(object)->tp_free(object);
}

const DeviceCode& code_of(PyObject* object) { return **reinterpret_cast<KernelObject*>(object)->code; }

PyObject* kernel_launch(PyObject* object, PyObject* args) {
  HANDLE_TH_ERRORS
  long long programs = 0;
  PyObject* given = nullptr;
  if (!PyArg_ParseTuple(args, "LO!", &programs, &PyTuple_Type, &given)) return nullptr;
  const DeviceCode& code = code_of(object);
  const auto count = static_cast<size_t>(PyTuple_GET_SIZE(given));
  std::vector<uint64_t> slots(count + code.hidden);
  std::vector<void*> parameters;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i < count) slots[i] = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(i)));
    parameters.push_back(&slots[i]);
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  void* stream = code.context->driver->stream(code.context->device);
  ContextScope scope;
  scope.enter(*code.context);
  code.launch(programs, stream, parameters.data());
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef kernel_methods[] = {
    {"launch", kernel_launch, METH_VARARGS,
     "launch(programs, arguments: tuple[int, ...]): one launch on the current stream, of addresses and sizes."},
    {nullptr, nullptr, 0, nullptr}};

PyObject* kernel_registers(PyObject* object, void*) { return PyLong_FromLong(code_of(object).registers); }
PyObject* kernel_spills(PyObject* object, void*) { return PyLong_FromLong(code_of(object).spills); }
PyObject* kernel_device(PyObject* object, void*) { return PyLong_FromLong(code_of(object).context->device); }
PyObject* kernel_aligned(PyObject* object, void*) { return PyBool_FromLong(code_of(object).aligned); }

PyGetSetDef kernel_getset[] = {{"registers", kernel_registers, nullptr, "of a thread", nullptr},
                               {"spills", kernel_spills, nullptr, "bytes of a thread's memory", nullptr},
                               {"device", kernel_device, nullptr, "its number", nullptr},
                               {"aligned", kernel_aligned, nullptr, "whether pointers have to be aligned", nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject KernelType = [] {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "inductor.runtime._plan.DeviceKernel";
  type.tp_doc = "A kernel in a device's memory, made by Driver.load().";
  type.tp_basicsize = sizeof(KernelObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  type.tp_dealloc = kernel_dealloc;
  type.tp_methods = kernel_methods;
  type.tp_getset = kernel_getset;
  return type;
}();

}  // namespace

std::shared_ptr<const DeviceCode> device_code(PyObject* kernel) {
  TORCH_CHECK_TYPE(PyObject_TypeCheck(kernel, &KernelType), "a DeviceKernel is expected, got ", Py_TYPE(kernel)->tp_name);
  return *reinterpret_cast<KernelObject*>(kernel)->code;
}

bool add_driver_types(PyObject* module) {
  device_error_type = PyErr_NewExceptionWithDoc("inductor.runtime._plan.DeviceError",
                                                "A device, or its driver, refused; the text says what to do.",
                                                PyExc_RuntimeError, nullptr);
  return device_error_type != nullptr && PyModule_AddObjectRef(module, "DeviceError", device_error_type) == 0 &&
         add_type(module, &DriverType, "Driver") && add_type(module, &KernelType, "DeviceKernel");
}

}  // namespace framegraph
