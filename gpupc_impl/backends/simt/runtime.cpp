// Runs blocks on a pool of OS threads and the threads of a block as fibers.
//
// A worker (OS thread) runs one block at a time. A fiber runs threads of that block one after another until one of
// them has to wait; then the worker switches to a fiber whose thread may go on, or to a fresh fiber that takes the
// block's next thread. So a block that never waits is a plain loop, and one that does pays one switch per thread
// and wait. When no thread can go on though some are alive, the block is deadlocked, and the launch fails.
//
// No switch makes a system call, as swapcontext would. On x86-64 a switch is a call of a few lines of assembly whose
// return the processor predicts; elsewhere it is _setjmp/_longjmp, a third as fast, after a start by makecontext.
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "backends/simt/state.hpp"

#if defined(GPUPC_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(GPUPC_TSAN)
// GPUPC_TSAN: only kernels are instrumented for the thread sanitizer; the runtime tells it what orders their accesses.
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__) && !defined(GPUPC_SETJMP)
#define SIMT_ASM_SWITCH 1
extern "C" void simt_switch(void** save_stack_pointer, void* stack_pointer);
asm(R"(
    .pushsection .text
    .type simt_switch, @function
    .hidden simt_switch
    .globl simt_switch
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size simt_switch, . - simt_switch
    .popsection
)");
#elif defined(GPUPC_TSAN)
#error "the thread sanitizer keeps books on setjmp that fibers confuse; replay launches on an x86-64 machine"
#endif

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
constexpr unsigned kWarp = 32;
constexpr unsigned kWarps = 1024 / kWarp;
constexpr unsigned kSlab = 32;  // stacks are mapped this many at a time

struct Fiber {
    Fiber* next = nullptr;  // in the one list that holds it
#if SIMT_ASM_SWITCH
    void* stack_pointer = nullptr;
#else
    jmp_buf registers;
    bool started = true;  // not so those that start() prepares
#endif
    char* stack = nullptr;
    size_t stack_bytes = 0;

    // The waiting thread: who it is, where it waits, what it gives and gets.
    uint3 thread;
    unsigned linear;
    Wait wait = kNowhere;
    unsigned mask, source;
    unsigned long long value, result;

#if defined(GPUPC_ASAN)
    void* fake_stack = nullptr;
#elif defined(GPUPC_TSAN)
    void* shadow = nullptr;  // of its thread
#endif
};

struct FiberQueue {
    Fiber* head = nullptr;
    Fiber* tail = nullptr;

    void push(Fiber* fiber) {
        fiber->next = nullptr;
        (head ? tail->next : head) = fiber;
        tail = fiber;
    }
    Fiber* pop() {
        Fiber* fiber = head;
        if (fiber) head = fiber->next;
        return fiber;
    }
    void take_all(FiberQueue& other) {
        if (!other.head) return;
        (head ? tail->next : head) = other.head;
        tail = other.tail;
        other.head = nullptr;
    }
};

/// One launch: what to run, and how far it is.
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
    std::string error;  // the first one; it cancels the launch

    void fail(const std::string& message) {
        std::lock_guard<std::mutex> lock(error_mutex);
        if (error.empty()) error = message;
        cancelled = true;
    }

    /// The next blocks for a worker, fewer as the end comes near so that all workers end together.
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

[[noreturn]] void fiber_main();

/// One OS thread of the pool and the block it runs.
class Worker {
 public:
    Worker(unsigned index, size_t stack_bytes) : index_(index), stack_bytes_(stack_bytes) {}
    ~Worker();

    /// Takes part in a job until no block is left or it is cancelled.
    void work(Job& job);

    bool start_thread();
    bool end_thread();
    unsigned sync_block(bool predicate);
    unsigned long long sync_warp(Wait kind, unsigned mask, unsigned long long value, unsigned source);
    [[noreturn]] void run_fiber();

 private:
    bool start_block();
    void track();
    void complete_barrier();
    bool complete_warp(Warp& warp, const Fiber* member);
    bool take_blocks();
    void reset_fibers();
    void wait_turn(Fiber* self);
    Fiber* next_fiber();
    Fiber* idle_fiber();
    bool add_fibers();
    void switch_to(Fiber* to, bool for_ever = false);
    [[noreturn]] void fail(const std::string& message);
    [[noreturn]] void abandon();
    std::string deadlock() const;

    const unsigned index_;
    const size_t stack_bytes_;

    Job* job_ = nullptr;
    unsigned long long block_ = 0, blocks_end_ = 0;  // the blocks in hand
    bool finished_ = false, abandoned_ = false;

    Fiber main_;  // the OS thread's own stack
    Fiber* current_ = &main_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<void*> slabs_;
    FiberQueue idle_, ready_;

    // The running block, once one of its threads has waited.
    unsigned live_ = 0;  // threads that have not exited, those not started included
    unsigned arrived_ = 0, matches_ = 0, generation_ = 0, barrier_result_[2] = {};
    FiberQueue barrier_;
    Warp warps_[kWarps];

#if defined(GPUPC_ASAN)
    const void* main_bottom_ = nullptr;
    size_t main_size_ = 0;
#elif defined(GPUPC_TSAN)
    // What the sanitizer is told. To it each CUDA thread is a thread; these places order their accesses.
    void begin_shadow();
    std::vector<void*> shadows_;    // one a thread index
    unsigned long long dealt_ = 0;  // the next block of this worker
    unsigned blocks_run_ = 0;
    char block_order_[2];                // the blocks of a worker, which share memory, one after another
    char barrier_order_[2];              // what comes before a barrier and what comes after it
    char warp_order_[kWarps][kWarp][2];  // the same for __syncwarp, by the lowest lane of its mask
    unsigned char warp_turn_[kWarps][kWarp] = {};
#endif
};

thread_local Worker* worker = nullptr;

[[noreturn]] void fiber_main() { worker->run_fiber(); }

// --- Fibers ------------------------------------------------------------------------------------------------------

#if SIMT_ASM_SWITCH

void start(Fiber* fiber) {
    constexpr size_t kSaved = 6;
    auto top = reinterpret_cast<uintptr_t>(fiber->stack + fiber->stack_bytes) & ~uintptr_t{15};
    auto* place = reinterpret_cast<void**>(top) - 2;  // as if called: 8 bytes off a multiple of 16
    *place = reinterpret_cast<void*>(fiber_main);
    fiber->stack_pointer = std::fill_n(place - kSaved, kSaved, nullptr) - kSaved;
}

void go(Fiber* from, Fiber* to) { simt_switch(&from->stack_pointer, to->stack_pointer); }

#else

void start(Fiber* fiber) { fiber->started = false; }

void go(Fiber* from, Fiber* to) {
    if (_setjmp(from->registers) != 0) return;
    if (to->started) _longjmp(to->registers, 1);
    to->started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = to->stack;
    context.uc_stack.ss_size = to->stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

#endif

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
        mprotect(low, page, PROT_NONE);  // a guard; where the system has no more mappings to give, go without
        auto fiber = std::make_unique<Fiber>();
        fiber->stack = low + page;
        // Stacks a power of two apart would fight for the same lines of the cache: start each at another line.
        fiber->stack_bytes = stack_bytes_ - 64 * (fibers_.size() * 5 % 64);
        start(fiber.get());
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

/// Leaves the current fiber, which returns from here when someone switches back to it.
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
    go(from, to);
#if defined(GPUPC_ASAN)
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

/// Leaves all threads of the block where they are.
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
    if (!main_bottom_) {  // the very first fiber is always entered from the OS thread's own stack
        main_bottom_ = bottom;
        main_size_ = size;
    }
#endif
    for (;;) {
        while (start_thread()) {
            job_->run(job_->args);
#if defined(GPUPC_TSAN)
            // The block's next thread finds a stack that no other of its threads has used: the sanitizer would take
            // what two threads write to the same place there, one after the other, for a race.
            idle_.push(self);
            Fiber* const rested = idle_.pop();
            if (rested == self) continue;
            self->shadow = nullptr;
            switch_to(rested);
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

/// The fiber to go on with when the current one cannot.
Fiber* Worker::next_fiber() {
    if (job_->cancelled.load(std::memory_order_relaxed)) abandon();
    if (Fiber* fiber = ready_.pop()) return fiber;
    if (simt_state.next == simt_state.count) fail(deadlock());
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
    // All up front: what a CUDA thread allocates, the sanitizer takes for its own doing.
    const size_t wanted = job.block.x * job.block.y * job.block.z;
    while (shadows_.size() < wanted) shadows_.push_back(__tsan_create_fiber(0));
#else
    const size_t wanted = 1;
#endif
    while (fibers_.size() < wanted)
        if (!add_fibers()) return;
    // Allocated anew for each launch, to the byte, so that the address sanitizer sees where it ends.
    void* shared = nullptr;
    if (posix_memalign(&shared, 64, std::max<size_t>(job.shared_bytes, 1)) != 0) {
        job.fail("no host memory for " + std::to_string(job.shared_bytes) + " bytes of shared memory");
        return;
    }
    ThreadState& s = simt_state;
    s = {};
    s.block_dim = job.block;
    s.grid_dim = job.grid;
    s.count = s.next = job.block.x * job.block.y * job.block.z;  // no block yet: all its threads have started
    s.dynamic_shared = shared;
    block_ = blocks_end_ = 0;
    finished_ = abandoned_ = false;
#if defined(GPUPC_TSAN)
    main_.shadow = __tsan_get_current_fiber();
    dealt_ = index_;
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

/// Forgets all threads that were left where they waited.
void Worker::reset_fibers() {
    idle_.head = ready_.head = barrier_.head = nullptr;
    for (auto& fiber : fibers_) {
        start(fiber.get());
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
    // Dealt out rather than raced for, so that neighbours always run on different OS threads.
    block_ = dealt_;
    blocks_end_ = block_ + 1;
    dealt_ += job_->workers;
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
    memset(s.dynamic_shared, 0xFD, job_->shared_bytes);  // a kernel that reads before it writes shall not get away
#elif defined(GPUPC_TSAN)
    ++blocks_run_;
#endif
    return true;
}

/// Makes the block's next thread the current one, or the first of the next block. False when there is none now.
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

/// Notes that the current thread has exited; true when this fiber goes on with another.
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

/// The lanes of a warp whose threads come before thread `end` of the block.
unsigned lanes_below(unsigned end, unsigned warp) {
    const unsigned first = warp * kWarp;
    if (end <= first) return 0;
    return end - first >= kWarp ? ~0u : (1u << (end - first)) - 1;
}

/// Called when a thread of the block waits. If it is the first, all threads before it have exited already.
void Worker::track() {
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
    track();
    // Two results suffice: no thread can be two barriers ahead of one that has yet to read its result.
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

/// Lets the lanes that wait with `member` go on, unless one is missing. The running fiber needs no leave.
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
    track();
    Warp& warp = warps_[linear / kWarp];
    Fiber* const self = current_;
    self->wait = kind;
    self->mask = mask;
    self->value = value;
    self->source = source;
    warp.lane[lane] = self;
    warp.waiting |= 1u << lane;
#if defined(GPUPC_TSAN)
    // Of the warp's words only __syncwarp orders memory.
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

/// Says who waits where in a block that cannot go on.
std::string Worker::deadlock() const {
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

/// OS threads that run one launch after another.
class Pool {
 public:
    Pool(unsigned workers, size_t stack_bytes) : go_(workers, false), wake_(workers) {
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
            go_[i] = true;
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
            wake_[index].wait(lock, [&] { return stopping_ || go_[index]; });
            if (stopping_) return;
            go_[index] = false;
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
    std::vector<char> go_;
    std::vector<std::condition_variable> wake_;  // one a worker, so that a small launch wakes few
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

// --- For Python and the replay program ---------------------------------------------------------------------------

/// A pool of OS threads, or null when the system grants none.
SIMT_API void* simt_pool_new(unsigned workers, size_t stack_bytes) {
    // Signals are for the threads of the program that uses us; faults stay with the thread that makes them.
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

SIMT_API void simt_pool_delete(void* pool) { delete static_cast<simt::Pool*>(pool); }

/// Starts a launch; the previous one must have ended. `args` must stay alive until this one has.
SIMT_API void simt_start(void* pool, void (*run)(void**), void** args, const unsigned* grid, const unsigned* block,
                         size_t shared_bytes) {
    static_cast<simt::Pool*>(pool)->start(run, args, grid, block, shared_bytes);
}

/// Waits for the end of the launch, at most so long; true when it has ended.
SIMT_API bool simt_wait(void* pool, int milliseconds) { return static_cast<simt::Pool*>(pool)->wait(milliseconds); }

/// Asks the launch to end early: no further block starts, and none goes past a point where it waits.
SIMT_API void simt_cancel(void* pool) { static_cast<simt::Pool*>(pool)->cancel(); }

/// What went wrong in the launch that ended last; empty when nothing did.
SIMT_API const char* simt_error(void* pool) { return static_cast<simt::Pool*>(pool)->error(); }
}
