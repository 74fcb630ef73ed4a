// Elementary functions of float, written once for scalars and vectors. Included by vec.h and vec_lanes.h with FG_VEC
// and FG_IVEC naming the float and int32 type. Coefficients: weighted minimax fits in double precision, rounded.

// x within limits, NaN as it is
INLINE FG_VEC limited(FG_VEC x, float end) { return no_less(no_more(x, end), -end); }

INLINE FG_VEC exp(FG_VEC x) {
  typedef FG_VEC V;
  // x = n ln2 + r with |r| <= ln2/2, ln2 in two parts; e^r = 1 + r + r^2 q(r)
  // Where the result rounds to 0, as for -inf, nothing underflows: that takes some processors a hundred times as long.
  auto none = lt(x, lit<V>(-103.972f));
  V c = select(none, lit<V>(0.0f), no_more(x, 89.0f));
  V n = round(c * lit<V>(1.44269504f));
  V r = fma(n, lit<V>(-0.693145751953125f), c);
  r = fma(n, lit<V>(-1.42860677e-6f), r);
  V q = lit<V>(1.9917973e-4f);
  q = fma(q, r, lit<V>(1.394618972e-3f));
  q = fma(q, r, lit<V>(8.333265164e-3f));
  q = fma(q, r, lit<V>(4.166626826e-2f));
  q = fma(q, r, lit<V>(0.16666666857f));
  q = fma(q, r, lit<V>(0.50000000784f));
  V y = fma(q, r * r, r) + lit<V>(1.0f);
  return select(none, lit<V>(0.0f), scale(y, n));
}

INLINE FG_VEC log(FG_VEC x) {
  typedef FG_VEC V;
  typedef FG_IVEC I;
  auto tiny = lt(x, lit<V>(1.17549435e-38f));
  V scaled = select(tiny, x * lit<V>(16777216.0f), x);
  // scaled = 2^e m with m in [sqrt(1/2), sqrt(2))
  I bits = to_bits(scaled);
  I e = (bits - ilit<I>(0x3f3504f3)) >> 23;
  V f = from_bits(bits - (e << 23)) - lit<V>(1.0f);
  V n = to_float(e) - select(tiny, lit<V>(24.0f), lit<V>(0.0f));
  V q = lit<V>(0.067466013f);
  q = fma(q, f, lit<V>(-0.116756413f));
  q = fma(q, f, lit<V>(0.118881746f));
  q = fma(q, f, lit<V>(-0.124055914f));
  q = fma(q, f, lit<V>(0.142195509f));
  q = fma(q, f, lit<V>(-0.166679957f));
  q = fma(q, f, lit<V>(0.200021187f));
  q = fma(q, f, lit<V>(-0.250000096f));
  q = fma(q, f, lit<V>(0.333333126f));
  V s = f * f;
  V low = fma(n, lit<V>(-2.12194440e-4f), s * f * q);
  V y = fma(s, lit<V>(-0.5f), low) + f;
  y = fma(n, lit<V>(0.693359375f), y);
  V inf = lit<V>(__builtin_inff());
  y = select(eq(x, inf), inf, y);
  y = select(eq(x, lit<V>(0.0f)), -inf, y);
  return select(lt(x, lit<V>(0.0f)), lit<V>(__builtin_nanf("")), select(ne(x, x), x, y));
}

INLINE FG_VEC expm1(FG_VEC x) {
  typedef FG_VEC V;
  V q = lit<V>(2.4970255e-5f);
  q = fma(q, x, lit<V>(1.9974020e-4f));
  q = fma(q, x, lit<V>(1.388854344e-3f));
  q = fma(q, x, lit<V>(8.333140749e-3f));
  q = fma(q, x, lit<V>(4.166666927e-2f));
  q = fma(q, x, lit<V>(0.16666667460f));
  q = fma(q, x, lit<V>(0.5f));
  V near = fma(x * x, q, x);
  near = select(eq(x, lit<V>(0.0f)), x, near);  // keeps -0.0
  return select(lt(abs(x), lit<V>(0.5f)), near, exp(x) - lit<V>(1.0f));
}

INLINE FG_VEC log1p(FG_VEC x) {
  typedef FG_VEC V;
  // log(u) x / (u - 1) with u = fl(1 + x): the rounding of u cancels
  V u = x + lit<V>(1.0f), d = u - lit<V>(1.0f);
  V y = log(u) * (x / d);
  y = select(eq(d, lit<V>(0.0f)), x, y);
  return select(gt(abs(u), lit<V>(3.0e38f)), log(u), y);
}

INLINE FG_VEC sigmoid(FG_VEC x) {
  typedef FG_VEC V;
  return lit<V>(1.0f) / (lit<V>(1.0f) + exp(-x));
}

// Odd and rational in x, without an exponential: x P(x^2) / Q(x^2), up to where the result rounds to 1.
INLINE FG_VEC tanh(FG_VEC x) {
  typedef FG_VEC V;
  V c = limited(x, 9.01f), s = c * c;
  V p = lit<V>(2.36335804e-08f);
  p = fma(p, s, lit<V>(3.6525631e-05f));
  p = fma(p, s, lit<V>(0.00620036945f));
  p = fma(p, s, lit<V>(0.237433255f));
  p = fma(p, s, lit<V>(1.77458024f));
  V q = lit<V>(1.37734742e-06f);
  q = fma(q, s, lit<V>(0.000582598092f));
  q = fma(q, s, lit<V>(0.0459100232f));
  q = fma(q, s, lit<V>(0.828959763f));
  q = fma(q, s, lit<V>(1.77458036f));
  return limited(c * p / q, 1.0f);
}

#ifndef FG_ERF  // another that this processor is faster at
INLINE FG_VEC erf(FG_VEC x) {
  typedef FG_VEC V;
  V c = limited(x, 3.925f), s = c * c;
  V p = lit<V>(2.75206321e-06f);
  p = fma(p, s, lit<V>(0.000386697531f));
  p = fma(p, s, lit<V>(0.00517224474f));
  p = fma(p, s, lit<V>(0.0718304738f));
  p = fma(p, s, lit<V>(0.260206759f));
  p = fma(p, s, lit<V>(1.53297782f));
  V q = lit<V>(5.13905434e-05f);
  q = fma(q, s, lit<V>(0.00159009651f));
  q = fma(q, s, lit<V>(0.0204506069f));
  q = fma(q, s, lit<V>(0.155625015f));
  q = fma(q, s, lit<V>(0.683456659f));
  q = fma(q, s, lit<V>(1.3585664f));
  return limited(c * p / q, 1.0f);
}
#endif

// erfc(|x|) = exp(-x^2) u R(u) with u = 1 / (|x| + 2), and R a polynomial of 1 - 4u: one for all x, tails included. What
// rounding takes from x^2, u and R is carried along.
INLINE FG_VEC erfc(FG_VEC x) {
  typedef FG_VEC V;
  V a = abs(x), s = a * a, b = a + lit<V>(2.0f);
  V u = lit<V>(1.0f) / b;
  V u_low = fma(-b, u, lit<V>(1.0f)) - (a - (b - lit<V>(2.0f))) * u;  // as a share of u
  V q = fma(u, lit<V>(-4.0f), lit<V>(1.0f)) - lit<V>(4.0f) * (u * u_low);
  V p = lit<V>(6.98599979e-05f);
  p = fma(p, q, lit<V>(4.76520945e-05f));
  p = fma(p, q, lit<V>(-0.000592584081f));
  p = fma(p, q, lit<V>(-0.000832703314f));
  p = fma(p, q, lit<V>(0.00306244008f));
  p = fma(p, q, lit<V>(0.00647607213f));
  p = fma(p, q, lit<V>(-0.021505665f));
  p = fma(p, q, lit<V>(-0.0364418067f));
  p = fma(p, q, lit<V>(0.279471755f));
  p = fma(p, q, lit<V>(-0.687160671f));
  V c = lit<V>(1.02158272f), r = fma(p, q, c), r_low = fma(p, q, c - r);
  V w = u * r, w_low = fma(u, r, -w) + fma(w, u_low + fma(-a, a, s), u * r_low);
  V e = exp(-s), y = fma(e, w_low, e * w);
  y = select(gt(a, lit<V>(10.06f)), lit<V>(0.0f), y);  // rounds to 0, and the square of x may be infinite
  y = select(lt(x, lit<V>(0.0f)), lit<V>(2.0f) - y, y);
  return select(ne(x, x), x, y);
}
