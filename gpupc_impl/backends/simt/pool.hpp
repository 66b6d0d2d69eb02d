// The pool: OS threads that execute one launch after another, each with a worker of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/simt/worker.hpp"

namespace simt {
namespace {

class Pool {
 public:
    Pool(unsigned workers, size_t stack_bytes) : started_(workers, false), wake_(workers) {
        try {
            for (unsigned i = 0; i < workers; ++i) threads_.emplace_back([=] { serve(i, stack_bytes); });
        } catch (...) {
            stop();
            throw;
        }
    }
    ~Pool() { stop(); }

    void start(void (*run)(void**), void** args, const unsigned* grid, const unsigned* block, size_t shared_bytes) {
        std::lock_guard<std::mutex> lock(mutex_);
        job_ = std::make_unique<Job>();
        job_->run = run;
        job_->args = args;
        job_->grid = {grid[0], grid[1], grid[2]};
        job_->block = {block[0], block[1], block[2]};
        job_->shared_bytes = shared_bytes;
        job_->blocks = 1ull * grid[0] * grid[1] * grid[2];
        job_->workers = static_cast<unsigned>(std::min<unsigned long long>(threads_.size(), job_->blocks));
        running_ = job_->workers;
        for (unsigned i = 0; i < running_; ++i) {
            started_[i] = true;
            wake_[i].notify_one();
        }
    }

    bool wait(int milliseconds) {
        std::unique_lock<std::mutex> lock(mutex_);
        return done_.wait_for(lock, std::chrono::milliseconds(milliseconds), [this] { return running_ == 0; });
    }

    void cancel() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (job_) job_->cancelled = true;
    }

    const char* error() const { return job_ ? job_->error.c_str() : ""; }

 private:
    void serve(unsigned index, size_t stack_bytes) {
        auto self = std::make_unique<Worker>(index, stack_bytes);
        worker = self.get();
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_[index].wait(lock, [&] { return stopping_ || started_[index]; });
            if (stopping_) return;
            started_[index] = false;
            Job& job = *job_;
            lock.unlock();
            self->work(job);
            lock.lock();
            if (--running_ == 0) done_.notify_all();
        }
    }

    void stop() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
            if (job_) job_->cancelled = true;
            for (auto& each : wake_) each.notify_one();
        }
        for (auto& thread : threads_) thread.join();
    }

    std::mutex mutex_;
    std::vector<char> started_;
    // one condition for each worker, so that a small launch wakes only a few
    std::vector<std::condition_variable> wake_;
    std::condition_variable done_;
    bool stopping_ = false;
    unsigned running_ = 0;
    std::unique_ptr<Job> job_;
    std::vector<std::thread> threads_;
};

}  // namespace
}  // namespace simt
