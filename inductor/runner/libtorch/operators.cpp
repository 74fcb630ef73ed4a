// Operators by libtorch's dispatcher: found by name when a program is loaded, called boxed.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "../operators.h"
#include "framegraph_libtorch.h"

namespace {

using c10::IValue;
using c10::TypeKind;
using fg::Argument;
using fg::Made;
using fg::Window;

struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Kind>
struct Named {
  const char* name;
  Kind kind;
};

constexpr Named<c10::ScalarType> kTypes[] = {
    {"float32", c10::kFloat}, {"float64", c10::kDouble},          {"float16", c10::kHalf},
    {"int64", c10::kLong},    {"int32", c10::kInt},               {"bool", c10::kBool},
    {"uint8", c10::kByte},    {"bfloat16", c10::kBFloat16},       {"int8", c10::kChar},
    {"int16", c10::kShort},   {"uint16", c10::kUInt16},           {"uint32", c10::kUInt32},
    {"uint64", c10::kUInt64}, {"complex64", c10::kComplexFloat},  {"complex128", c10::kComplexDouble}};

constexpr Named<c10::MemoryFormat> kFormats[] = {{"contiguous_format", c10::MemoryFormat::Contiguous},
                                                 {"preserve_format", c10::MemoryFormat::Preserve},
                                                 {"channels_last", c10::MemoryFormat::ChannelsLast},
                                                 {"channels_last_3d", c10::MemoryFormat::ChannelsLast3d}};

constexpr Named<c10::Layout> kLayouts[] = {{"strided", c10::Layout::Strided}};

template <class Kind, size_t N>
Kind by_name(const Named<Kind> (&table)[N], const std::string& name) {
  for (const auto& row : table) {
    if (name == row.name) return row.kind;
  }
  throw Failed("'" + name.substr(0, 80) + "' is nothing that this runner knows");
}

c10::TypePtr without_optional(c10::TypePtr type) {
  while (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type;
}

bool is_tensor(const c10::TypePtr& type) { return type->kind() == TypeKind::TensorType; }

at::Tensor wrapped(const c10::Scalar& number) {
  at::Tensor scalar = at::scalar_tensor(number, at::TensorOptions(number.type()));
  scalar.unsafeGetTensorImpl()->set_wrapped_number(true);
  return scalar;
}

// The arguments of a call.
struct Given {
  const std::vector<at::Tensor>& tensors;
  const std::vector<int64_t>& numbers;
};

// Arguments as a schema's types want them, with the tensors and numbers of a call.
class Converter {
 public:
  explicit Converter(const Given& given) : given_(given) {}

  IValue convert(const Argument& argument, const c10::TypePtr& declared, int32_t fixed) const {
    if (argument.kind == Argument::None) return {};
    const c10::TypePtr type = without_optional(declared);
    switch (type->kind()) {
      case TypeKind::TensorType:
        return argument.kind == Argument::Tensor ? tensor(argument) : wrapped(number(argument).toScalar());
      case TypeKind::NumberType:
        return number(argument);
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return integer(argument);
      case TypeKind::FloatType:
      case TypeKind::SymFloatType:
        return real(argument);
      case TypeKind::BoolType:
      case TypeKind::SymBoolType:
        return integer(argument) != 0;
      case TypeKind::StringType:
        return text(argument, Argument::String);
      case TypeKind::DeviceObjType:
        return c10::Device(text(argument, Argument::Device));
      case TypeKind::ListType:
        return list(argument, type->expectRef<c10::ListType>().getElementType(), fixed);
      default:
        throw Failed("arguments of the type " + type->str());
    }
  }

 private:
  at::Tensor tensor(const Argument& argument) const {
    if (argument.kind != Argument::Tensor) throw Failed("an argument that is no tensor");
    return given_.tensors.at(static_cast<size_t>(argument.integer));
  }

  IValue number(const Argument& argument) const {
    if (argument.kind == Argument::Real) return argument.real;
    if (argument.kind == Argument::Bool) return argument.integer != 0;
    return integer(argument);
  }

  double real(const Argument& argument) const {
    return argument.kind == Argument::Real ? argument.real : static_cast<double>(integer(argument));
  }

  // Schemas call dtypes, layouts and memory formats ints.
  int64_t integer(const Argument& argument) const {
    switch (argument.kind) {
      case Argument::Int:
      case Argument::Bool:
        return argument.integer;
      case Argument::Number:
        return given_.numbers.at(static_cast<size_t>(argument.integer));
      case Argument::DType:
        return static_cast<int64_t>(by_name(kTypes, argument.text));
      case Argument::Layout:
        return static_cast<int64_t>(by_name(kLayouts, argument.text));
      case Argument::MemoryFormat:
        return static_cast<int64_t>(by_name(kFormats, argument.text));
      default:
        throw Failed("an argument that is no number");
    }
  }

  static const std::string& text(const Argument& argument, Argument::Kind kind) {
    if (argument.kind != kind) throw Failed("an argument that is no text");
    return argument.text;
  }

  template <class T, class Convert>
  static IValue list_of(const Argument& argument, int32_t fixed, Convert convert) {
    c10::List<T> made;
    if (argument.kind == Argument::List) {
      for (const Argument& item : argument.items) made.push_back(convert(item));
    } else {  // a number stands for a list of the schema's fixed length: stride=2 for int[2]
      for (int32_t i = 0; i < std::max(fixed, 1); ++i) made.push_back(convert(argument));
    }
    return made;
  }

  IValue list(const Argument& argument, const c10::TypePtr& element, int32_t fixed) const {
    switch (element->kind()) {
      case TypeKind::TensorType:
        return list_of<at::Tensor>(argument, fixed, [&](const Argument& item) { return tensor(item); });
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return list_of<int64_t>(argument, fixed, [&](const Argument& item) { return integer(item); });
      case TypeKind::FloatType:
      case TypeKind::SymFloatType:
        return list_of<double>(argument, fixed, [&](const Argument& item) { return real(item); });
      case TypeKind::BoolType:
        return list_of<bool>(argument, fixed, [&](const Argument& item) { return integer(item) != 0; });
      default:
        break;
    }
    if (is_tensor(without_optional(element))) {
      using Optional = std::optional<at::Tensor>;
      return list_of<Optional>(argument, fixed, [&](const Argument& item) {
        return item.kind == Argument::None ? Optional() : Optional(tensor(item));
      });
    }
    c10::impl::GenericList made(element);
    for (const Argument& item : argument.items) made.push_back(convert(item, element, 0));
    return made;
  }

  const Given given_;
};

// Dispatch below autograd: no result requires grad.
struct BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard autograd{c10::autograd_dispatch_keyset_with_ADInplaceOrView};
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

// The results of one call, as libtorch laid them out.
class Found final : public fg::Results {
 public:
  Found(std::string name, torch::jit::Stack stack) : name_(std::move(name)) {
    for (IValue& result : stack) {
      IValue one = std::exchange(result, IValue());
      if (one.isTensorList()) {
        for (at::Tensor& item : one.toTensorVector()) found_.emplace_back(std::move(item));
      } else {
        found_.push_back(std::move(one));
      }
    }
  }

  int64_t number(size_t result, int64_t dim) const override {
    const IValue one = result < found_.size() ? found_[result] : IValue();
    if (dim >= 0 && one.isTensor() && one.toTensor().defined() && dim < one.toTensor().dim()) return one.toTensor().size(dim);
    if (dim < 0 && one.isBool()) return one.toBool();
    if (dim < 0 && one.isScalar()) return one.toScalar().toLong();
    throw Failed(name_ + " gives no such number");
  }

  std::vector<Made> keep(const std::vector<Window>& windows) override {
    try {
      const BelowAutograd guard;
      std::vector<Made> made;
      for (size_t i = 0; i < windows.size(); ++i) {
        if (i >= found_.size()) throw Failed(name_ + " has fewer results than the plan");
        IValue one = std::exchange(found_[i], IValue());
        const bool read = windows[i].type != nullptr;
        made.push_back(read ? keep(one.isTensor() ? std::move(one).toTensor() : at::Tensor(), windows[i]) : Made());
      }
      return made;
    } catch (const c10::Error& error) {
      throw Failed(name_ + ": " + error.what_without_backtrace());
    }
  }

 private:
  // A result in the layout that the rest of the plan was made for, in memory that nothing else has.
  Made keep(at::Tensor result, const Window& wanted) const {
    const auto type = by_name(kTypes, wanted.type);
    if (!result.defined() || result.scalar_type() != type || !result.sizes().equals(wanted.size) ||
        !result.device().is_cpu()) {
      std::ostringstream text;
      text << name_ << " gives ";
      if (result.defined()) text << result.scalar_type() << result.sizes() << " on " << result.device();
      else text << "no tensor";
      text << "; the plan was made for " << type << c10::IntArrayRef(wanted.size);
      throw Failed(text.str());
    }
    const bool shared = result.use_count() > 1 || !result.has_storage() || result.storage().use_count() > 1;
    if (shared || result._is_zerotensor() || result.is_conj() || result.is_neg() || !same_layout(result, wanted)) {
      at::Tensor copy = at::empty_strided(wanted.size, wanted.stride, result.options());
      result = copy.copy_(result);
    }
    auto owner = std::make_shared<at::Tensor>(std::move(result));
    void* const data = owner->mutable_data_ptr();
    return {std::move(owner), data};
  }

  static bool same_layout(const at::Tensor& tensor, const Window& wanted) {
    if (tensor.numel() == 0) return true;
    for (size_t d = 0; d < wanted.size.size(); ++d) {
      if (wanted.size[d] != 1 && tensor.stride(static_cast<int64_t>(d)) != wanted.stride[d]) return false;
    }
    return true;
  }

  const std::string name_;
  std::vector<IValue> found_;
};

class Call final : public fg::Operator {
 public:
  Call(c10::OperatorHandle handle, const std::vector<Argument>& args) : handle_(std::move(handle)) {
    const auto& schema = handle_.schema();
    size_t position = 0;
    while (position < args.size() && args[position].keyword.empty()) ++position;
    size_t used = 0;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::Argument& declared = schema.arguments()[i];
      const auto named = std::find_if(args.begin(), args.end(),
                                      [&](const Argument& a) { return !a.keyword.empty() && a.keyword == declared.name(); });
      if (i < position || named != args.end()) {
        push(i < position ? args[i] : *named, declared);
        ++used;
      } else if (declared.default_value()) {
        stack_.push_back(*declared.default_value());
      } else {
        throw Failed("it misses the argument " + declared.name());
      }
    }
    if (used != args.size()) throw Failed("it does not take these arguments");
  }

  std::unique_ptr<fg::Results> call(const std::vector<Window>& tensors, const std::vector<int64_t>& numbers) const override {
    try {
      const BelowAutograd guard;
      std::vector<at::Tensor> given;
      for (const Window& window : tensors) given.push_back(over(window));
      torch::jit::Stack stack = arguments({given, numbers});
      handle_.callBoxed(&stack);
      return std::make_unique<Found>(handle_.schema().name(), std::move(stack));
    } catch (const c10::Error& error) {
      throw Failed(handle_.schema().name() + ": " + error.what_without_backtrace());
    }
  }

 private:
  static at::Tensor over(const Window& window) {
    const auto options = at::TensorOptions(by_name(kTypes, window.type));
    return at::from_blob(window.data, window.size, window.stride, options);
  }

  // An argument that is the same for all calls, or else the place of one that each call converts.
  void push(const Argument& argument, const c10::Argument& declared) {
    const bool varies = differs(argument);
    const c10::TypePtr type = without_optional(declared.type());
    if (argument.kind == Argument::Tensor && !is_tensor(type)) throw Failed(declared.name() + " is no tensor");
    if (varies) patches_.push_back({stack_.size(), argument});
    stack_.push_back(varies ? IValue() : Converter({{}, {}}).convert(argument, type, declared.N().value_or(0)));
  }

  static bool differs(const Argument& argument) {
    return argument.kind == Argument::Tensor || argument.kind == Argument::Number ||
           std::any_of(argument.items.begin(), argument.items.end(), differs);
  }

  torch::jit::Stack arguments(const Given& given) const {
    const auto& declared = handle_.schema().arguments();
    const Converter converter(given);
    torch::jit::Stack stack = stack_;
    for (const auto& [place, argument] : patches_) {
      stack[place] = converter.convert(argument, declared[place].type(), declared[place].N().value_or(0));
    }
    return stack;
  }

  c10::OperatorHandle handle_;
  torch::jit::Stack stack_;
  std::vector<std::pair<size_t, Argument>> patches_;
};

std::unique_ptr<fg::Operator> find(const char* name, const char* overload, const std::vector<Argument>& args) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle) throw Failed("this libtorch has none of this name");
  return std::make_unique<Call>(*handle, args);
}

constexpr fg_operators kOperators{"libtorch", find};

}  // namespace

extern "C" const fg_operators* fg_libtorch(void) { return &kOperators; }
