// State that kernels and the runtime share: the special registers of the running thread, and the runtime's functions.
#pragma once

struct uint3 {
    unsigned x, y, z;
};

/// Marks the symbols that the libraries of kernels and of the runtime share; all others are hidden.
#define SIMT_API __attribute__((visibility("default")))

namespace simt {

/// The places at which a thread can wait for others.
enum Wait : int { kNowhere, kSyncthreads, kSyncwarp, kShfl, kShflUp, kShflDown, kShflXor, kBallot, kAny, kAll };

/// The special registers of the CUDA thread that runs now on this OS thread.
struct ThreadState {
    uint3 thread;          // threadIdx
    unsigned linear;       // threadIdx as one number, in which x varies fastest
    uint3 block;           // blockIdx
    unsigned next;         // the first thread of the block that has not started
    uint3 block_dim;       // blockDim
    unsigned count;        // threads in a block
    uint3 grid_dim;        // gridDim
    bool tracked;          // whether a thread of this block has waited, so that exits must be noted
    void* dynamic_shared;  // the block's dynamic shared memory
};

/// What a compiled kernel exports: the types of its parameters (four characters each) and its body.
struct ExportedKernel {
    const char (*codes)[4];
    int count;
    void (*run)(void** args);  // runs the current thread, and then the threads that simt_thread_done starts
};

/// Moves `index` to its successor in a box of size `dim`, in which x varies fastest.
inline void advance(uint3& index, const uint3& dim) {
    if (++index.x < dim.x) return;
    index.x = 0;
    if (++index.y < dim.y) return;
    index.y = 0;
    ++index.z;
}

}  // namespace simt

extern "C" {
// These variables are static thread-local storage that all kernels share, so that reading an index costs one load.
// __thread, unlike thread_local, needs no check for a dynamic initialiser at each access.
extern SIMT_API __attribute__((tls_model("initial-exec"))) __thread simt::ThreadState simt_state;

/// Ends the current thread; returns whether the calling fiber has another thread to run.
SIMT_API bool simt_thread_done();
/// Waits for all live threads of the block; returns for how many of them `predicate` is true.
SIMT_API unsigned simt_sync_block(bool predicate);
/// Waits for the live lanes of `mask` to make the same kind of call. A vote returns the lanes with a nonzero value, a
/// shuffle returns the value of lane `source`.
SIMT_API unsigned long long simt_sync_warp(simt::Wait kind, unsigned mask, unsigned long long value, unsigned source);
/// Orders the memory accesses of this thread.
SIMT_API void simt_fence();
}
