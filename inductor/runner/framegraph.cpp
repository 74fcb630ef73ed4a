// The functions of framegraph.h: no exception leaves them.
#include "framegraph.h"

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "run.h"

struct fg_program {
  fg_program(const char* path, const fg_options& options) : runner(path, options.threads, options.operators) {}
  fg::Runner runner;
};

namespace {

thread_local std::string last_error;
thread_local const char* told = "";

void note(const std::string& text) noexcept {
  try {
    last_error = text;
    told = last_error.c_str();
  } catch (...) {
    told = "no memory";
  }
}

// Runs `body`; whether it ended without an exception. `where`: the prefix of messages.
template <class Body>
bool guarded(const char* where, Body body) noexcept {
  try {
    body();
    return true;
  } catch (const std::bad_alloc&) {
    told = "no memory";
  } catch (const std::exception& error) {
    try {
      note(std::string(where) + error.what());
    } catch (...) {
      told = "no memory";
    }
  }
  return false;
}

}  // namespace

extern "C" {

fg_program* fg_load(const char* path, const fg_options* options) {
  fg_program* made = nullptr;
  fg_options used{sizeof(fg_options), 1, nullptr};
  if (path == nullptr) {
    note("fg_load: no path");
    return nullptr;
  }
  if (options != nullptr) {
    if (options->size < sizeof(fg_options) || options->threads < 0 || options->threads > 1024) {
      note("fg_load: options of no size, or of more than 1024 threads");
      return nullptr;
    }
    used = *options;
  }
  try {
    guarded((std::string(path) + ": ").c_str(), [&] { made = new fg_program(path, used); });
  } catch (...) {
    told = "no memory";
  }
  return made;
}

int fg_run(const fg_program* program, DLTensor* const* inputs, int input_count, DLManagedTensor** results,
           int result_count) {
  if (program == nullptr) {
    note("fg_run: no program");
    return -1;
  }
  const bool done = guarded("", [&] { program->runner.run(inputs, input_count, results, result_count); });
  return done ? 0 : -1;
}

const char* fg_error(void) { return told; }

void fg_free(fg_program* program) { delete program; }

int fg_input_count(const fg_program* program) {
  return program == nullptr ? 0 : static_cast<int>(program->runner.program().inputs.size());
}

int fg_result_count(const fg_program* program) {
  return program == nullptr ? 0 : static_cast<int>(program->runner.program().results.size());
}

const char* fg_input_name(const fg_program* program, int index) {
  if (index < 0 || index >= fg_input_count(program)) return nullptr;
  return program->runner.program().inputs[static_cast<size_t>(index)].path.c_str();
}

const char* fg_result_name(const fg_program* program, int index) {
  if (index < 0 || index >= fg_result_count(program)) return nullptr;
  return program->runner.program().results[static_cast<size_t>(index)].path.c_str();
}

}  // extern "C"
