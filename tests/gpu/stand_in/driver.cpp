// The driver's stand-in, as for plans on the CPU, with what torch's libraries ask for besides.
#include "../../inductor/stub_libcuda.cpp"

EXPORT int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}

EXPORT int cuCtxSetCurrent(void* context) {
  contexts.assign(1, context);
  return 0;
}
