// Classifies images with a saved program, in several threads at once, without Python.
//
//     classify mobilenet.fg mobilenet.fg.inputs [threads]
//
// prints a line of scores for each image.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "framegraph.h"

namespace {

constexpr int64_t kChannels = 3, kHeight = 32, kWidth = 32, kImage = kChannels * kHeight * kWidth;

std::vector<float> read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* first = reinterpret_cast<const float*>(bytes.data());
  return {first, first + bytes.size() / sizeof(float)};
}

// The scores of `count` images, row after row; empty if the program refuses them.
std::vector<float> classify(const fg_program* program, float* images, int64_t count) {
  int64_t shape[] = {count, kChannels, kHeight, kWidth};
  DLTensor input{};
  input.data = images;
  input.device = {1, 0};    // CPU
  input.dtype = {2, 32, 1};  // float32
  input.ndim = 4;
  input.shape = shape;
  DLTensor* inputs[] = {&input};
  DLManagedTensor* results[1];
  if (fg_run(program, inputs, 1, results, 1) != 0) {
    std::fprintf(stderr, "%s\n", fg_error());
    return {};
  }
  const DLTensor& scores = results[0]->dl_tensor;
  const auto* first = reinterpret_cast<const float*>(static_cast<const char*>(scores.data) + scores.byte_offset);
  std::vector<float> found(first, first + scores.shape[0] * scores.shape[1]);
  results[0]->deleter(results[0]);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s PROGRAM INPUTS [THREADS]\n", argv[0]);
    return 2;
  }
  fg_program* const program = fg_load(argv[1], nullptr);
  if (program == nullptr) {
    std::fprintf(stderr, "%s\n", fg_error());
    return 1;
  }
  std::vector<float> images = read(argv[2]);
  const auto count = static_cast<int64_t>(images.size()) / kImage;

  // One program serves all threads.
  std::vector<std::vector<float>> scores(argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 1);
  std::vector<std::thread> threads;
  for (auto& mine : scores) {
    threads.emplace_back([&] { mine = classify(program, images.data(), count); });
  }
  for (std::thread& thread : threads) thread.join();
  fg_free(program);

  for (const auto& mine : scores) {
    if (mine.empty() || mine != scores[0]) return 1;
  }
  const size_t classes = scores[0].size() / static_cast<size_t>(count);
  for (size_t i = 0; i < scores[0].size(); ++i) {
    std::printf("%.9g%c", scores[0][i], (i + 1) % classes == 0 ? '\n' : ' ');
  }
  return 0;
}
