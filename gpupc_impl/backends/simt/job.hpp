// One launch, whose blocks the workers of the pool take from a common counter.
#pragma once

#include <stddef.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "backends/simt/state.hpp"

namespace simt {
namespace {

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

}  // namespace
}  // namespace simt
