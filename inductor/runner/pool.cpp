#include "pool.h"

#include <algorithm>
#include <atomic>

namespace fg {

// Pieces are taken one by one, by the caller and by whichever threads are free.
struct Pool::Job {
  const std::function<void(int64_t, int64_t)>* body;
  int64_t total, piece, pieces;
  std::atomic<int64_t> next{0}, done{0};
  std::mutex mutex;
  std::condition_variable finished;
};

Pool::Pool(int threads) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Pool::~Pool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::help(Job& job) {
  for (;;) {
    const int64_t piece = job.next.fetch_add(1);
    if (piece >= job.pieces) return;
    const int64_t begin = piece * job.piece;
    (*job.body)(begin, std::min(job.total, begin + job.piece));
    if (job.done.fetch_add(1) + 1 == job.pieces) {
      const std::lock_guard<std::mutex> lock(job.mutex);
      job.finished.notify_all();
    }
  }
}

void Pool::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (ends_) return;
    const std::shared_ptr<Job> job = jobs_.front();
    if (job->next.load() >= job->pieces) {
      jobs_.pop_front();
      continue;
    }
    lock.unlock();
    help(*job);
    lock.lock();
  }
}

void Pool::share(int64_t total, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  grain = std::max<int64_t>(1, grain);
  const auto threads = static_cast<int64_t>(threads_.size()) + 1;
  if (threads == 1 || total <= grain) {
    if (total > 0) body(0, total);
    return;
  }
  const auto job = std::make_shared<Job>();
  job->body = &body;
  job->total = total;
  job->piece = std::max(grain, (total + threads - 1) / threads);
  job->pieces = (total + job->piece - 1) / job->piece;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(job);
  }
  wake_.notify_all();
  help(*job);
  std::unique_lock<std::mutex> lock(job->mutex);
  job->finished.wait(lock, [&] { return job->done.load() == job->pieces; });
}

}  // namespace fg
