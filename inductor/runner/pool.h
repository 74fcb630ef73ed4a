// Threads that share the ranges of kernels.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace fg {

// May be used by several callers at once.
class Pool {
 public:
  // threads: the caller's among them.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Calls `body` for pieces of [0, total), each of at least `grain` but for the last; returns when all are done.
  void share(int64_t total, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

 private:
  struct Job;

  void work();
  static void help(Job& job);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fg
