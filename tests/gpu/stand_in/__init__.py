"""A stand-in for a GPU: programs run through torch's own dispatch to CUDA on a machine without one.

    cudart.cpp      the CUDA runtime, preloaded: the device's memory is this process's
    cudnn.cpp       what torch asks of cuDNN besides its operators
    driver.cpp      the driver: that of tests/inductor/stub_libcuda.cpp, and more
    building.py     builds these, and tells the environment of a process
    aten.py         operators of CUDA tensors run on the CPU; only_cuda.py has those it lacks
    launching.py    kernels of plans: in Triton's interpreter, or compiled and recorded
    programs.py     what runs, with cuda_programs.py and graph_programs.py; harness.py compares,
                    running.py is a process of it, __main__.py the command

What it cannot tell: whether a kernel is right on a device, races between streams, times.
"""
