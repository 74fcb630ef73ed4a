// framegraph::running_product_backward: the gradient of cumprod, in one pass from the end of each row.
#include <ATen/ATen.h>
#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

namespace framegraph::recurrent {
namespace {

constexpr int64_t GRAIN = 8192;  // elements that a thread is worth while for

// A row of n elements, `step` apart.
template <class T> struct Row {
  const T *grad, *x, *y;
  T* result;
  int64_t n, step;

  int64_t zero(int64_t from) const {
    while (from < n && x[from * step] != T(0)) ++from;
    return from;
  }

  // Before the first zero: the sum of all products that have x as a factor, over x. Sums of four are added at once, for
  // additions one after the other wait for each other.
  template <class A> void before_zero(int64_t end) const {
    A sum = 0;
    int64_t k = end;
    auto product = [&](int64_t k) {
      const T rounded = y[k * step] * grad[k * step];
      return static_cast<A>(rounded);
    };
    for (; k >= 4; k -= 4) {
      const A three = product(k - 1), two = three + product(k - 2);
      const A one = two + product(k - 3), all = one + product(k - 4);
      result[(k - 1) * step] = static_cast<T>(sum + three);
      result[(k - 2) * step] = static_cast<T>(sum + two);
      result[(k - 3) * step] = static_cast<T>(sum + one);
      sum += all;
      result[(k - 4) * step] = static_cast<T>(sum);
    }
    for (; k > 0; --k) result[(k - 1) * step] = static_cast<T>(sum += product(k - 1));
    if (step == 1)
      for (k = 0; k < end; ++k) result[k] = result[k] / x[k];
    else
      for (k = 0; k < end; ++k) result[k * step] = result[k * step] / x[k * step];
  }

  // At the first zero: products without it, up to the second one. Behind it, nothing changes the products.
  template <class A> void from_zero(int64_t first) const {
    const int64_t second = zero(first + 1);
    A product = 1, sum = static_cast<A>(grad[first * step]);
    for (int64_t k = first + 1; k < second; ++k) {
      product *= static_cast<A>(x[k * step]);
      const T term = static_cast<T>(product) * grad[k * step];
      sum += static_cast<A>(term);
    }
    const T before = first ? y[(first - 1) * step] : T(1);
    result[first * step] = static_cast<T>(sum) * before;
    for (int64_t k = first + 1; k < n; ++k) result[k * step] = T(0);
  }
};

at::Tensor running_product_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y, int64_t dim) {
  at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor grads = grad.contiguous(), xs = x.contiguous(), ys = y.contiguous();
  at::Tensor result = at::empty(xs.sizes(), xs.options());
  if (!xs.numel()) return result;
  const int64_t n = xs.size(dim), inner = xs.stride(dim), rows = xs.numel() / n;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, xs.scalar_type(), "running_product_backward", [&] {
    const scalar_t *g = grads.const_data_ptr<scalar_t>(), *a = xs.const_data_ptr<scalar_t>(),
                   *b = ys.const_data_ptr<scalar_t>();
    scalar_t* out = result.data_ptr<scalar_t>();
    at::parallel_for(0, rows, std::max<int64_t>(1, GRAIN / n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = r / inner * inner * n + r % inner;
        const Row<scalar_t> row{g + at, a + at, b + at, out + at, n, inner};
        const int64_t zero = row.zero(0);
        row.template before_zero<at::acc_type<scalar_t, false>>(zero);
        if (zero < n) row.template from_zero<at::acc_type<scalar_t, false>>(zero);
      }
    });
  });
  return result;
}

TORCH_LIBRARY_IMPL(framegraph, CPU, m) { m.impl("running_product_backward", running_product_backward); }

}  // namespace
}  // namespace framegraph::recurrent
