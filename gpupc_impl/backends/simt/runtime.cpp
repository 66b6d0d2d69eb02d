// The runtime of the host backend: the execution of blocks by a worker (worker.hpp), the pool of OS threads, and the
// functions that kernels and Python call.
//
// All of the runtime is one translation unit, so that ending a thread and starting the next one costs no call.
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

// --- Fibers ------------------------------------------------------------------------------------------------------

bool Worker::add_fibers() {
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
        mprotect(low, page, PROT_NONE);  // This is a guard page, which is left out if the system has no more mappings.
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

Worker::~Worker() {
    for (void* slab : slabs_) munmap(slab, kSlab * (stack_bytes_ + static_cast<size_t>(sysconf(_SC_PAGESIZE))));
}

Fiber* Worker::idle_fiber() {
    if (!idle_.head && !add_fibers()) abandon();
    return idle_.pop();
}

/// Switches to another fiber; returns when another fiber switches back to the current one.
void Worker::switch_to(Fiber* to, bool for_ever) {
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

/// Abandons all threads of the block where they wait.
void Worker::abandon() {
    abandoned_ = true;
    switch_to(&main_, true);
    abort();
}

void Worker::run_fiber() {
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
            // The block's next thread runs on another stack. On one stack, the sanitizer would report a race between
            // two threads that write to the same address one after the other.
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

/// Returns the fiber to which the current one switches when it has to wait.
Fiber* Worker::next_fiber() {
    if (job_->cancelled.load(std::memory_order_relaxed)) abandon();
    if (Fiber* fiber = ready_.pop()) return fiber;
    if (simt_state.next == simt_state.count) fail(describe_deadlock());
    return idle_fiber();
}

void Worker::wait_turn(Fiber* self) {
    ThreadState& s = simt_state;
    self->thread = s.thread;
    self->linear = s.linear;
    switch_to(next_fiber());
    s.thread = self->thread;
    s.linear = self->linear;
}

void Worker::fail(const std::string& message) {
    job_->fail(message);
    abandon();
}

// --- Blocks and threads ------------------------------------------------------------------------------------------

void Worker::work(Job& job) {
    job_ = &job;
#if defined(GPUPC_TSAN)
    // All stacks are allocated now, because the sanitizer would attribute a later allocation to the running CUDA
    // thread.
    const size_t needed = job.block.x * job.block.y * job.block.z;
    while (shadows_.size() < needed) shadows_.push_back(__tsan_create_fiber(0));
#else
    const size_t needed = 1;
#endif
    while (fibers_.size() < needed)
        if (!add_fibers()) return;
    // Each launch allocates exactly its shared memory, so that the address sanitizer detects accesses beyond its end.
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

/// Makes all fibers idle after their threads were abandoned.
void Worker::reset_fibers() {
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

bool Worker::take_blocks() {
#if defined(GPUPC_TSAN)
    // Blocks are assigned in turn rather than on request, so that consecutive blocks always run on different OS
    // threads.
    block_ = next_block_;
    blocks_end_ = block_ + 1;
    next_block_ += job_->workers;
    return block_ < job_->blocks;
#else
    return job_->take(block_, blocks_end_);
#endif
}

bool Worker::start_block() {
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

bool Worker::start_thread() {
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

bool Worker::end_thread() {
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

#if defined(GPUPC_TSAN)
void Worker::begin_shadow() {
    current_->shadow = shadows_[simt_state.linear];
    __tsan_switch_to_fiber(current_->shadow, __tsan_switch_to_fiber_no_sync);
    __tsan_acquire(&block_order_[(blocks_run_ & 1) ^ 1]);
}
#endif

// --- Waiting -----------------------------------------------------------------------------------------------------

/// Returns the lanes of a warp whose threads come before thread `end` of the block.
unsigned lanes_below(unsigned end, unsigned warp) {
    const unsigned first = warp * kWarp;
    if (end <= first) return 0;
    return end - first >= kWarp ? ~0u : (1u << (end - first)) - 1;
}

/// Is called when a thread of the block waits. If it is the first that does, all threads before it have exited.
void Worker::begin_tracking() {
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

void Worker::complete_barrier() {
    barrier_result_[generation_++ & 1] = matches_;
    arrived_ = matches_ = 0;
    ready_.take_all(barrier_);
}

unsigned Worker::sync_block(bool predicate) {
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

/// Makes the lanes that wait with `member` ready, unless a lane has not arrived. The running fiber just continues.
bool Worker::complete_warp(Warp& warp, const Fiber* member) {
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

unsigned long long Worker::sync_warp(Wait kind, unsigned mask, unsigned long long value, unsigned source) {
    const unsigned linear = simt_state.linear, lane = linear % kWarp;
    if (!(mask >> lane & 1)) {
        char text[128];
        snprintf(text, sizeof text, "lane %u calls %s with mask 0x%08x, which lacks that lane", lane, kWaitNames[kind],
                 mask);
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
    // Among the operations of a warp only __syncwarp orders memory.
    const unsigned lowest = __builtin_ctz(mask);
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

/// Describes how many threads of a deadlocked block wait at which places.
std::string Worker::describe_deadlock() const {
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

// --- The pool ----------------------------------------------------------------------------------------------------

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
