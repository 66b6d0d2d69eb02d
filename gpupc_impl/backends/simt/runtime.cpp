// The runtime of the host backend: OS threads, each with a worker that runs blocks (worker.hpp), and the functions that
// kernels and Python call. It is one translation unit, so ending a thread and starting the next costs no call.
#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <system_error>
#include <thread>

#include "backends/simt/state.hpp"
#include "backends/simt/worker.hpp"

__thread simt::ThreadState simt_state;

namespace simt {
namespace {

/// OS threads that execute one launch after another, each with a worker of its own.
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

extern "C" {

bool simt_thread_done() { return simt::worker->end_thread(); }

unsigned simt_sync_block(bool predicate) { return simt::worker->sync_block(predicate); }

unsigned long long simt_sync_warp(simt::Wait kind, unsigned mask, unsigned long long value, unsigned source) {
    return simt::worker->sync_warp(kind, mask, value, source);
}

void simt_fence() {
#if defined(GPUPC_TSAN)
    static char order;
    __tsan_acquire(&order);
    __tsan_release(&order);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// --- The interface for Python ------------------------------------------------------------------------------------
/// Creates a pool of OS threads; returns null if the system grants none.
SIMT_API void* simt_pool_new(unsigned workers, size_t stack_bytes) {
    // The program's own threads handle signals; a fault is delivered to the thread that caused it.
    sigset_t all, before;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    void* pool = nullptr;
    try {
        pool = new simt::Pool(workers, stack_bytes);
    } catch (const std::system_error&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return pool;
}

/// Starts a launch; the previous one must have ended. `args` must stay alive until this launch has ended.
SIMT_API void simt_start(void* pool, void (*run)(void**), void** args, const unsigned* grid, const unsigned* block,
                         size_t shared_bytes) {
    static_cast<simt::Pool*>(pool)->start(run, args, grid, block, shared_bytes);
}

/// Waits at most this long for the end of the launch; returns whether it has ended.
SIMT_API bool simt_wait(void* pool, int milliseconds) { return static_cast<simt::Pool*>(pool)->wait(milliseconds); }

/// Cancels the launch: no further block starts, and no running block continues beyond a wait.
SIMT_API void simt_cancel(void* pool) { static_cast<simt::Pool*>(pool)->cancel(); }

/// Returns the error of the launch that ended last; an empty string if there was none.
SIMT_API const char* simt_error(void* pool) { return static_cast<simt::Pool*>(pool)->error(); }
}
