// Replays recorded launches of one kernel, which host_kernels.py writes, under the thread sanitizer.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "backends/simt/state.hpp"

extern "C" {
extern const simt::ExportedKernel simt_kernel;
void* simt_pool_new(unsigned workers, size_t stack_bytes);
void simt_pool_delete(void* pool);
void simt_start(void* pool, void (*run)(void**), void** args, const unsigned* grid, const unsigned* block,
                size_t shared_bytes);
bool simt_wait(void* pool, int milliseconds);
const char* simt_error(void* pool);
}

namespace {

// There may be more workers than cores, since the sanitizer also detects races that do not happen in this run.
constexpr unsigned kWorkers = 4;
constexpr size_t kStackBytes = 1024 * 1024;  // Instrumented code needs more stack.

/// The bytes of an argument, and the positions of addresses in them, each with the memory and the offset that it points
/// to.
struct Argument {
    struct Pointer {
        size_t position = 0, memory = 0, offset = 0;
    };
    std::vector<unsigned long long> words;  // Words of 8 bytes have the alignment that every argument needs.
    std::vector<Pointer> pointers;

    unsigned char* bytes() { return reinterpret_cast<unsigned char*>(words.data()); }

    void set(const std::string& hex) {
        words.resize((hex.size() + 15) / 16);
        for (size_t i = 0; i < hex.size(); i += 2)
            bytes()[i / 2] = static_cast<unsigned char>(std::stoul(hex.substr(i, 2), nullptr, 16));
    }
};

struct Launch {
    unsigned grid[3], block[3];
    size_t shared_bytes = 0;
    std::vector<Argument> arguments;
    std::vector<void*> memories;  // Each memory is a separate allocation.

    explicit Launch(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        file.exceptions(std::ios::failbit | std::ios::badbit | std::ios::eofbit);
        std::istringstream line = next_line(file);
        size_t count = 0;
        line >> grid[0] >> grid[1] >> grid[2] >> block[0] >> block[1] >> block[2] >> shared_bytes >> count;
        arguments.resize(count);
        for (Argument& argument : arguments) {
            line = next_line(file);
            std::string hex;
            line >> hex >> count;
            argument.set(hex);
            argument.pointers.resize(count);
            for (auto& pointer : argument.pointers) line >> pointer.position >> pointer.memory >> pointer.offset;
        }
        line = next_line(file);
        line >> count;
        for (size_t i = 0; i < count; ++i) {
            size_t bytes = 0;
            line >> bytes;
            memories.push_back(malloc(bytes + 1));
            if (bytes != 0) file.read(static_cast<char*>(memories.back()), static_cast<std::streamsize>(bytes));
        }
        for (Argument& argument : arguments) {
            for (const auto& pointer : argument.pointers) {
                const char* address = static_cast<char*>(memories.at(pointer.memory)) + pointer.offset;
                memcpy(argument.bytes() + pointer.position, &address, sizeof address);
            }
        }
    }
    Launch(const Launch&) = delete;
    ~Launch() {
        for (void* memory : memories) free(memory);
    }

    static std::istringstream next_line(std::istream& file) {
        std::string text;
        std::getline(file, text);
        return std::istringstream(text);
    }
};

}  // namespace

int main(int count, char** paths) {
    void* pool = simt_pool_new(kWorkers, kStackBytes);
    if (!pool) {
        std::cerr << "the system grants no threads\n";
        return 1;
    }
    int failed = 0;
    for (int i = 1; i < count; ++i) {
        try {
            Launch launch(paths[i]);
            std::vector<void*> pointers;
            for (Argument& argument : launch.arguments) pointers.push_back(argument.bytes());
            simt_start(pool, simt_kernel.run, pointers.data(), launch.grid, launch.block, launch.shared_bytes);
            while (!simt_wait(pool, 1000)) {
            }
            const std::string error = simt_error(pool);
            if (!error.empty()) {
                std::cerr << paths[i] << ": " << error << "\n";
                failed = 1;
            }
        } catch (const std::exception& error) {
            std::cerr << paths[i] << ": cannot be read: " << error.what() << "\n";
            failed = 1;
        }
    }
    simt_pool_delete(pool);
    return failed;
}
