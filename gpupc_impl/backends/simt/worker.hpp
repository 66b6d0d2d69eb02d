// A worker: one OS thread of the pool, which runs one block at a time.
//
// A fiber runs threads of the block one after another until one of them has to wait. Then the worker switches to a
// fiber whose thread may continue, or to an idle fiber, which takes the block's next thread. A block that never waits
// is therefore a plain loop, and any other block costs one switch per thread and wait. If no thread can continue
// although some have not exited, the block is deadlocked, and the launch fails.
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/simt/fiber.hpp"
#include "backends/simt/state.hpp"

namespace simt {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kWarps = 1024 / kWarp;
constexpr unsigned kSlab = 32;  // the number of stacks that are mapped together

/// What a launch runs, and its progress.
struct Job {
    void (*run)(void**);
    void** args;
    uint3 grid, block;
    size_t shared_bytes;
    unsigned long long blocks;
    unsigned workers;

    std::atomic<unsigned long long> taken{0};
    std::atomic<bool> cancelled{false};
    std::mutex error_mutex;
    std::string error;  // the first error, which cancels the launch

    void fail(const std::string& message) {
        std::lock_guard<std::mutex> lock(error_mutex);
        if (error.empty()) error = message;
        cancelled = true;
    }

    /// Takes consecutive blocks for a worker, fewer of them towards the end of the launch, so that all workers finish
    /// together.
    bool take(unsigned long long& first, unsigned long long& end) {
        first = taken.load(std::memory_order_relaxed);
        do {
            if (first >= blocks) return false;
            const unsigned long long share = (blocks - first) / (8ull * workers);
            end = first + std::min(std::max(share, 1ull), 1024ull);
        } while (!taken.compare_exchange_weak(first, end, std::memory_order_relaxed));
        return true;
    }
};

struct Warp {
    unsigned exited;
    unsigned waiting;
    Fiber* lane[kWarp];
};

class Worker {
 public:
    Worker(unsigned index, size_t stack_bytes) : index_(index), stack_bytes_(stack_bytes) {}
    ~Worker();

    /// Takes part in a job until no block is left or it is cancelled.
    void work(Job& job);

    /// Makes the block's next thread, or the first thread of the next block, the current one. Returns false if there is
    /// none now.
    bool start_thread();
    /// Notes that the current thread has exited; returns true if this fiber continues with another thread.
    bool end_thread();
    /// Lets the current thread wait for all live threads of the block; returns how many of them have the predicate.
    unsigned sync_block(bool predicate);
    /// Lets the current thread wait for the live lanes of its mask; see simt_sync_warp.
    unsigned long long sync_warp(Wait kind, unsigned mask, unsigned long long value, unsigned source);
    /// The loop of a fiber.
    [[noreturn]] void run_fiber();

 private:
    bool take_blocks();
    bool start_block();
    void begin_tracking();
    void complete_barrier();
    bool complete_warp(Warp& warp, const Fiber* member);
    void wait_turn(Fiber* self);
    Fiber* next_fiber();
    Fiber* idle_fiber();
    bool add_fibers();
    void reset_fibers();
    void switch_to(Fiber* to, bool for_ever = false);
    [[noreturn]] void fail(const std::string& message);
    [[noreturn]] void abandon();
    std::string describe_deadlock() const;

    const unsigned index_;
    const size_t stack_bytes_;

    Job* job_ = nullptr;
    unsigned long long block_ = 0, blocks_end_ = 0;  // the blocks that this worker has taken and not run
    bool finished_ = false, abandoned_ = false;

    Fiber main_;  // the context of the OS thread's own stack
    Fiber* current_ = &main_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<void*> slabs_;
    FiberQueue idle_, ready_;

    // The state of the running block, once one of its threads has waited.
    unsigned live_ = 0;  // the threads that have not exited, including those that have not started
    unsigned arrived_ = 0, matches_ = 0, generation_ = 0, barrier_result_[2] = {};
    FiberQueue barrier_;
    Warp warps_[kWarps];

#if defined(GPUPC_TSAN)
    void begin_shadow();
    std::vector<void*> shadows_;         // the sanitizer's threads, one for each thread index
    unsigned long long next_block_ = 0;  // the next block of this worker
    unsigned blocks_run_ = 0;
    // Addresses by which the runtime reports to the sanitizer which accesses are ordered.
    char block_order_[2];                // orders the blocks of a worker, which share memory, one after another
    char barrier_order_[2];              // orders what precedes a barrier before what follows it
    char warp_order_[kWarps][kWarp][2];  // does the same for __syncwarp, by the lowest lane of the mask
    unsigned char warp_turn_[kWarps][kWarp] = {};
#elif defined(GPUPC_ASAN)
    const void* main_bottom_ = nullptr;
    size_t main_size_ = 0;
#endif
};

/// The worker of this OS thread.
thread_local Worker* worker = nullptr;

[[noreturn]] void fiber_main() { worker->run_fiber(); }

}  // namespace
}  // namespace simt
