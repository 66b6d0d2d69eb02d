// A worker: one OS thread of the pool, which runs one block at a time. A fiber runs threads of the block one after
// another until one has to wait. Then the worker switches to a fiber whose thread may continue, or to an idle fiber,
// which takes the block's next thread. A block that never waits is a plain loop, any other costs a switch per thread
// and wait. If none can continue although some have not exited, the block is deadlocked, and the launch fails.
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

const char* const kWaitNames[] = {"",
                                  "__syncthreads",
                                  "__syncwarp",
                                  "__shfl_sync",
                                  "__shfl_up_sync",
                                  "__shfl_down_sync",
                                  "__shfl_xor_sync",
                                  "__ballot_sync",
                                  "__any_sync",
                                  "__all_sync"};

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

/// Returns the lanes of a warp whose threads come before thread `end` of the block.
unsigned lanes_below(unsigned end, unsigned warp) {
    const unsigned first = warp * kWarp;
    if (end <= first) return 0;
    return end - first >= kWarp ? ~0u : (1u << (end - first)) - 1;
}

class Worker {
 public:
    Worker(unsigned index, size_t stack_bytes) : index_(index), stack_bytes_(stack_bytes) {}
    ~Worker() {
        for (void* slab : slabs_) munmap(slab, kSlab * (stack_bytes_ + static_cast<size_t>(sysconf(_SC_PAGESIZE))));
    }

    /// Takes part in a job until no block is left or it is cancelled.
    void work(Job& job) {
        job_ = &job;
#if defined(GPUPC_TSAN)
        // Stacks are allocated now, as the sanitizer would attribute a later allocation to the running CUDA thread.
        const size_t needed = job.block.x * job.block.y * job.block.z;
        while (shadows_.size() < needed) shadows_.push_back(__tsan_create_fiber(0));
#else
        const size_t needed = 1;
#endif
        while (fibers_.size() < needed)
            if (!add_fibers()) return;
        // Each launch allocates exactly its shared memory, so the address sanitizer detects accesses beyond its end.
        void* shared = nullptr;
        if (posix_memalign(&shared, 64, std::max<size_t>(job.shared_bytes, 1)) != 0) {
            job.fail("no host memory for " + std::to_string(job.shared_bytes) + " bytes of shared memory");
            return;
        }
        ThreadState& s = simt_state;
        s = {};
        s.block_dim = job.block;
        s.grid_dim = job.grid;
        // There is no block yet; this state means that all threads of a block have started.
        s.count = s.next = job.block.x * job.block.y * job.block.z;
        s.dynamic_shared = shared;
        block_ = blocks_end_ = 0;
        finished_ = abandoned_ = false;
#if defined(GPUPC_TSAN)
        main_.shadow = __tsan_get_current_fiber();
        next_block_ = index_;
        __tsan_release(&block_order_[0]);
        __tsan_release(&block_order_[1]);
#endif
        switch_to(idle_.pop());
#if defined(GPUPC_TSAN)
        __tsan_acquire(&block_order_[0]);
        __tsan_acquire(&block_order_[1]);
#endif
        if (abandoned_) reset_fibers();
        free(shared);
    }

    /// Makes the block's next thread, or the first thread of the next block, the current one. Returns false if there is
    /// none now.
    bool start_thread() {
        ThreadState& s = simt_state;
        if (s.next == s.count) {
            if (s.tracked && live_ != 0) return false;
            if (!start_block()) {
                finished_ = true;
                return false;
            }
        }
        s.linear = s.next++;
        s.thread.x = s.linear % s.block_dim.x;
        s.thread.y = s.linear / s.block_dim.x % s.block_dim.y;
        s.thread.z = s.linear / s.block_dim.x / s.block_dim.y;
#if defined(GPUPC_TSAN)
        begin_shadow();
#endif
        return true;
    }

    /// Notes that the current thread has exited; returns true if this fiber continues with another thread.
    bool end_thread() {
        ThreadState& s = simt_state;
        if (s.tracked) {
            --live_;
            if (arrived_ != 0 && arrived_ == live_) complete_barrier();
            Warp& warp = warps_[s.linear / kWarp];
            warp.exited |= 1u << (s.linear % kWarp);
            for (unsigned lanes = warp.waiting; lanes != 0;)
                lanes &= complete_warp(warp, warp.lane[__builtin_ctz(lanes)]) ? warp.waiting : lanes - 1;
        }
#if defined(GPUPC_TSAN)
        __tsan_release(&block_order_[blocks_run_ & 1]);
        return false;
#else
        return start_thread();
#endif
    }

    /// Lets the current thread wait for all live threads of the block; returns how many of them have the predicate.
    unsigned sync_block(bool predicate) {
        begin_tracking();
        // Two results suffice, because no thread can pass two more barriers before every thread has read this result.
        const unsigned turn = generation_ & 1;
#if defined(GPUPC_TSAN)
        __tsan_release(&barrier_order_[turn]);
#endif
        matches_ += predicate;
        if (++arrived_ == live_) {
            complete_barrier();
        } else {
            Fiber* const self = current_;
            self->wait = kSyncthreads;
            barrier_.push(self);
            wait_turn(self);
            self->wait = kNowhere;
        }
#if defined(GPUPC_TSAN)
        __tsan_acquire(&barrier_order_[turn]);
#endif
        return barrier_result_[turn];
    }

    /// Lets the current thread wait for the live lanes of its mask; see simt_sync_warp.
    unsigned long long sync_warp(Wait kind, unsigned mask, unsigned long long value, unsigned source) {
        const unsigned linear = simt_state.linear, lane = linear % kWarp;
        if (!(mask >> lane & 1)) {
            char text[128];
            snprintf(text, sizeof text, "lane %u calls %s with mask 0x%08x, which lacks that lane", lane,
                     kWaitNames[kind], mask);
            fail(text);
        }
        begin_tracking();
        Warp& warp = warps_[linear / kWarp];
        Fiber* const self = current_;
        self->wait = kind;
        self->mask = mask;
        self->value = value;
        self->source = source;
        warp.lane[lane] = self;
        warp.waiting |= 1u << lane;
#if defined(GPUPC_TSAN)
        const unsigned lowest = __builtin_ctz(mask);  // Among the operations of a warp only __syncwarp orders memory.
        unsigned char& turn = warp_turn_[linear / kWarp][lowest];
        char* const order = &warp_order_[linear / kWarp][lowest][turn & 1];
        if (kind == kSyncwarp) __tsan_release(order);
        if (complete_warp(warp, self))
            ++turn;
        else
            wait_turn(self);
        if (kind == kSyncwarp) __tsan_acquire(order);
#else
        if (!complete_warp(warp, self)) wait_turn(self);
#endif
        self->wait = kNowhere;
        return self->result;
    }

    /// The loop of a fiber.
    [[noreturn]] void run_fiber() {
        Fiber* const self = current_;
#if defined(GPUPC_ASAN)
        const void* bottom;
        size_t size;
        __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
        if (!main_bottom_) {  // The OS thread enters the first fiber from its own stack.
            main_bottom_ = bottom;
            main_size_ = size;
        }
#endif
        for (;;) {
            while (start_thread()) {
                job_->run(job_->args);
#if defined(GPUPC_TSAN)
                // The block's next thread runs on another stack. On one stack, the sanitizer would report a race
                // between two threads that write to the same address one after the other.
                idle_.push(self);
                Fiber* const other = idle_.pop();
                if (other == self) continue;
                self->shadow = nullptr;
                switch_to(other);
#endif
            }
            Fiber* to = finished_ ? &main_ : next_fiber();
            idle_.push(self);
#if defined(GPUPC_TSAN)
            self->shadow = nullptr;
#endif
            switch_to(to);
        }
    }

 private:
    bool take_blocks() {
#if defined(GPUPC_TSAN)
        // Blocks are assigned in turn, not on request, so that consecutive blocks always run on different OS threads.
        block_ = next_block_;
        blocks_end_ = block_ + 1;
        next_block_ += job_->workers;
        return block_ < job_->blocks;
#else
        return job_->take(block_, blocks_end_);
#endif
    }

    bool start_block() {
        ThreadState& s = simt_state;
        if (job_->cancelled.load(std::memory_order_relaxed)) return false;
        if (block_ + 1 < blocks_end_) {
            ++block_;
            advance(s.block, s.grid_dim);
        } else {
            if (!take_blocks()) return false;
            s.block.x = static_cast<unsigned>(block_ % s.grid_dim.x);
            s.block.y = static_cast<unsigned>(block_ / s.grid_dim.x % s.grid_dim.y);
            s.block.z = static_cast<unsigned>(block_ / s.grid_dim.x / s.grid_dim.y);
        }
        s.next = 0;
        s.tracked = false;
#if defined(GPUPC_ASAN)
        // The memory is poisoned, so that a kernel that reads before it writes fails.
        memset(s.dynamic_shared, 0xFD, job_->shared_bytes);
#elif defined(GPUPC_TSAN)
        ++blocks_run_;
#endif
        return true;
    }

#if defined(GPUPC_TSAN)
    void begin_shadow() {
        current_->shadow = shadows_[simt_state.linear];
        __tsan_switch_to_fiber(current_->shadow, __tsan_switch_to_fiber_no_sync);
        __tsan_acquire(&block_order_[(blocks_run_ & 1) ^ 1]);
    }
#endif

    /// Is called when a thread of the block waits. If it is the first that does, all threads before it have exited.
    void begin_tracking() {
        ThreadState& s = simt_state;
        if (s.tracked) return;
        s.tracked = true;
        live_ = s.count - s.linear;
        arrived_ = matches_ = 0;
        for (unsigned w = 0; w * kWarp < s.count; ++w) {
            warps_[w].exited = lanes_below(s.linear, w) | ~lanes_below(s.count, w);
            warps_[w].waiting = 0;
        }
    }

    void complete_barrier() {
        barrier_result_[generation_++ & 1] = matches_;
        arrived_ = matches_ = 0;
        ready_.take_all(barrier_);
    }

    /// Makes the lanes that wait with `member` ready, unless a lane has not arrived. The running fiber just continues.
    bool complete_warp(Warp& warp, const Fiber* member) {
        const unsigned group = member->mask & ~warp.exited;
        if ((warp.waiting & group) != group) return false;
        unsigned long long votes = 0;
        for (unsigned lanes = group; lanes != 0; lanes &= lanes - 1) {
            const unsigned lane = __builtin_ctz(lanes);
            const Fiber* other = warp.lane[lane];
            if (other->wait != member->wait || other->mask != member->mask) return false;
            if (other->value != 0) votes |= 1ull << lane;
        }
        const bool vote = member->wait >= kBallot;
        warp.waiting &= ~group;
        for (unsigned lanes = group; lanes != 0; lanes &= lanes - 1) {
            Fiber* other = warp.lane[__builtin_ctz(lanes)];
            const bool from_group = other->source < kWarp && (group >> other->source & 1);
            other->result = vote ? votes : from_group ? warp.lane[other->source]->value : other->value;
            if (other != current_) ready_.push(other);
        }
        return true;
    }

    void wait_turn(Fiber* self) {
        ThreadState& s = simt_state;
        self->thread = s.thread;
        self->linear = s.linear;
        switch_to(next_fiber());
        s.thread = self->thread;
        s.linear = self->linear;
    }

    /// Returns the fiber to which the current one switches when it has to wait.
    Fiber* next_fiber() {
        if (job_->cancelled.load(std::memory_order_relaxed)) abandon();
        if (Fiber* fiber = ready_.pop()) return fiber;
        if (simt_state.next == simt_state.count) fail(describe_deadlock());
        return idle_fiber();
    }

    Fiber* idle_fiber() {
        if (!idle_.head && !add_fibers()) abandon();
        return idle_.pop();
    }

    bool add_fibers() {
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const size_t each = stack_bytes_ + page;
        void* slab =
            mmap(nullptr, kSlab * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (slab == MAP_FAILED) {
            job_->fail("no memory for thread stacks (" + std::to_string(kSlab * each) +
                       " bytes asked for): " + strerror(errno) + "; set GPUPC_HOST_STACK_KIB lower");
            return false;
        }
        slabs_.push_back(slab);
        for (unsigned i = 0; i < kSlab; ++i) {
            char* low = static_cast<char*>(slab) + i * each;
            mprotect(low, page,
                     PROT_NONE);  // This is a guard page, which is left out if the system has no more mappings.
            auto fiber = std::make_unique<Fiber>();
            fiber->stack = low + page;
            // Stacks a power of two apart would map to the same cache sets, so each begins at another cache line.
            fiber->stack_bytes = stack_bytes_ - 64 * (fibers_.size() * 5 % 64);
            prepare(fiber.get());
            idle_.push(fiber.get());
            fibers_.push_back(std::move(fiber));
        }
        return true;
    }

    /// Makes all fibers idle after their threads were abandoned.
    void reset_fibers() {
        idle_.head = ready_.head = barrier_.head = nullptr;
        for (auto& fiber : fibers_) {
            prepare(fiber.get());
            fiber->wait = kNowhere;
#if defined(GPUPC_ASAN)
            __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes);
#elif defined(GPUPC_TSAN)
            fiber->shadow = nullptr;
#endif
            idle_.push(fiber.get());
        }
    }

    /// Switches to another fiber; returns when another fiber switches back to the current one.
    void switch_to(Fiber* to, bool for_ever = false) {
        Fiber* const from = current_;
        current_ = to;
#if defined(GPUPC_ASAN)
        const bool to_main = to == &main_;
        __sanitizer_start_switch_fiber(for_ever ? nullptr : &from->fake_stack, to_main ? main_bottom_ : to->stack,
                                       to_main ? main_size_ : to->stack_bytes);
#elif defined(GPUPC_TSAN)
        if (to->shadow) __tsan_switch_to_fiber(to->shadow, __tsan_switch_to_fiber_no_sync);
#endif
        (void)for_ever;
        switch_fiber(from, to);
#if defined(GPUPC_ASAN)
        __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
    }

    [[noreturn]] void fail(const std::string& message) {
        job_->fail(message);
        abandon();
    }

    /// Abandons all threads of the block where they wait.
    [[noreturn]] void abandon() {
        abandoned_ = true;
        switch_to(&main_, true);
        abort();
    }

    /// Describes how many threads of a deadlocked block wait at which places.
    std::string describe_deadlock() const {
        const ThreadState& s = simt_state;
        std::string text = "block (" + std::to_string(s.block.x) + ", " + std::to_string(s.block.y) + ", " +
                           std::to_string(s.block.z) + ") is deadlocked; of " + std::to_string(s.count) + " threads " +
                           std::to_string(s.count - live_) + " have exited";
        std::vector<const Fiber*> waiting;
        for (auto& fiber : fibers_)
            if (fiber->wait != kNowhere) waiting.push_back(fiber.get());
        auto same_place = [](const Fiber* a, const Fiber* b) {
            return a->wait == b->wait && (a->wait == kSyncthreads || a->mask == b->mask);
        };
        for (int places = 0; !waiting.empty() && places < 8; ++places) {
            const Fiber* first = waiting.front();
            auto rest = std::partition(waiting.begin(), waiting.end(), [&](auto* f) { return same_place(f, first); });
            text += ", " + std::to_string(rest - waiting.begin()) + " wait at " + kWaitNames[first->wait];
            if (first->wait != kSyncthreads) {
                char mask[32];
                snprintf(mask, sizeof mask, "(mask 0x%08x)", first->mask);
                text += mask;
            }
            waiting.erase(waiting.begin(), rest);
        }
        return text;
    }

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
